"""Processes that prepare a store, killed for real (SIGKILL), and two of them at once."""

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.molecule_tables import contents, molecule_csv

from slicegraph.data.prepare import prepare

if sys.platform != "linux":
    pytest.skip("the processes are forked, as importing takes seconds", allow_module_level=True)

KILLS = 8
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return molecule_csv(tmp_path_factory.mktemp("source") / "molecules.csv", 1000)


@pytest.fixture(scope="module")
def small_source(tmp_path_factory):
    return molecule_csv(tmp_path_factory.mktemp("source") / "molecules.csv", 30)


def reference(source: Path, folder: Path) -> dict[str, bytes]:
    """The files of a run that was not interrupted."""
    prepare(source, folder, workers=1)
    return contents(folder)


def start(
    work: Callable[..., object], *arguments: object, **options: object
) -> multiprocessing.Process:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=work, args=arguments, kwargs=options)
    process.start()
    return process


def prepare_in_two(source: Path, folder: Path) -> None:
    prepare(source, folder, workers=2, chunk_rows=50)


def prepare_until_change(source: Path, folder: Path, number: int, **options: bool) -> None:
    """Kills its own process before it changes anything on the disk for the given time."""

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal number
        if event in _CHANGES or (event == "open" and _writes(arguments)):
            number -= 1
            if number < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    prepare(source, folder, workers=1, chunk_rows=8, **options)


def _writes(arguments: tuple[object, ...]) -> bool:
    _, mode, flags = arguments
    return bool(set(mode or "") & set("wax+")) or bool(flags and flags & os.O_CREAT)


def test_killed_at_random_points_it_goes_on_and_ends_with_the_same_bytes(source, tmp_path):
    expected = reference(source, tmp_path / "whole")
    store, draw, kills = tmp_path / "store", random.Random(0), 0
    began = time.monotonic()
    prepare_in_two(source, tmp_path / "timed")
    seconds = time.monotonic() - began
    while kills < KILLS:
        process = start(prepare_in_two, source, store)
        process.join(draw.uniform(0, 0.5 * seconds))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        if process.exitcode == 0:
            assert contents(store) == expected
            shutil.rmtree(store)
    prepare_in_two(source, store)
    assert contents(store) == expected


def test_killed_before_any_change_on_the_disk_it_ends_with_the_same_bytes(small_source, tmp_path):
    expected = reference(small_source, tmp_path / "whole")
    exit_codes = []
    while not exit_codes or exit_codes[-1] != 0:
        store = tmp_path / str(len(exit_codes))
        process = start(prepare_until_change, small_source, store, len(exit_codes))
        process.join()
        exit_codes.append(process.exitcode)
        prepare(small_source, store, workers=1, chunk_rows=8)
        assert contents(store) == expected
    assert set(exit_codes[:-1]) == {-signal.SIGKILL}
    assert len(exit_codes) > 35


def test_killed_again_and_again_a_change_further_each_time_it_ends(small_source, tmp_path):
    expected = reference(small_source, tmp_path / "whole")
    for step in (3, 5, 30):
        store = tmp_path / f"store{step}"
        for _ in range(20):
            process = start(prepare_until_change, small_source, store, step)
            process.join()
            if process.exitcode == 0:
                break
        prepare(small_source, store, workers=1, chunk_rows=8)
        assert contents(store) == expected


def test_killed_while_it_restarts_it_ends_with_the_same_bytes(small_source, tmp_path):
    other, begun = molecule_csv(tmp_path / "other.csv", 30, seed=1), tmp_path / "begun"
    changes = 0
    while not (begun / "bonds.npy").exists():
        shutil.rmtree(begun, ignore_errors=True)
        start(prepare_until_change, other, begun, changes).join()
        changes += 1
    expected = reference(small_source, tmp_path / "whole")
    for number in range(0, 24, 2):
        store = shutil.copytree(begun, tmp_path / str(number))
        process = start(prepare_until_change, small_source, store, number, restart=True)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        prepare(small_source, store, workers=1, chunk_rows=8, restart=True)
        assert contents(store) == expected


def prepare_or_say(source: Path, folder: Path, answers: "multiprocessing.Queue[str]") -> None:
    try:
        prepare_in_two(source, folder)
        answers.put("done")
    except ValueError as error:
        answers.put(str(error))


def test_two_processes_in_one_folder_do_not_harm_each_other(source, tmp_path):
    expected = reference(source, tmp_path / "whole")
    answers = multiprocessing.get_context("fork").Queue()
    processes = [start(prepare_or_say, source, tmp_path / "store", answers) for _ in range(3)]
    said = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert "done" in said
    assert all(what == "done" or "another process is preparing" in what for what in said)
    assert contents(tmp_path / "store") == expected


def runs(process: str) -> bool:
    """Whether there is such a process, and it is more than an entry that nobody has fetched yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_end_with_the_process_that_is_killed(source, tmp_path):
    process = start(prepare_in_two, source, tmp_path / "store")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.is_alive() and not (workers := children.read_text().split()):
        time.sleep(0.001)
    process.kill()
    process.join()
    end = time.monotonic() + 30
    while any(map(runs, workers)):
        assert time.monotonic() < end
        time.sleep(0.01)
