"""Threads, forks, thread counts: the same bits always."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support.forks import Outcome, run_in_forks
from torch.utils.data import DataLoader, Dataset

from slicegraph.ops import column_sort, cpu

needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))


def _large() -> torch.Tensor:
    return torch.randn(64, 50, 200, generator=torch.Generator().manual_seed(0))


def test_callable_from_several_threads_at_once() -> None:
    inputs = [_large() + i for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: column_sort(x), inputs * 3))
    for x, (values, indices) in zip(inputs * 3, results, strict=True):
        expected = torch.sort(x, dim=1, stable=True)
        assert torch.equal(values, expected.values)
        assert torch.equal(indices, expected.indices)


def test_gradients_from_several_threads_at_once() -> None:
    def work(seed: int) -> bool:
        x = (_large() + seed).requires_grad_()
        g = torch.randn(x.shape)
        values, indices = column_sort(x)
        (actual,) = torch.autograd.grad(values, x, g)
        return torch.equal(actual, torch.zeros_like(g).scatter_(1, indices, g))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(12)))


class _Sorted(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> torch.Tensor:
        return column_sort(_large() + i, return_indices=False)


def test_forked_dataloader_workers_sort_alike() -> None:
    column_sort(_large())  # the parent has used its threads
    loader = DataLoader(_Sorted(), batch_size=1, num_workers=2, multiprocessing_context="fork")
    for i, batch in enumerate(loader):
        assert torch.equal(batch[0], torch.sort(_large() + i, dim=1).values)


def _sort_in_child(queue) -> None:
    # torch's own parallel loops hang in a child forked from a threaded parent; ours must not.
    torch.set_num_threads(1)
    x = _large()
    torch.set_num_threads(2)
    values = column_sort(x, return_indices=False)
    torch.set_num_threads(1)
    queue.put(bool((values[:, 1:] >= values[:, :-1]).all()))


@needs_kernels
def test_forked_child_with_several_threads_does_not_hang() -> None:
    column_sort(_large())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_sort_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60)
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()


@needs_kernels
def test_result_does_not_depend_on_the_number_of_threads() -> None:
    x, before = _large(), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append(column_sort(x))
    finally:
        torch.set_num_threads(before)
    for values, indices in results[1:]:
        assert torch.equal(values, results[0][0])
        assert torch.equal(indices, results[0][1])


COUNT_THREADS = """
import os, torch
from pathlib import Path
from slicegraph.ops import column_sort
torch.set_num_threads(int(os.environ["THREADS"]))
before = len(list(Path("/proc/self/task").iterdir()))
column_sort(torch.ones(512, 50, 200))
print(len(list(Path("/proc/self/task").iterdir())) - before)
"""
LITTLE_MEMORY = """
import resource, torch
from slicegraph.ops import column_sort
x = torch.randn(4_000_000, 1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), -1))
column_sort(x, return_indices=False)
"""
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "1": (COUNT_THREADS, {"THREADS": "1"}),
    "4": (COUNT_THREADS, {"THREADS": "4"}),
    "memory": (LITTLE_MEMORY, {}),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return run_in_forks("torch, slicegraph.ops", CASES)


@needs_kernels
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads through /proc")
@pytest.mark.parametrize("threads", [1, 4])
def test_honours_set_num_threads(outcomes, threads: int) -> None:
    found = outcomes[str(threads)]
    assert found.status == 0, found.errors
    assert int(found.output) == threads - 1  # torch.ones of this size is single-threaded


@needs_kernels
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="reads memory through /proc")
def test_a_long_column_needs_little_memory(outcomes) -> None:
    assert outcomes["memory"].status == 0, outcomes["memory"].errors


def test_same_bits_every_time() -> None:
    x = torch.randint(0, 5, (32, 100, 64)).float()
    first = column_sort(x)
    for _ in range(3):
        again = column_sort(x)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])
