"""The backends that operator tests run on, the C++ kernels once per SIMD level."""

import contextlib
from collections.abc import Iterator

import pytest

from slicegraph.ops import cpu, use_backend
from slicegraph.ops.operator import problem

VARIANTS = ["reference", "cpu-baseline", "cpu-avx2", "cpu-avx512", "triton"]


@contextlib.contextmanager
def running(variant: str) -> Iterator[None]:
    name, _, level = variant.partition("-")
    if (reason := problem(name, "cpu")) is not None:
        pytest.skip(f"{name}: {reason}")
    if not level:
        with use_backend(name):
            yield
        return
    best = cpu.simd_level()
    if cpu.SIMD_LEVELS.index(level) > cpu.SIMD_LEVELS.index(best):
        pytest.skip(f"this machine has no {level}")
    cpu.use_simd_level(level)
    try:
        with use_backend("cpu"):
            yield
    finally:
        cpu.use_simd_level(best)
