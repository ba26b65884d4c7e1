"""Which backend runs, what the library must fit, and what happens without torch's private names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.forks import Outcome, run_in_forks

import slicegraph
from slicegraph.ops import column_sort, cpu, operator, use_backend
from slicegraph.ops.operator import BACKENDS, available, choose, default, may_call_kernel

X = torch.randn(2, 3, 4)
SORT = "import torch; from slicegraph.ops import column_sort; column_sort(torch.randn(2, 3, 4))"
needs_kernels = pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))


WHICH = "from slicegraph.ops.operator import choose; print(choose('cpu').__name__)"
WITHOUT_KERNELS = """
import warnings
from pathlib import Path
import torch
Path.exists = lambda path, **_: False  # the library was not built
warnings.simplefilter("always")
from slicegraph.nn import SliceSort
from slicegraph.ops import column_sort, use_backend
print("imported")
with use_backend("reference"):
    column_sort(torch.randn(2, 3, 4))
print("forced")
for _ in range(3):
    SliceSort(4)(torch.randn(2, 3, 4))
    with use_backend("reference"):
        column_sort(torch.randn(2, 3, 4))
print("used")
"""
# By name: the code, and the environment.
CASES: dict[str, tuple[str, dict[str, str]]] = {
    "reference": (f"{SORT}; {WHICH}", {"SLICEGRAPH_BACKEND": "reference"}),
    "wrong": (SORT, {"SLICEGRAPH_BACKEND": "triton", "TRITON_INTERPRET": "0"}),
    "without kernels": (WITHOUT_KERNELS, {}),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return run_in_forks("torch._dynamo, torch_geometric.nn", CASES)


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


def test_environment_forces_a_backend_and_names_a_wrong_one(outcomes) -> None:
    forced, wrong = outcomes["reference"], outcomes["wrong"]
    assert forced.output.strip().endswith("reference"), forced.errors
    assert wrong.status != 0
    assert "'triton' cannot serve cpu tensors: serves CUDA tensors" in wrong.errors


@needs_kernels
def test_a_kernel_is_for_plain_tensors_of_its_types() -> None:
    with use_backend("cpu"):
        x = torch.randn(2, 3)
        assert may_call_kernel("edge_sum", x, x)
        assert not may_call_kernel("edge_sum", x, x.double())
        assert not may_call_kernel("edge_sum", x.bfloat16())
        assert not may_call_kernel("edge_sum", torch._neg_view(x))
        assert not may_call_kernel("no_such_operator", x)
    assert not may_call_kernel("edge_sum", x.to("meta"))
    with use_backend("reference"):
        assert not may_call_kernel("edge_sum", x)


@needs_kernels
def test_unknown_simd_level_is_an_error() -> None:
    assert cpu.simd_level() in cpu.SIMD_LEVELS
    with pytest.raises(ValueError, match="sse9"):
        cpu.use_simd_level("sse9")


@needs_kernels
def test_a_library_with_another_layout_is_not_used(tmp_path, monkeypatch) -> None:
    path = Path(cpu.__file__).with_name("_kernels.so")
    monkeypatch.setattr(cpu._pair_mix, "job_bytes", 8)
    library, reason = cpu.load(path)
    assert library is None
    assert "a job of pair_mix has 128 bytes, expected 8; install again" in reason
    (tmp_path / "broken.so").write_bytes(b"not a library")
    assert "could not be loaded" in cpu.load(tmp_path / "broken.so")[1]
    assert "were not built" in cpu.load(tmp_path / "missing.so")[1]


@needs_kernels
def test_an_operator_that_is_newer_than_the_library_runs_on_the_reference(monkeypatch) -> None:
    newer = cpu._Kernel("newer", "@1q", "x:int64")
    monkeypatch.setattr(cpu, "_KERNELS", (*cpu._KERNELS, newer))
    monkeypatch.setattr(cpu, "DTYPES", cpu.DTYPES | {"newer": (torch.int64,)})
    library, reason = cpu.load(Path(cpu.__file__).with_name("_kernels.so"))
    assert library is not None
    assert reason is None
    assert "newer" not in cpu.DTYPES
    assert "pair_mix" in cpu.DTYPES


# One process imports torch and PyG and forks; a child removes one name, as another version of
# torch might.
WITHOUT_PRIVATE_NAME = """
import os, sys, traceback, torch, torch_geometric.nn
failed = []
for path in sys.argv[1:]:
    child = os.fork()
    if child:
        failed += [path] if os.waitpid(child, 0)[1] else []
        continue
    holder, _, name = path.rpartition(".")
    owner = torch
    for part in filter(None, holder.split(".")):
        owner = getattr(owner, part)
    delattr(owner, name)
    status = 1
    try:
        from slicegraph.ops import column_sort, edge_sum, max_exchange, pairs
        x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
        values, indices = column_sort(x)
        assert torch.equal(values, torch.sort(x, dim=1, stable=True).values)
        (found,) = torch.autograd.grad(values.square().sum(), x)
        assert torch.equal(found, 2 * x)
        assert torch.equal(max_exchange(x).amax(1), x.amax(1))
        codes, index = torch.zeros(2, 1).long(), torch.tensor([[0, 1], [1, 2]])
        assert edge_sum(x[0], x[1], codes, index).shape == (5, 4)
        ptr, weights = torch.tensor([0, 2, 5]), torch.rand(2, 1, 3, 3).double().requires_grad_()
        mixed = pairs.pair_mix(weights, x[0], ptr)
        assert torch.allclose(mixed[:2], weights[0, 0, :2, :2] @ x[0, :2])
        assert torch.autograd.grad(mixed.sum(), weights)[0].shape == weights.shape
        assert pairs.pair_attention(x[0, :, :3], weights, ptr, 0.5)[0].shape == (5, 1)
        from slicegraph.nn.packed import batch_to_ptr
        from slicegraph.models import GraphSliceformer
        from slicegraph.ops.operator import as_on_gpu
        with as_on_gpu():
            assert batch_to_ptr(torch.tensor([0, 0, 1])).tolist() == [0, 0, 2, 3]
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
sys.exit(f"without {failed}" if failed else 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_results_are_right_without_each_private_name_of_torch() -> None:
    command = [sys.executable, "-c", WITHOUT_PRIVATE_NAME, *operator.PRIVATE_NAMES]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    assert all(operator._private(name) is not None for name in operator.PRIVATE_NAMES)


def test_only_the_operator_file_uses_private_names_of_torch() -> None:
    private = re.compile(
        r"""(?<!["'])\btorch(\.\w+)*\._[a-zA-Z]|getattr\(torch[\w.]*, ["']_[a-zA-Z]"""
    )
    for file in Path(slicegraph.__file__).parent.rglob("*.py"):
        if file.name != "operator.py":
            assert not private.search(file.read_text()), file.name


def test_without_kernels_there_is_one_warning_at_first_use(outcomes) -> None:
    found = outcomes["without kernels"]
    assert found.output.split() == ["imported", "forced", "used"], found.errors
    warned = [line for line in found.errors.splitlines() if "RuntimeWarning" in line]
    assert len(warned) == 1
    assert "the C++ kernels were not built; install again with a C++ compiler" in warned[0]
