import os
import time
from functools import partial

import pytest

from slicegraph.data.preparation.worker_pool import WorkerDied, ordered_map


def square(number: int) -> int:
    return number * number


def slow_at_first(number: int) -> int:
    time.sleep(0.2 if number == 0 else 0)
    return number


def fail(number: int) -> int:
    return 12 // (number - 3)


def leave(number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


def process(number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_it_is_map(workers, count):
    assert list(ordered_map(square, range(count), workers)) == [i * i for i in range(count)]


def test_results_are_in_order_when_the_work_is_not():
    assert list(ordered_map(slow_at_first, range(30), 3)) == list(range(30))


def test_two_workers_are_two_processes_and_one_is_this():
    assert set(ordered_map(process, range(5), 1)) == {os.getpid()}
    others = set(ordered_map(process, range(50), 2))
    assert os.getpid() not in others
    assert len(others) <= 2


def test_items_are_taken_as_they_are_needed():
    taken = []
    results = ordered_map(square, (taken.append(i) or i for i in range(1000)), 2)
    assert next(results) == 0
    assert len(taken) < 20
    results.close()


@pytest.mark.parametrize("workers", [2, 3])
def test_no_more_items_are_taken_while_the_first_takes_long(workers):
    taken = []
    results = ordered_map(slow_at_first, (taken.append(i) or i for i in range(1000)), workers)
    assert next(results) == 0
    assert len(taken) <= 2 * workers + 1
    results.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_the_work_is_raised_here(workers):
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(fail, range(6), workers))


def test_an_error_of_a_worker_tells_where_it_was():
    with pytest.raises(ZeroDivisionError) as caught:
        list(ordered_map(fail, range(6), 2))
    assert "12 // (number - 3)" in str(caught.value.__cause__)


def test_a_worker_that_leaves_is_an_error_with_the_item():
    with pytest.raises(WorkerDied, match="exit code 7") as caught:
        list(ordered_map(leave, range(6), 2))
    assert caught.value.item == 3


def test_closing_ends_the_workers():
    results = ordered_map(process, range(1000), 2)
    worker = next(results)
    os.kill(worker, 0)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_arguments_may_be_bound():
    assert list(ordered_map(partial(pow, 2), range(5), 2)) == [1, 2, 4, 8, 16]
