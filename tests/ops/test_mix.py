"""The mix of dense sets against its formula set by set, and the kernel against the reference."""

import os
import subprocess
import sys

import pytest
import torch
from support.variants import running
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

from slicegraph.ops.mix import dense_mix, dense_mix_op

HEADS = 2
DOWN = torch.arange(10) % 3 == 1
READINGS = {
    "none": {},
    "sort": {"sort": True},
    "sort by channel": {"sort": True, "descending": DOWN},
    "quantiles": {"weight": torch.randn(5, 10, generator=torch.Generator().manual_seed(1))},
    "median": {"weight": torch.ones(1, 10)},
    "kernel": {"softmax": False},
}


@pytest.fixture(params=["reference", "triton"])
def backend(request):
    with running(request.param):
        yield request.param


def make(rows: int, width: int = 5, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Sets of all, none and half of the rows, with NaN wherever nothing may be read."""
    generator, lengths = torch.Generator().manual_seed(0), torch.tensor([rows, 0, (rows + 1) // 2])
    values = torch.randn(3, rows, HEADS * width, generator=generator).to(dtype)
    bias = 2 * torch.randn(3, HEADS, rows, rows, generator=generator)
    for b, n in enumerate(lengths.tolist()):
        values[b, n:], bias[b, :, n:], bias[b, :, :, n:] = torch.nan, torch.nan, torch.nan
    bias = bias.to(torch.promote_types(dtype, torch.float32))
    return values, bias, lengths


def formula(values: Tensor, bias: Tensor, lengths: Tensor, **options) -> Tensor:
    """Set by set, by torch's softmax, sort and quantile."""
    out = torch.zeros_like(values)
    weight, down = options.get("weight"), options.get("descending", False)
    for b, n in enumerate(lengths.tolist()):
        if n == 0:
            continue
        weights = bias[b, :, :n, :n]
        weights = weights.softmax(-1) if options.get("softmax", True) else weights
        rows = values[b, :n].unflatten(1, (HEADS, -1)).transpose(0, 1)
        mixed = (weights.to(rows.dtype) @ rows).transpose(0, 1).flatten(1)
        if options.get("sort"):
            up, back = (mixed.sort(dim=0, descending=d, stable=True).values for d in (False, True))
            mixed = torch.where(torch.as_tensor(down), back, up)
        if weight is not None:
            k = len(weight)
            at = torch.linspace(0, 1, k).to(mixed.dtype) if k > 1 else mixed.new_tensor([0.5])
            mixed = mixed + (mixed.quantile(at, 0) * weight).sum(0)
        out[b, :n] = mixed
    return out


def results(function, values: Tensor, bias: Tensor, lengths: Tensor, **options):
    """The output, and the gradients of everything that has one."""
    leaves = [values.detach().requires_grad_(), bias.detach().requires_grad_()]
    if "weight" in options:
        leaves.append(options["weight"].to(bias.dtype).requires_grad_())
        options = {**options, "weight": leaves[2]}
    out = function(*leaves[:2], lengths, **options)
    out = out[0] if isinstance(out, tuple) else out
    up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape)
    return [out.detach(), *grad(out, leaves, up)]


@pytest.mark.parametrize("reading", READINGS)
def test_output_and_gradients_follow_the_formula(backend, reading):
    options = READINGS[reading]
    for rows in (13, 1) if backend == "reference" else (13,):
        inputs = make(rows, dtype=torch.float64 if backend == "reference" else torch.float32)
        # The formula in float64 on the same numbers; NaN beyond the lengths has no gradient.
        exact = [x.double() if x.is_floating_point() else x for x in inputs]
        expected = results(formula, *exact, **options)
        found = results(dense_mix, *inputs, **options)
        assert all(x.isfinite().all() for x in found)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a.double(), b.nan_to_num().double(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("reading", "rows", "width", "dtype"),
    [
        ("sort", 40, 5, torch.float32),
        ("quantiles", 33, 5, torch.float32),
        ("quantiles", 17, 5, torch.bfloat16),
        ("sort by channel", 33, 5, torch.float16),
        ("none", 70, 3, torch.bfloat16),
    ],
)
def test_the_kernel_drops_and_sorts_like_the_reference(reading, rows, width, dtype):
    found = []
    for variant in ("reference", "triton"):
        with running(variant):
            torch.manual_seed(3)
            found.append(results(dense_mix, *make(rows, width, dtype), **READINGS[reading], p=0.3))
    # Both round the output to the type of the values; sums are in float32.
    near = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
    for a, b in zip(*found, strict=True):
        scale = b.abs().max().item()
        torch.testing.assert_close(a, b, rtol=near, atol=near * scale)


def test_the_gradient_of_the_bias_adds_up_over_layers(backend):
    values, bias, lengths = make(9)
    values, bias = values.nan_to_num(), bias.nan_to_num().requires_grad_()
    passed_on, total, alone = bias, torch.zeros(()), torch.zeros(())
    for scale in (1.0, -0.5, 2.0):
        out, passed_on = dense_mix(values * scale, passed_on, lengths, sort=True)
        total = total + (out * (1 + values)).sum()
        alone = (
            alone + (dense_mix(values * scale, bias, lengths, sort=True)[0] * (1 + values)).sum()
        )
    total, alone = (x + y[0, 0, -1].sin().sum() for x, y in ((total, passed_on), (alone, bias)))
    (found,), (expected,) = grad(total, bias), grad(alone, bias)
    torch.testing.assert_close(found, expected)


def test_the_kernel_gives_the_same_bits_twice():
    with running("triton"):
        inputs = make(12)
        first, second = (results(dense_mix, *inputs, **READINGS["quantiles"]) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_a_row_without_partners_has_no_weights(backend):
    values, bias, lengths = make(5)
    bias[0, :, 2] = -torch.inf
    out, grad_values, grad_bias = results(dense_mix, values, bias, lengths)
    assert not out[0, 2].any()
    assert out[0, [0, 1, 3, 4]].all()
    assert grad_values.isfinite().all()
    assert not grad_bias[0, :, 2].any()


def test_infinities_stay_in_their_channel():
    for variant in ("reference", "triton"):
        with running(variant):
            values, bias, lengths = make(5)
            expected = dense_mix(values, bias, lengths, sort=True)[0]
            values[0, 1, 4] = torch.inf
            out = dense_mix(values, bias, lengths, sort=True)[0]
        assert (out[0, :, 4] == torch.inf).all()
        expected[0, :, 4] = torch.inf
        assert torch.equal(out, expected)


@pytest.mark.parametrize("reading", READINGS)
def test_first_and_second_gradient_of_the_reference_are_right(reading):
    values, bias, lengths = (x[[0, 2]] for x in make(4, dtype=torch.float64))
    options = dict(READINGS[reading])
    leaves = [values.nan_to_num().requires_grad_(), bias.nan_to_num().requires_grad_()]
    if "weight" in options:
        leaves.append(options.pop("weight").double().requires_grad_())

    def run(values: Tensor, bias: Tensor, weight: Tensor | None = None) -> Tensor:
        torch.manual_seed(0)
        return dense_mix(values, bias, lengths, weight=weight, **options, p=0.2)[0]

    with running("reference"):
        assert gradcheck(run, leaves, fast_mode=True)
        assert gradgradcheck(run, leaves, fast_mode=True)


def test_opcheck():
    values, bias, lengths = (x.nan_to_num() for x in make(4))
    weight, seed = torch.ones(3, 10, requires_grad=True), torch.tensor(7)
    leaves = (values.requires_grad_(), bias.requires_grad_())
    with running("reference"):
        for arguments in (
            (*leaves, None, lengths, DOWN, seed, False, True, True, 0.2, True),
            (*leaves, weight, lengths, None, None, False, False, True, 0.0, True),
        ):
            torch.library.opcheck(dense_mix_op.op, arguments)


def test_a_compiled_graph_adds_up_the_gradient_too():
    values, bias, lengths = (x.nan_to_num() for x in make(6))
    leaves = (values.requires_grad_(), bias.requires_grad_())

    def two_layers(values: Tensor, bias: Tensor) -> Tensor:
        out, bias = dense_mix(values, bias, lengths, sort=True)
        return dense_mix(out, bias, lengths)[0].square().sum()

    with running("reference"):
        compiled = torch.compile(two_layers, fullgraph=True, backend="aot_eager", dynamic=True)
        found, expected = (grad(f(*leaves), leaves) for f in (compiled, two_layers))
    torch.testing.assert_close(found, expected)


INLINED = """
import torch, triton
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from slicegraph.ops import operator, mix, triton as backend

class Driver:  # of no device: torch asks it for the target of the kernels that it reads
    def get_current_target(self):
        return GPUTarget("cuda", 80, 32)

triton.runtime.driver.set_active(Driver())
operator._chosen["cuda"] = backend

def forward(values, bias, lengths):
    run = mix.dense_mix_op.runner(values)
    return run(values, bias, None, lengths, None, None, False, True, True, 0.0, True)

with FakeTensorMode():
    values, bias = torch.empty(3, 13, 10, device="cuda"), torch.empty(3, 2, 13, 13, device="cuda")
    lengths = torch.empty(3, dtype=torch.long, device="cuda")
    traced = aot_export_joint_simple(forward, (values, bias, lengths), trace_joint=False)
print(traced.graph)
"""


@pytest.mark.slow
def test_compilers_see_the_kernel_on_cuda():
    pytest.importorskip("triton")
    if not hasattr(torch.library, "triton_op"):
        pytest.skip("torch.library.triton_op is in torch 2.6 and later")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", INLINED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "triton_kernel_wrapper_functional" in done.stdout, done.stderr
    assert "tensors_to_clone: [out, ranks]" in done.stdout  # inputs are only read
    assert "slicegraph" not in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"values": torch.zeros(3, 300, 10)},
            r"values has shape \[3, 300, 10\], expected \[B, N <",
        ),
        (
            {"bias": torch.zeros(3, 2, 5, 4)},
            r"bias has shape \[3, 2, 5, 4\], expected \[3, H, 5, 5",
        ),
        ({"bias": torch.zeros(3, 3, 5, 5)}, "a multiple of the 3 heads"),
        ({"lengths": torch.tensor([6, 0, 2])}, r"lengths\[0\] = 6 exceeds the 5 rows of values"),
        ({"weight": torch.ones(2, 9)}, r"weight of shape \[2, 9\] with sort = False"),
        ({"weight": torch.ones(2, 10), "sort": True}, "expected .* without sort"),
        ({"descending": torch.ones(4)}, r"descending is torch.float32 of shape \[4\]"),
        ({"p": 1.5}, r"p = 1.5 is not in 0\.\.1"),
    ],
)
def test_wrong_arguments_are_named(backend, change, message):
    values, bias, lengths = make(5)
    arguments = {"values": values, "bias": bias, "lengths": lengths, **change}
    with pytest.raises(ValueError, match=f"dense_mix: .*{message}"):
        dense_mix(**arguments)
