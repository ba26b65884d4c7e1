"""SliceAttention against its formula with all pairs, its limits, and the laws of set layers."""

import pytest
import torch
from torch import Tensor

from slicegraph.nn import SliceAttention, SliceAttention2d, SliceKernel
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_equivariant,
)

OPTIONS = {
    "heads": {"slices": 2},
    "channels": {"slices": 6, "tau": 0.1},
    "queries": {"slices": 3, "queries": True},
    "relu": {"slices": 2, "queries": True, "kernel": "relu"},
}


def layer(name: str = "heads", **more) -> SliceAttention:
    torch.manual_seed(0)
    return SliceAttention(5, 6, **OPTIONS[name], **more).double()


def some_sets() -> list[Tensor]:
    return [torch.randn(n, 5, dtype=torch.float64) for n in (4, 1, 7, 3)]


def unit(weight: Tensor) -> Tensor:
    return weight / weight.norm(dim=1, keepdim=True)


def formula(layer: SliceAttention, x: Tensor) -> Tensor:
    """One set with all of its pairs."""
    keys = queries = x @ unit(layer.key_proj.weight).T
    if layer.query_proj is not None:
        queries = layer.query_proj(x) / layer.query_proj.weight.norm(dim=1)
    difference = queries.unsqueeze(1) - keys
    values = layer.value_proj(x).unflatten(1, (layer.kernel.slices, -1))
    if layer.kernel.log_tau is not None:
        weights = (-difference.abs() / layer.kernel.log_tau.exp()).softmax(1)
    else:
        weights, values = difference.relu() / difference.abs().sum(1, True), values - values.mean(0)
    return layer.out_proj(torch.einsum("ijh,jhd->ihd", weights, values).flatten(1))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_layout_follows_the_formula(name):
    module, sets = layer(name), some_sets()
    expected = torch.cat([formula(module, x) for x in sets])
    batch = torch.arange(4).repeat_interleave(torch.tensor([4, 1, 7, 3]))
    torch.testing.assert_close(module(torch.cat(sets), batch=batch), expected)
    for x in sets:
        torch.testing.assert_close(module(x.unsqueeze(0)).squeeze(0), formula(module, x))


@pytest.mark.parametrize("name", OPTIONS)
def test_the_laws_of_set_layers(name):
    module, sets = layer(name), some_sets()
    assert_padding_invariant(module, sets, "dense", holes=True)
    assert_padding_invariant(module, sets, "packed")
    assert_permutation_equivariant(module, sets, "dense")
    assert_permutation_equivariant(module, sets, "packed")
    assert "reference" in assert_backends_agree(
        module, torch.randn(2, 9, 5, dtype=torch.float64), rtol=1e-7, atol=1e-9
    )


def test_ties_are_equivariant_too():
    rows = torch.randn(3, 5, dtype=torch.float64)[torch.tensor([0, 1, 0, 2, 1, 0])]
    assert_permutation_equivariant(layer(), [rows])


def test_padding_has_no_gradient_and_is_not_read():
    module, x = layer(), torch.randn(2, 5, 5, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False], [False] * 5])
    x = torch.where(mask.unsqueeze(-1), x, torch.nan).requires_grad_()
    out = module(x, mask)
    torch.testing.assert_close(out[0, mask[0]], formula(module, x[0, mask[0]]))
    assert not out[~mask].any()
    out.sum().backward()
    assert not x.grad[~mask].any()
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_small_widths_leave_rows_alone_and_large_ones_average_them():
    module, x = layer(), torch.randn(7, 5, dtype=torch.float64)
    values = module.value_proj(x)
    for log_tau, mixed in ((-50.0, values), (50.0, values.mean(0).expand_as(values))):
        torch.nn.init.constant_(module.kernel.log_tau, log_tau)
        torch.testing.assert_close(module(x), module.out_proj(mixed))


def test_the_initial_width_is_a_share_of_the_spread_of_the_keys():
    torch.manual_seed(0)
    module, x = SliceAttention(64, slices=8, tau=0.3), torch.randn(20_000, 64)
    torch.nn.init.normal_(module.key_proj.weight, std=7.0)
    keys = x @ unit(module.key_proj.weight).T
    torch.testing.assert_close(module.kernel.log_tau.exp(), 0.3 * keys.std(0), rtol=0.03, atol=0)


def test_all_parameters_learn():
    module = layer("queries")
    module(torch.randn(7, 5, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in module.parameters())


def test_half_precision_and_autocast():
    module, x = layer().float(), torch.randn(3, 9, 5)
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = module(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    assert module.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["heads", "relu"])
def test_compiles_to_one_graph(name):
    module, x = layer(name), torch.randn(2, 6, 5, dtype=torch.float64)
    mask = torch.tensor([[True] * 6, [True, False, True, True, False, False]])
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, mask), module(x, mask))


def test_feature_maps_are_sets_of_positions():
    module = SliceAttention2d(5, 6, slices=2).double()
    x, mask = torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.rand(2, 3, 4) < 0.7
    rows = module.positions(x.flatten(2).transpose(1, 2), mask.flatten(1))
    torch.testing.assert_close(module(x, mask).flatten(2).transpose(1, 2), rows)
    assert repr(module) == "SliceAttention2d(5, 6, slices=2, kernel=laplace)"


def test_repr():
    assert repr(layer("queries")) == "SliceAttention(5, 6, slices=3, kernel=laplace, queries=True)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SliceAttention(5, 6, slices=4), "slices = 4 does not divide out_channels = 6"),
        (lambda: SliceKernel(2, tau=0.0), "SliceKernel: tau = 0.0, expected a positive number"),
        (lambda: SliceKernel(2, kernel="gauss"), "unknown kernel 'gauss', expected one of laplace"),
        (lambda: layer()(torch.randn(3, 4)), r"SliceAttention: x has shape \[3, 4\], expected"),
        (lambda: SliceAttention2d(5, 8)(torch.randn(3, 5, 4)), "SliceAttention2d: x has shape"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
