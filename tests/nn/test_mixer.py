"""Every mixer of the table against its formula and the laws, set by set."""

import math

import pytest
import torch
from torch import Tensor

from slicegraph.nn import Mixer, PairBias, QuantileContext, SequenceMixer, SetAttention
from slicegraph.nn.mixer import ALIGNS, MIXERS
from slicegraph.nn.packed import PaddedSets
from slicegraph.nn.slice_sort import ORDERS

PTR = torch.tensor([0, 4, 5, 11])
HEADS, CHANNELS = 2, 6
CASES = [
    (name, order, align)
    for name, kind in MIXERS.items()
    for order in (ORDERS if kind.needs_order else ["ascending"])
    for align in (ALIGNS if kind.needs_order else ["rows"])
]


def rows(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(11, CHANNELS, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pairs() -> PairBias:
    """Random biases, with padding far below."""
    sets = PaddedSets(PTR)
    shape = (3, HEADS, sets.length, sets.length)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return PairBias(bias.masked_fill(~sets.real[:, None, None], -1e30), sets)


def one_set(number: int) -> tuple[Tensor, Tensor, PairBias]:
    """The rows of one set, with the ptr and the bias that it has alone."""
    start, end = PTR[number : number + 2].tolist()
    ptr = torch.tensor([0, end - start])
    bias = pairs().bias[number : number + 1, :, : end - start, : end - start]
    return rows()[start:end], ptr, PairBias(bias, PaddedSets(ptr))


def split(x: Tensor) -> Tensor:
    return x.unflatten(1, (HEADS, -1)).transpose(0, 1)


def join(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(1)


def attention(values: Tensor, scores: Tensor) -> Tensor:
    return join(scores.softmax(-1) @ split(values))


def ordered(mixer: Mixer, values: Tensor) -> Tensor:
    one = torch.tensor([0, len(values)])
    return mixer.order.pivoted(values, one) if mixer.align == "pivot" else mixer.order(values)


def quantiles(mixer: Mixer, x: Tensor) -> Tensor:
    levels = torch.linspace(0, 1, 5, dtype=x.dtype)
    return x + (mixer.context.weight * x.quantile(levels, 0)).sum(0)


def likeness(mixer: Mixer, x: Tensor) -> Tensor:
    q, k = split(mixer.query_proj(x)), split(mixer.key_proj(x))
    return q @ k.transpose(1, 2) / math.sqrt(mixer.hidden_channels / HEADS)


def sliced(mixer: Mixer, x: Tensor, values: Tensor) -> Tensor:
    keys = x @ torch.nn.functional.normalize(mixer.slice_proj.weight).T
    distances = (keys.unsqueeze(1) - keys).abs() / mixer.slices.log_tau.exp()
    return attention(values, -distances.permute(2, 0, 1))


# What each mixer makes of one set: from the layer, its input, the values and the bias.
FORMULAS = {
    "quantile_attn": lambda m, x, v, b: quantiles(m, attention(v, b)),
    "quantile": lambda m, x, v, b: quantiles(m, v),
    "sort_attn": lambda m, x, v, b: ordered(m, attention(v, b)),
    "attn_plus_sort": lambda m, x, v, b: attention(v, b) + ordered(m, v),
    "slice_attn": lambda m, x, v, b: sliced(m, x, attention(v, b)),
    "sort": lambda m, x, v, b: ordered(m, v),
    "slice": lambda m, x, v, b: sliced(m, x, v),
    "attn": lambda m, x, v, b: attention(v, b),
    "qkv": lambda m, x, v, b: attention(v, b + likeness(m, x)),
}


@pytest.mark.parametrize(("name", "order", "align"), CASES)
def test_every_entry_of_the_table(name, order, align):
    torch.manual_seed(0)
    module = Mixer(CHANNELS, HEADS, name, order, align=align, layer=1, num_layers=2).double()
    out = module(rows(), PTR, pairs())
    assert out.shape == (11, CHANNELS)
    for number, found in enumerate(out.split(PTR.diff().tolist())):
        x, ptr, own = one_set(number)
        torch.testing.assert_close(module(x, ptr, own), found)
        mixed = FORMULAS[name](module, x, module.value_proj(x), own.bias[0])
        torch.testing.assert_close(found, module.out_proj(mixed))
    x, ptr, own = one_set(2)
    perm = torch.tensor([3, 0, 5, 1, 4, 2])
    turned = PairBias(own.bias[:, :, perm][..., perm], own.sets)
    follows = torch.allclose(module(x[perm], ptr, turned), module(x, ptr, own)[perm])
    assert follows == (not MIXERS[name].needs_order or align == "pivot")
    sets = pairs().sets
    inputs = (rows().requires_grad_(), pairs().bias.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, b: module(x, PTR, PairBias(b, sets)), inputs)


@pytest.mark.parametrize("mixer", MIXERS)
def test_second_gradients(mixer):
    module = Mixer(CHANNELS, HEADS, mixer).double()
    assert torch.autograd.gradgradcheck(
        lambda x: module(x, PTR, pairs()), rows().requires_grad_(), atol=1e-4
    )


@torch.no_grad()
def test_quantiles_follow_a_permutation_of_the_rows_with_ties_too():
    x, perm = rows()[[0, 1, 1, 3, 4, 5]], torch.tensor([3, 0, 5, 1, 4, 2])
    context, one = QuantileContext(CHANNELS, quantiles=4).double(), torch.tensor([0, 6])
    assert torch.equal(context(x[perm], one), context(x, one)[perm])


def test_dropout_is_for_training_alone():
    module = Mixer(CHANNELS, HEADS, "attn", dropout=0.5).double()
    trained = module(rows(), PTR, pairs())
    module.eval()
    assert torch.equal(module(rows(), PTR, pairs()), module(rows(), PTR, pairs()))
    assert not torch.equal(module(rows(), PTR, pairs()), trained)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixer": "attention"}, "'attention'"),
        ({"align": "columns"}, "'columns'"),
        ({"order": "random"}, "'random'"),
        ({"heads": 4}, "heads = 4 does not divide channels = 6"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixer(CHANNELS, **arguments)


def test_a_missing_bias_is_named():
    with pytest.raises(ValueError, match="'attn' needs pairs"):
        Mixer(CHANNELS, mixer="attn")(rows(dtype=torch.float32), PTR)
    bias = PairBias(pairs().bias, pairs().sets, softmax=False)
    with pytest.raises(ValueError, match="make it with softmax=True"):
        Mixer(CHANNELS, HEADS, mixer="attn").double()(rows(), PTR, bias)


def test_attention_with_almost_no_dropout_is_attention():
    qkv = torch.cat([rows(seed) for seed in range(3)], 1).requires_grad_()
    found, expected = pairs().attend(qkv, dropout=1e-12), pairs().attend(qkv)
    torch.testing.assert_close(found, expected)
    g = rows(3)
    torch.testing.assert_close(
        torch.autograd.grad(found, qkv, g), torch.autograd.grad(expected, qkv, g)
    )


@pytest.mark.parametrize("function", ["attend", "mix"])
def test_dropout_keeps_the_average(function):
    x = torch.cat([rows(seed) for seed in range(3)], 1) if function == "attend" else rows()
    run = getattr(pairs(), function)
    torch.manual_seed(0)
    mean = torch.stack([run(x, dropout=0.2) for _ in range(2000)]).mean(0)
    torch.testing.assert_close(mean, run(x), rtol=0, atol=0.07)


# Sequences: no bias, and projections to another size.

RAGGED, HIDDEN = torch.tensor([0, 4, 4, 5, 11]), 10


def set_attention(x: Tensor, ptr: Tensor) -> SetAttention:
    return SetAttention(PaddedSets(ptr), HEADS, x)


@pytest.mark.parametrize("name", SequenceMixer.kinds)
@pytest.mark.parametrize("ptr", [RAGGED, torch.tensor([0, 11])], ids=["ragged", "full"])
def test_every_mixer_of_sequences(name, ptr):
    mixer = SequenceMixer(CHANNELS, HEADS, name, "interleave", hidden_channels=HIDDEN).double()
    x, sizes = rows(), ptr.diff().tolist()
    outputs = mixer(x, ptr, set_attention(x, ptr)).split(sizes)
    for one, out in zip(x.split(sizes), outputs, strict=True):
        mixed = FORMULAS[name](mixer, one, mixer.value_proj(one), 0)
        torch.testing.assert_close(out, mixer.out_proj(mixed))


def test_the_gradient_of_attention_beside_an_empty_sequence_is_finite():
    mixer = SequenceMixer(CHANNELS, HEADS, "qkv").double()
    x = rows().requires_grad_()
    mixer(x, RAGGED, set_attention(x, RAGGED)).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in [x, *mixer.parameters()])


@pytest.mark.parametrize(("mixer", "count"), [("sort", 1), ("qkv", 3)])
def test_qkv_bias_leaves_the_bias_of_the_output(mixer, count):
    layer = SequenceMixer(CHANNELS, HEADS, mixer, hidden_channels=HIDDEN, qkv_bias=False)
    parameters = sum(p.numel() for p in layer.parameters())
    assert parameters == count * CHANNELS * HIDDEN + HIDDEN * CHANNELS + CHANNELS


def test_a_mixer_that_needs_a_graph_is_refused():
    with pytest.raises(
        ValueError, match="unknown mixer 'sort_attn', expected one of sort, slice, qkv"
    ):
        SequenceMixer(CHANNELS, mixer="sort_attn")
