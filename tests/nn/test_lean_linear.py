import pytest
import torch
from torch.nn import functional

from slicegraph.nn.lean_linear import gelu_linear, norm_linear


def layers(bias=True, dtype=torch.float64):
    torch.manual_seed(0)
    norm, linear = torch.nn.LayerNorm(6), torch.nn.Linear(6, 4, bias)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    return norm.to(dtype), linear.to(dtype)


def both(name, bias=True, dtype=torch.float64):
    """The function, the same by torch's layers, and what they differentiate by."""
    norm, linear = layers(bias, dtype)
    if name == "norm":
        lean, plain = lambda x: norm_linear(x, norm, linear), lambda x: linear(norm(x))
        return lean, plain, [*norm.parameters(), *linear.parameters()]
    lean, plain = lambda x: gelu_linear(x, linear), lambda x: linear(functional.gelu(x))
    return lean, plain, list(linear.parameters())


@pytest.mark.parametrize("name", ["norm", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_layers(name, bias):
    lean, plain, parameters = both(name, bias)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    g = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(lean(x), plain(x), rtol=1e-12, atol=1e-12)
    found = torch.autograd.grad(lean(x), [x, *parameters], g)
    expected = torch.autograd.grad(plain(x), [x, *parameters], g)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["norm", "gelu"])
def test_second_derivatives_hold(name):
    lean, _, _ = both(name)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lean, (x,))
    assert torch.autograd.gradgradcheck(lean, (x,))


@pytest.mark.parametrize("name", ["norm", "gelu"])
def test_only_the_input_is_kept(name):
    lean, plain, parameters = both(name)
    x = torch.randn(50, 6, dtype=torch.float64, requires_grad=True)
    known = {x.data_ptr(), *(p.data_ptr() for p in parameters)}

    def kept(function):
        found = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: found.append(t) or t, lambda t: t):
            function(x)
        return [t for t in found if t.data_ptr() not in known and t.numel() >= x.numel()]

    assert kept(plain)
    assert not kept(lean)


@pytest.mark.parametrize("name", ["norm", "gelu"])
def test_autocast_gives_the_types_and_nearly_the_gradients_of_the_layers(name):
    lean, plain, parameters = both(name, dtype=torch.float32)
    x = torch.randn(5, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = lean(x), plain(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    g = torch.randn(5, 4, dtype=torch.bfloat16)
    ours = torch.autograd.grad(found, [x, *parameters], g)
    theirs = torch.autograd.grad(expected, [x, *parameters], g)
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["norm", "gelu"])
def test_it_compiles_whole(name):
    lean, plain, _ = both(name)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(lean, backend="aot_eager", fullgraph=True)
    (found,) = torch.autograd.grad(compiled(x).square().sum(), x)
    (expected,) = torch.autograd.grad(plain(x).square().sum(), x)
    torch.testing.assert_close(found, expected)
