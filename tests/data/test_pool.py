"""Work spread over processes: the results of map, whatever happens to a process."""

import os
import time
from functools import partial
from pathlib import Path

import pytest

from slicegraph.data.pool import WorkerDied, ordered_map


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


def hang(folder: Path, number: int) -> int:
    if number:
        time.sleep(600)
        (folder / "finished").touch()
    return number


def leave_once(folder, number: int) -> int:
    if number == 3 and not (folder / "left").exists():
        (folder / "left").touch()
        os._exit(7)
    return number


def process(number: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_ordered_map_is_map(workers, count):
    assert list(ordered_map(square, range(count), workers)) == [i * i for i in range(count)]


def test_two_workers_are_two_processes_and_one_is_this():
    assert set(ordered_map(process, range(5), 1)) == {os.getpid()}
    others = set(ordered_map(process, range(50), 2))
    assert os.getpid() not in others
    assert len(others) <= 2


@pytest.mark.parametrize("workers", [2, 3])
def test_items_are_taken_as_they_are_needed_and_results_are_in_order(workers):
    taken = []
    results = ordered_map(slow_at_first, (taken.append(i) or i for i in range(100)), workers)
    assert next(results) == 0
    assert len(taken) <= 2 * workers + 1
    assert list(results) == list(range(1, 100))


def test_an_error_of_a_worker_is_raised_here_and_tells_where_it_was():
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(fail, range(6), 1))
    with pytest.raises(ZeroDivisionError) as caught:
        list(ordered_map(fail, range(6), 2))
    assert "12 // (number - 3)" in str(caught.value.__cause__)


def test_a_worker_that_dies_again_is_an_error_with_the_item():
    results = ordered_map(leave, range(30), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(WorkerDied, match="use fewer workers") as caught:
        next(results)
    assert caught.value.item == 3


def test_a_worker_that_dies_once_costs_nothing(tmp_path):
    found = list(ordered_map(partial(leave_once, tmp_path), range(30), 2))
    assert found == list(range(30))


def test_closing_ends_the_workers():
    results = ordered_map(process, range(1000), 2)
    worker = next(results)
    os.kill(worker, 0)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_closing_does_not_wait_for_running_work(tmp_path):
    results = ordered_map(partial(hang, tmp_path), range(10), 2)
    assert next(results) == 0
    results.close()  # the test would hang here
    assert not (tmp_path / "finished").exists()
