"""Memory between the steps of a run."""

import ctypes
import resource
import sys
from pathlib import Path

import pytest
import torch

from slicegraph.train import freed_memory
from slicegraph.train.freed_memory import freed_memory_kept

LARGE = 192 << 20
needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="has no mallopt"
)


def pages_given() -> int:
    """How many pages the system has to give to ten tensors, one after another."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.empty(LARGE, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@needs_glibc
def test_a_tensor_finds_the_memory_of_the_one_before():
    usual = pages_given()
    with freed_memory_kept():
        pages_given()
        assert pages_given() < usual / 4


@needs_glibc
def test_it_is_handed_back_at_the_end():
    with freed_memory_kept():
        torch.empty(LARGE, dtype=torch.uint8).fill_(1)
        within = resident_bytes()
    assert resident_bytes() < within - LARGE // 2


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr(freed_memory, "_library", lambda: None)
    with freed_memory_kept():
        pass
