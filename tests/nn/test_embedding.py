"""Feature tables and the embeddings of graphs and sequences."""

import math

import pytest
import torch

from slicegraph.nn import FeatureTable, GraphEmbedding, SequenceEmbedding
from slicegraph.nn.embedding import Waves

FEATURES = torch.tensor([[0, 1], [2, 0], [1, 1]])


@pytest.mark.parametrize("padding_row", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_a_table_adds_one_row_per_feature(padding_row, dtype):
    table = FeatureTable([3, 2], 4, padding_row=padding_row)
    assert not padding_row or not bool(table.weight[0].any())
    w = table.weight[int(padding_row) :]
    expected = torch.stack([w[0] + w[4], w[2] + w[3], w[1] + w[4]])
    torch.testing.assert_close(table(FEATURES.to(dtype)), expected)
    mean = FeatureTable([3, 2], 4, mean=True, padding_row=padding_row)
    mean.load_state_dict(table.state_dict())
    torch.testing.assert_close(mean(FEATURES), expected / 2)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("rows", [0, 3])
def test_gradients_of_a_table(mean, rows):
    table = FeatureTable([3, 2], 4, mean=mean).double()

    def call(weight):
        return torch.func.functional_call(table, {"weight": weight}, (FEATURES[:rows],)).square()

    assert torch.autograd.gradcheck(call, table.weight)


@pytest.mark.parametrize("vocabulary", [[5, 3, 4], [512] * 9], ids=["few", "too many to count"])
def test_repeated_rows_have_the_values_and_gradients_of_a_product_with_one_hot_rows(vocabulary):
    table = FeatureTable(vocabulary, 4, mean=True, padding_row=True).double()
    features = torch.randint(3, (7, len(vocabulary)))[torch.randint(7, (50,))]
    outs = table(features), table(table.one_hot(features).double())
    torch.testing.assert_close(*outs)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), table.weight) for y in outs))


def test_a_table_in_half_precision_has_gradients():
    table = FeatureTable([3, 2], 4).bfloat16()
    table(FEATURES).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.tensor([[0, 1], [3, 0]]), r"features\[1, 0\] = 3 is not in 0..2"),
        (torch.tensor([[0, -1]]), r"features\[0, 1\] = -1"),
        (FEATURES[:, :1], r"shape \[3, 1\]"),
        (FEATURES.float(), "float32"),
    ],
)
def test_wrong_features_are_named(features, message):
    with pytest.raises(ValueError, match=message):
        FeatureTable([3, 2], 4)(features)


def test_an_empty_vocabulary_is_named():
    with pytest.raises(ValueError, match=r"vocabulary = \[3, 0\]"):
        FeatureTable([3, 0], 4)


PTR = torch.tensor([0, 2, 2, 3])
IN, OUT = torch.tensor([1, 0, 9]), torch.tensor([0, 1, 2])


def test_a_node_is_its_features_and_its_degrees():
    embedding = GraphEmbedding(4, node_vocabulary=[3, 2], max_degree=2)
    expected = embedding.nodes(FEATURES)
    expected = expected + embedding.in_degree.weight[[1, 0, 2]] + embedding.out_degree.weight[OUT]
    torch.testing.assert_close(embedding(FEATURES, IN, OUT, PTR), expected)


def test_walks_are_standardised_projected_and_added():
    torch.manual_seed(0)
    walks, degree = torch.rand(3, 5), torch.tensor([1, 2, 1])
    embedding = GraphEmbedding(8, [3, 2], walk_length=4)
    ptr = torch.tensor([0, 3])
    found = embedding(FEATURES, degree, degree, ptr, walks=walks)
    read = walks[:, :4]
    read = (read - read.mean(0)) / (read.var(0, correction=0) + 1e-5).sqrt()
    linear = embedding.walks.linear
    expected = embedding.nodes(FEATURES) + embedding.in_degree(degree)
    expected = expected + embedding.out_degree(degree) + read @ linear.weight.T + linear.bias
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="walks are missing"):
        embedding(FEATURES, degree, degree, ptr)
    with pytest.raises(ValueError, match=r"walks have shape \[3, 2\], expected \[T, 4\]"):
        embedding(FEATURES, degree, degree, ptr, walks=walks[:, :2])


def test_the_in_degree_twice():
    embedding = GraphEmbedding(4, node_vocabulary=[3, 2], max_degree=2, in_degree_twice=True)
    assert torch.equal(embedding(FEATURES, IN, OUT, PTR), embedding(FEATURES, IN, IN, PTR))


def test_the_token_comes_first_in_every_graph_even_an_empty_one():
    embedding = GraphEmbedding(4, node_vocabulary=[3, 2], token=True)
    out = embedding(FEATURES, IN, OUT, PTR)
    token, embedding.token = embedding.token, None
    nodes = embedding(FEATURES, IN, OUT, PTR)
    assert torch.equal(out, torch.cat([token, nodes[:2], token, token, nodes[2:]]))


def test_float_features_are_projected():
    embedding, x = GraphEmbedding(4, node_dim=3), torch.randn(3, 3)
    zero = torch.zeros(3, dtype=torch.int64)
    expected = embedding.nodes(x) + embedding.in_degree.weight[0] + embedding.out_degree.weight[0]
    torch.testing.assert_close(embedding(x, zero, zero, PTR), expected)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (GraphEmbedding, {}, "expected one of them"),
        (GraphEmbedding, {"node_vocabulary": [3], "node_dim": 2}, "expected one of them"),
        (SequenceEmbedding, {}, "expected one of them"),
        (SequenceEmbedding, {"vocabulary": 3, "positions": "cubic"}, "positions 'cubic'"),
    ],
)
def test_wrong_arguments_are_named(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(4, **arguments)


SEQUENCES, SIZES = torch.tensor([0, 4, 4, 5, 11]), [4, 0, 1, 6]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("token", [False, True])
def test_an_element_is_its_vector_and_its_place(positions, token):
    embedding = SequenceEmbedding(8, 20, max_length=6, positions=positions, token=token)
    elements = torch.randint(20, (11,), generator=torch.Generator().manual_seed(0))
    places = {
        "learned": lambda: embedding.places.weight,
        "sinusoidal": lambda: embedding.places.rows,
        "none": lambda: torch.zeros(6 + token, 8),
    }[positions]()
    out = embedding(elements, SEQUENCES).split([n + token for n in SIZES])
    for one, actual in zip(elements.split(SIZES), out, strict=True):
        x = embedding.elements.weight[one]
        x = torch.cat([embedding.token, x]) if token else x
        torch.testing.assert_close(actual, x + places[: len(x)])


def test_vectors_are_projected():
    embedding, x = SequenceEmbedding(8, in_channels=6, positions="none"), torch.randn(11, 6)
    torch.testing.assert_close(embedding(x, SEQUENCES), embedding.elements(x))


def test_sinusoids_are_those_of_the_transformer():
    waves = Waves(7, 6).rows
    for place in range(7):
        for i in range(3):
            angle = place / 10000 ** (2 * i / 6)
            expected = torch.tensor([math.sin(angle), math.cos(angle)])
            torch.testing.assert_close(waves[place, 2 * i : 2 * i + 2], expected)


def test_a_sequence_that_is_too_long_is_named():
    embedding = SequenceEmbedding(8, 20, max_length=5)
    with pytest.raises(ValueError, match="sequence 3 has 6 elements, max_length is 5"):
        embedding(torch.zeros(11, dtype=torch.long), SEQUENCES)
