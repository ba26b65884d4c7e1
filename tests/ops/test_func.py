"""`torch.func` sees through every operator and layer: grad, jacrev, jacfwd, jvp, hessian, vmap."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

from slicegraph.models import GraphSliceformer
from slicegraph.nn import SliceSort, SliceSortAggregation, SliceSortConv
from slicegraph.nn.mixer import MIXERS
from slicegraph.ops import (
    column_sort,
    edge_sum,
    gather_sum,
    max_exchange,
    pair_mix,
    slice_attention,
)
from slicegraph.ops.pairs import dropout, pair_attention

PTR, LENGTHS = torch.tensor([0, 2, 5]), torch.tensor(3)
DOWN = torch.tensor([True, False, True, False])
EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 4]])
CODES = torch.tensor([[0], [1], [1], [0]])
torch.manual_seed(0)
X, BATCH = torch.randn(5, 4, dtype=torch.float64), torch.randn(3, 5, 4, dtype=torch.float64)
WEIGHTS, TABLE = torch.rand(2, 2, 3, 3).double(), torch.randn(2, 4).double()
BIAS = torch.randn(2, 2, 3, 3).double()
BIAS[0, :, :, 2] = -1e9

FUNCTIONS = {
    "column_sort": lambda x: column_sort(x, return_indices=False),
    "column_sort with indices": lambda x: column_sort(x)[0],
    "column_sort by lengths": lambda x: column_sort(x, LENGTHS, return_indices=False),
    "column_sort by ptr": lambda x: column_sort(x, ptr=PTR, descending=DOWN)[0],
    "max_exchange": max_exchange,
    "max_exchange by ptr": lambda x: max_exchange(x, ptr=PTR),
    "pair_mix of values": lambda x: pair_mix(WEIGHTS, x, PTR),
    "pair_mix of weights": lambda x: pair_mix(WEIGHTS * x.sum(), X, PTR),
    "pair_attention": lambda x: pair_attention(torch.cat([x, x.sin(), x], 1), BIAS, PTR)[0],
    "slice_attention": lambda x: slice_attention(x, x, x, tau=x[0].square() + 0.5),
    "slice_attention by lengths": lambda x: slice_attention(x[:, :2].sin(), x[:, 2:], x, LENGTHS),
    "slice_attention by relu": lambda x: slice_attention(x.sin(), x, x, ptr=PTR, kernel="relu"),
    "edge_sum": lambda x: edge_sum(x, TABLE, CODES, EDGES),
    "gather_sum": lambda x: gather_sum(x, torch.tensor([[0, 1], [2, 2]])),
    "aggregation": lambda x: SliceSortAggregation(3)(x, ptr=PTR),
}


def curved(function):
    """A function whose second derivative is not zero."""
    return lambda x: function(x).sin()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_transform_agrees_with_autograd(name):
    function = curved(FUNCTIONS[name])
    expected = torch.autograd.functional.jacobian(function, X)
    torch.testing.assert_close(jacrev(function)(X), expected)
    torch.testing.assert_close(jacfwd(function)(X), expected)
    scalar = grad(lambda x: function(x).sum())(X)
    torch.testing.assert_close(scalar, expected.flatten(0, -3).sum(0))
    values, tangent = jvp(function, (X,), (X.cos(),))
    torch.testing.assert_close(values, function(X))
    torch.testing.assert_close(tangent, (expected * X.cos()).sum((-2, -1)))
    torch.testing.assert_close(vmap(function)(BATCH), torch.stack([function(x) for x in BATCH]))


@pytest.mark.parametrize("name", ["column_sort", "slice_attention by relu", "pair_attention"])
def test_second_derivatives_agree_with_autograd(name):
    def function(x: Tensor) -> Tensor:
        return curved(FUNCTIONS[name])(x).sum()

    torch.testing.assert_close(hessian(function)(X), torch.autograd.functional.hessian(function, X))


def test_dropout_is_refused_by_vmap_unless_its_randomness_is_chosen():
    function = vmap(lambda x: dropout(x, 0.5))
    with pytest.raises(RuntimeError, match="randomness"):
        function(BATCH)
    same = vmap(lambda x: dropout(x, 0.5), randomness="same")(torch.ones(3, 50, 4))
    assert torch.equal(same[0], same[1])
    other = vmap(lambda x: dropout(x, 0.5), randomness="different")(torch.ones(3, 50, 4))
    assert not torch.equal(other[0], other[1])
    assert set(other.unique().tolist()) == {0.0, 2.0}


def test_sizes_of_a_vmap_are_refused():
    with pytest.raises(RuntimeError, match="vmap"):
        vmap(lambda x, ptr: column_sort(x, ptr=ptr)[0])(BATCH, PTR.expand(3, 3))


def layer_of(name: str) -> tuple[torch.nn.Module, tuple[Tensor, ...], dict[str, Tensor]]:
    """A layer, what it takes besides the rows, and by name."""
    batch = torch.tensor([0, 0, 1, 1, 1])
    if name == "SliceSort":
        return SliceSort(4), (), {"batch": batch}
    if name == "SliceSort masked":
        return SliceSort(4), (torch.tensor([True, False, True, True, False]),), {}
    return SliceSortConv(4, heads=2, mixer=name), (EDGES,), {"batch": batch}


@pytest.mark.parametrize("name", ["SliceSort", "SliceSort masked", *MIXERS])
def test_gradients_per_sample_of_a_layer(name):
    layer, inputs, named = layer_of(name)
    layer.double()
    parameters = dict(layer.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, parameters, (x, *inputs), named).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, BATCH)
    for i, x in enumerate(BATCH):
        leaves = list(parameters.values())
        expected = torch.autograd.grad(loss(parameters, x), leaves, materialize_grads=True)
        for key, value in zip(parameters, expected, strict=True):
            torch.testing.assert_close(found[key][i], value, msg=f"{name}: {key}")
    direction = {key: value.detach().cos() for key, value in parameters.items()}
    slope = jvp(
        lambda p: loss(p, X), ({k: v.detach() for k, v in parameters.items()},), (direction,)
    )
    values = torch.autograd.grad(loss(parameters, X), leaves, materialize_grads=True)
    expected_slope = sum((a * b).sum() for a, b in zip(values, direction.values(), strict=True))
    torch.testing.assert_close(slope[1], expected_slope)


@pytest.mark.parametrize("sizes", [{"node_dim": 4}, {"node_vocabulary": (3, 2)}])
def test_derivatives_of_a_model_by_its_features(sizes):
    tiny = {"num_layers": 2, "channels": 8, "ffn_channels": 8, "heads": 2, **sizes}
    model = GraphSliceformer.from_preset("mini", edge_vocabulary=(2,), **tiny).double().eval()
    x = X if "node_dim" in sizes else BATCH.flatten(0, 1)[:5].repeat(1, 2)[:, :5]

    def function(x: Tensor) -> Tensor:
        return model(x, EDGES, CODES).sum()

    expected = torch.autograd.functional.jacobian(function, x)
    assert expected.abs().max() > 0
    torch.testing.assert_close(grad(function)(x), expected)
    torch.testing.assert_close(jvp(function, (x,), (x.cos(),))[1], (expected * x.cos()).sum())
