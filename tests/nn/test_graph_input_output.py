"""Feature tables, the graph embedding and the readouts."""

import pytest
import torch

from slicegraph.nn import FeatureTable, GraphEmbedding, GraphReadout

FEATURES = torch.tensor([[0, 1], [2, 0], [1, 1]])


@pytest.mark.parametrize("padding_row", [False, True])
def test_a_table_adds_one_row_per_feature(padding_row):
    table = FeatureTable([3, 2], 4, padding_row=padding_row)
    w = table.weight[int(padding_row) :]
    expected = torch.stack([w[0] + w[4], w[2] + w[3], w[1] + w[4]])
    torch.testing.assert_close(table(FEATURES), expected)
    mean = FeatureTable([3, 2], 4, mean=True, padding_row=padding_row)
    mean.load_state_dict(table.state_dict())
    torch.testing.assert_close(mean(FEATURES), expected / 2)


def test_a_padding_row_starts_as_zeros():
    assert bool((FeatureTable([3], 4, padding_row=True).weight[0] == 0).all())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_a_table_takes_any_integer(dtype):
    table = FeatureTable([3, 2], 4)
    assert torch.equal(table(FEATURES.to(dtype)), table(FEATURES))


def test_a_wrong_category_is_named():
    with pytest.raises(ValueError, match=r"features\[1, 0\] = 3 is not in 0..2"):
        FeatureTable([3, 2], 4)(torch.tensor([[0, 1], [3, 0]]))
    with pytest.raises(ValueError, match=r"features\[0, 1\] = -1"):
        FeatureTable([3, 2], 4)(torch.tensor([[0, -1]]))


def test_a_wrong_shape_or_type_is_named():
    with pytest.raises(ValueError, match=r"shape \[3, 1\]"):
        FeatureTable([3, 2], 4)(FEATURES[:, :1])
    with pytest.raises(ValueError, match=r"float32"):
        FeatureTable([3, 2], 4)(FEATURES.float())
    with pytest.raises(ValueError, match=r"vocabulary = \[3, 0\]"):
        FeatureTable([3, 0], 4)


PTR = torch.tensor([0, 2, 2, 3])
IN, OUT = torch.tensor([1, 0, 9]), torch.tensor([0, 1, 2])


def test_a_node_is_its_features_and_its_degrees():
    embedding = GraphEmbedding(4, node_vocabulary=[3, 2], max_degree=2)
    expected = embedding.nodes(FEATURES)
    expected = expected + embedding.in_degree.weight[[1, 0, 2]] + embedding.out_degree.weight[OUT]
    torch.testing.assert_close(embedding(FEATURES, IN, OUT, PTR), expected)


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
    embedding = GraphEmbedding(4, node_dim=3)
    x = torch.randn(3, 3)
    zero = torch.zeros(3, dtype=torch.int64)
    expected = embedding.nodes(x) + embedding.in_degree.weight[0] + embedding.out_degree.weight[0]
    torch.testing.assert_close(embedding(x, zero, zero, PTR), expected)


@pytest.mark.parametrize("arguments", [{}, {"node_vocabulary": [3], "node_dim": 2}])
def test_one_kind_of_node_features_must_be_chosen(arguments):
    with pytest.raises(ValueError, match="expected one of them"):
        GraphEmbedding(4, **arguments)


X = torch.tensor([[1.0, 8.0], [3.0, 4.0], [5.0, 6.0]])


@pytest.mark.parametrize(
    ("readout", "expected"),
    [
        ("mean", [[2.0, 6.0], [0.0, 0.0], [5.0, 6.0]]),
        ("sum", [[4.0, 12.0], [0.0, 0.0], [5.0, 6.0]]),
        ("quantiles", [[1.0, 4.0, 3.0, 8.0], [0.0] * 4, [5.0, 6.0] * 2]),
    ],
)
def test_readouts_of_all_rows(readout, expected):
    module = GraphReadout(2, readout, quantiles=2)
    out = module(X, PTR)
    assert out.tolist() == expected
    assert module.out_channels == out.shape[1]


def test_the_token_readout_takes_the_first_row():
    assert torch.equal(GraphReadout(2)(X, torch.tensor([0, 2, 3])), X[[0, 2]])


def test_an_unknown_readout_is_named():
    with pytest.raises(ValueError, match="'max'"):
        GraphReadout(2, "max")
