"""Which backend runs, and what an impossible one says."""

import os
import subprocess
import sys

import pytest
import torch

from slicegraph.ops import column_sort, use_backend
from slicegraph.ops.backends import BACKENDS, available, choose, cpu, default

X = torch.randn(2, 3, 4)
SORT = "import torch; from slicegraph.ops import column_sort; column_sort(torch.randn(2, 3, 4))"


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_reference_serves_every_device() -> None:
    for device in ("cpu", "cuda", "meta"):
        assert available(device)[-1] == "reference"


def test_interpreter_is_never_the_default() -> None:
    assert "triton" in available("cpu")  # tests run in Triton's interpreter
    assert default("cpu") in ("cpu", "reference")


def test_use_backend_is_undone() -> None:
    before = choose("cpu")
    with use_backend("reference"):
        assert choose("cpu") is BACKENDS["reference"]
    assert choose("cpu") is before


def test_unknown_backend_lists_the_available_ones() -> None:
    expected = "'fast' cannot serve cpu tensors: there is no such backend; available: .*reference"
    with pytest.raises(ValueError, match=expected), use_backend("fast"):
        column_sort(X)


def test_environment_forces_a_backend() -> None:
    code = SORT + "; from slicegraph.ops.backends import choose; print(choose('cpu').__name__)"
    result = _run(code, SLICEGRAPH_BACKEND="reference")
    assert result.stdout.strip().endswith("reference"), result.stderr


def test_environment_with_an_unknown_name_lists_the_available_ones() -> None:
    result = _run(SORT, SLICEGRAPH_BACKEND="gpu")
    assert result.returncode != 0
    assert "ValueError: SLICEGRAPH_BACKEND: 'gpu'" in result.stderr
    assert "available: " in result.stderr
    assert "reference" in result.stderr


def test_environment_with_an_unavailable_name_says_why() -> None:
    result = _run(SORT, SLICEGRAPH_BACKEND="triton", TRITON_INTERPRET="0")
    assert result.returncode != 0
    assert "'triton' cannot serve cpu tensors: serves CUDA tensors" in result.stderr


@pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))
def test_unknown_simd_level_is_an_error() -> None:
    assert cpu.simd_level() in cpu.SIMD_LEVELS
    with pytest.raises(ValueError, match="sse9"):
        cpu.use_simd_level("sse9")
