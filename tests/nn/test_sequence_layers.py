"""The parts of the sequence models against their formulas, sequence by sequence."""

import math

import pytest
import torch
from torch import Tensor

from slicegraph.nn import Order, SequenceEmbedding, SequenceMixer, SequenceReadout, SetAttention
from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.nn.sequence_embedding import sinusoids

PTR = torch.tensor([0, 4, 4, 5, 11])
SIZES = [4, 0, 1, 6]
CHANNELS, HIDDEN, HEADS = 6, 10, 2
ORDERS = ["ascending", "descending", "interleave", "max_exchange"]


def rows(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(11, CHANNELS, generator=generator, dtype=torch.float64)


def attention(x: Tensor, ptr: Tensor) -> SetAttention:
    return SetAttention(PaddedSets(ptr), HEADS, x)


@pytest.mark.parametrize("order", ORDERS)
def test_sort_projects_orders_and_projects_back(order):
    mixer = SequenceMixer(
        CHANNELS, HEADS, "sort", order, layer=2, num_layers=3, hidden_channels=HIDDEN
    ).double()
    direction = Order(order, HIDDEN, layer=2, num_layers=3)
    x = rows()
    for one, out in zip(x.split(SIZES), mixer(x, PTR).split(SIZES), strict=True):
        torch.testing.assert_close(out, mixer.out_proj(direction(mixer.value_proj(one))))


@pytest.mark.parametrize("ptr", [PTR, torch.tensor([0, 11])], ids=["ragged", "full"])
def test_qkv_is_scaled_dot_product_attention_of_each_sequence(ptr):
    mixer = SequenceMixer(CHANNELS, HEADS, "qkv", hidden_channels=HIDDEN).double()
    x, sizes = rows(), ptr.diff().tolist()
    outputs = mixer(x, ptr, attention(x, ptr)).split(sizes)
    for one, out in zip(x.split(sizes), outputs, strict=True):
        parts = (mixer.query_proj, mixer.key_proj, mixer.value_proj)
        q, k, v = (part(one).view(-1, HEADS, HIDDEN // HEADS).transpose(0, 1) for part in parts)
        weights = (q @ k.transpose(1, 2) / math.sqrt(HIDDEN / HEADS)).softmax(-1)
        expected = mixer.out_proj((weights @ v).transpose(0, 1).flatten(1))
        torch.testing.assert_close(out, expected)


def test_the_gradient_of_attention_beside_an_empty_sequence_is_finite():
    mixer = SequenceMixer(CHANNELS, HEADS, "qkv").double()
    x = rows().requires_grad_()
    mixer(x, PTR, attention(x, PTR)).sum().backward()
    assert bool(x.grad.isfinite().all())
    assert all(bool(p.grad.isfinite().all()) for p in mixer.parameters())


@pytest.mark.parametrize(("mixer", "count"), [("sort", 1), ("qkv", 3)])
def test_qkv_bias_leaves_the_bias_of_the_output(mixer, count):
    layer = SequenceMixer(CHANNELS, HEADS, mixer, hidden_channels=HIDDEN, qkv_bias=False)
    parameters = sum(p.numel() for p in layer.parameters())
    assert parameters == count * CHANNELS * HIDDEN + HIDDEN * CHANNELS + CHANNELS


def test_a_mixer_that_needs_a_graph_is_refused():
    with pytest.raises(ValueError, match="unknown mixer 'sort_attn', expected one of sort, qkv"):
        SequenceMixer(CHANNELS, mixer="sort_attn")


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("token", [False, True])
def test_an_element_is_its_vector_and_its_place(positions, token):
    embedding = SequenceEmbedding(8, 20, max_length=6, positions=positions, token=token)
    elements = torch.randint(20, (11,), generator=torch.Generator().manual_seed(0))
    places = {
        "learned": lambda: embedding.places.weight,
        "sinusoidal": lambda: embedding.waves,
        "none": lambda: torch.zeros(6 + token, 8),
    }[positions]()
    out = embedding(elements, PTR).split([n + token for n in SIZES])
    for one, actual in zip(elements.split(SIZES), out, strict=True):
        x = embedding.elements.weight[one]
        x = torch.cat([embedding.token, x]) if token else x
        torch.testing.assert_close(actual, x + places[: len(x)])


def test_vectors_are_projected():
    embedding = SequenceEmbedding(8, in_channels=CHANNELS, positions="none").double()
    torch.testing.assert_close(embedding(rows(), PTR), embedding.elements(rows()))


def test_sinusoids_are_those_of_the_transformer():
    waves = sinusoids(7, 6)
    for place in range(7):
        for i in range(3):
            angle = place / 10000 ** (2 * i / 6)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(waves[place, 2 * i : 2 * i + 2], expected)


def test_a_sequence_that_is_too_long_is_named():
    embedding = SequenceEmbedding(8, 20, max_length=5)
    with pytest.raises(ValueError, match="sequence 3 has 6 elements, max_length is 5"):
        embedding(torch.zeros(11, dtype=torch.long), PTR)


@pytest.mark.parametrize("readout", ["mean", "max"])
def test_a_readout_of_all_rows(readout):
    out = SequenceReadout(CHANNELS, readout)(rows(), PTR)
    for size, one, actual in zip(SIZES, rows().split(SIZES), out, strict=True):
        if size == 0:
            expected = torch.zeros(CHANNELS).double()
        else:
            expected = one.mean(0) if readout == "mean" else one.amax(0)
        torch.testing.assert_close(actual, expected)


def test_the_readout_of_a_token_is_the_first_row():
    ptr = torch.tensor([0, 4, 5, 11])
    assert torch.equal(SequenceReadout(CHANNELS, "cls")(rows(), ptr), rows()[[0, 4, 5]])
