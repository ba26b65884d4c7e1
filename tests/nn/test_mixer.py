"""Every mixer against its formula, set by set."""

import pytest
import torch
from torch import Tensor

from slicegraph.nn import EncoderBlock, Mixer, Order, PairBias, QuantileContext
from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.nn.pivot import pivot_order

MIXERS = ["quantile_attn", "sort_attn", "attn_plus_sort", "sort", "attn", "qkv"]
ORDERS = ["ascending", "descending", "interleave", "max_exchange"]
ALIGNS = ["rows", "pivot"]
PTR = torch.tensor([0, 4, 5, 11])
HEADS, CHANNELS = 2, 6


def rows(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(11, CHANNELS, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def pairs(dtype: torch.dtype = torch.float64) -> PairBias:
    """Random biases, with padding far below."""
    sets = PaddedSets(PTR)
    shape = (3, HEADS, sets.length, sets.length)
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return PairBias(bias.masked_fill(~sets.real[:, None, None], -1e30), sets)


def linear(x: Tensor, module: torch.nn.Module | None) -> Tensor:
    assert isinstance(module, torch.nn.Linear)
    return x @ module.weight.T + module.bias


def split(x: Tensor) -> Tensor:
    return x.view(len(x), HEADS, -1).transpose(0, 1)


def join(x: Tensor) -> Tensor:
    return x.transpose(0, 1).reshape(x.shape[1], -1)


def formula(mixer: Mixer, x: Tensor, bias: Tensor) -> Tensor:
    """One set `[n, C]` with its bias `[heads, n, n]`."""
    values = linear(x, mixer.value_proj)
    scores = bias
    if mixer.mixer == "qkv":
        q, k = split(linear(x, mixer.query_proj)), split(linear(x, mixer.key_proj))
        scores = bias + q @ k.transpose(1, 2) / (CHANNELS / HEADS) ** 0.5
    attention = join(scores.softmax(-1) @ split(values))
    one = torch.tensor([0, len(x)])

    def ordered(v: Tensor) -> Tensor:
        assert mixer.order is not None
        return pivot_order(mixer.order, v, one) if mixer.align == "pivot" else mixer.order(v)

    if mixer.mixer in ("attn", "qkv"):
        mixed = attention
    elif mixer.context is not None:
        levels = torch.linspace(0, 1, 5, dtype=x.dtype)
        mixed = attention + (mixer.context.weight * attention.quantile(levels, 0)).sum(0)
    elif mixer.mixer == "sort_attn":
        mixed = ordered(attention)
    else:
        mixed = ordered(values) + (attention if mixer.mixer == "attn_plus_sort" else 0)
    return linear(mixed, mixer.out_proj)


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("align", ALIGNS)
@torch.no_grad()
def test_every_set_follows_the_formula(mixer, order, align):
    module = Mixer(CHANNELS, HEADS, mixer, order, align, layer=1, num_layers=2).double()
    out, bias = module(rows(), PTR, pairs()), pairs().bias
    for b, (start, end) in enumerate(zip(PTR[:-1].tolist(), PTR[1:].tolist(), strict=True)):
        n = end - start
        expected = formula(module, rows()[start:end], bias[b, :, :n, :n])
        torch.testing.assert_close(out[start:end], expected)


@torch.no_grad()
def test_quantiles_follow_a_permutation_of_the_rows_with_ties_too():
    x, perm, one = (
        rows()[[0, 1, 1, 3, 4, 5]],
        torch.tensor([3, 0, 5, 1, 4, 2]),
        torch.tensor([0, 6]),
    )
    context = QuantileContext(CHANNELS, quantiles=4).double()
    assert torch.equal(context(x[perm], one), context(x, one)[perm])


@pytest.mark.parametrize("order", ORDERS)
def test_pivot_leaves_channel_zero_where_it_is(order):
    out = pivot_order(Order(order, CHANNELS, 1, 2), rows(), PTR)
    assert torch.equal(out[:, 0], rows()[:, 0])
    for start, end in zip(PTR[:-1].tolist(), PTR[1:].tolist(), strict=True):
        assert torch.equal(out[start:end].sort(0).values, rows()[start:end].sort(0).values)


def test_pivot_gives_the_rth_node_every_rth_value():
    x, order = rows()[:6], Order("ascending", CHANNELS)
    out = pivot_order(order, x, torch.tensor([0, 6]))
    for r, node in enumerate(x[:, 0].argsort().tolist()):
        assert torch.equal(out[node], x.sort(0).values[r])


def test_pivot_max_exchange_is_between_the_maxima_and_the_top_node():
    x = torch.tensor([[1.0, 5.0, 9.0], [7.0, 6.0, 2.0], [3.0, 8.0, 4.0]])
    out = pivot_order(Order("max_exchange", 3), x, torch.tensor([0, 3]))
    assert out.tolist() == [[1.0, 5.0, 2.0], [7.0, 8.0, 9.0], [3.0, 6.0, 4.0]]


@pytest.mark.parametrize("order", ORDERS)
def test_pivot_follows_a_permutation_of_the_rows(order):
    x, perm, one = rows()[:6], torch.tensor([3, 0, 5, 1, 4, 2]), torch.tensor([0, 6])
    sort = Order(order, CHANNELS, 1, 2)
    assert torch.equal(pivot_order(sort, x[perm], one), pivot_order(sort, x, one)[perm])


def test_pivot_ranks_ties_in_row_order():
    x = torch.tensor([[1.0, 5.0], [1.0, 4.0]])
    out = pivot_order(Order("ascending", 2), x, torch.tensor([0, 2]))
    assert out.tolist() == [[1.0, 4.0], [1.0, 5.0]]


@pytest.mark.parametrize("order", ORDERS)
def test_pivot_and_empty_sets(order):
    x, ptr = rows()[:4], torch.tensor([0, 0, 3, 3, 4, 4])
    sort = Order(order, CHANNELS)
    assert torch.equal(pivot_order(sort, x, ptr), pivot_order(sort, x, torch.tensor([0, 3, 4])))


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("align", ALIGNS)
def test_gradients(mixer, order, align):
    module = Mixer(CHANNELS, HEADS, mixer, order, align).double()
    x, given = rows().requires_grad_(), pairs()
    bias = given.bias.clone().requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda x, bias: module(x, PTR, PairBias(bias, given.sets)), (x, bias))


@pytest.mark.parametrize("mixer", MIXERS)
def test_second_gradients(mixer):
    module = Mixer(CHANNELS, HEADS, mixer).double()
    assert torch.autograd.gradgradcheck(
        lambda x: module(x, PTR, pairs()), rows().requires_grad_(), atol=1e-4
    )


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


@torch.no_grad()
def test_the_block_is_pre_norm_with_an_exact_gelu():
    block = EncoderBlock(Mixer(CHANNELS, HEADS, "attn"), ffn_channels=8).double()
    norm = torch.nn.functional.layer_norm
    middle = rows() + block.mixer(norm(rows(), [CHANNELS]), PTR, pairs())
    inner = linear(norm(middle, [CHANNELS]), block.ffn_in)
    inner = inner * (1 + torch.erf(inner / 2**0.5)) / 2
    expected = middle + linear(inner, block.ffn_out)
    torch.testing.assert_close(block(rows(), PTR, pairs()), expected)


def test_attention_with_almost_no_dropout_is_attention():
    qkv = torch.cat([rows(seed) for seed in range(3)], 1).requires_grad_()
    found, expected = pairs().attend(qkv, dropped=1e-12), pairs().attend(qkv)
    torch.testing.assert_close(found, expected)
    g = rows(3)
    torch.testing.assert_close(
        torch.autograd.grad(found, qkv, g), torch.autograd.grad(expected, qkv, g)
    )


def test_attention_with_dropout_is_attention_on_average():
    qkv, bias = torch.cat([rows(seed) for seed in range(3)], 1), pairs()
    torch.manual_seed(0)
    mean = torch.stack([bias.attend(qkv, dropped=0.2) for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, bias.attend(qkv), rtol=0, atol=0.05)
