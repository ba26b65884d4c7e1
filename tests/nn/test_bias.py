"""StructuralBias against its formula, pair by pair."""

import pytest
import torch
from torch import Tensor

from slicegraph.nn import SliceSortConv, StructuralBias
from slicegraph.nn.mixer import MIXERS
from slicegraph.ops.paths import ShortestPaths, shortest_paths

# Graph 0: a path 0-1-2 and, by itself, 3. Graph 1: one node. Graph 2: an edge.
EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 5, 6], [1, 0, 2, 1, 6, 5]])
PTR = torch.tensor([0, 4, 5, 7])
CATEGORIES = torch.tensor([[0, 1], [0, 1], [2, 0], [2, 0], [1, 1], [1, 1]])
FLOATS = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
# The edges along the only path between two nodes of graph 0, by their number in EDGE_INDEX.
PATHS = {(0, 1): [0], (0, 2): [0, 2], (1, 0): [1], (1, 2): [2], (2, 0): [3, 1], (2, 1): [3]}


def encoding(max_distance: int = 254, max_hops: int = 5) -> ShortestPaths:
    return shortest_paths(EDGE_INDEX, PTR, max_distance, max_hops)


def spread_out(module: StructuralBias) -> StructuralBias:
    """Weights of the size of 1, so that a mistake shows."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            generator = torch.Generator().manual_seed(i)
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def edge_vector(bias: StructuralBias, edge: int) -> Tensor:
    paths = bias.path_bias
    assert paths is not None
    if paths.edge_table is None:
        return FLOATS[edge]
    first, second = CATEGORIES[edge].tolist()
    table = paths.edge_table.weight[int(bias.padding_row) :]
    return (table[first] + table[3 + second]) / 2


def graph_zero(bias: StructuralBias, max_hops: int, max_distance: int) -> Tensor:
    """`[4, 4, heads]`: the formula, written out."""
    table, out = bias.distance[int(bias.padding_row) :], torch.zeros(4, 4, bias.heads)
    for i in range(4):
        for j in range(4):
            edges = PATHS.get((i, j), [])
            far = i != j and not edges
            out[i, j] = table[max_distance + 1 if far else min(len(edges), max_distance)]
            for k, edge in enumerate(edges[:max_hops]):
                assert bias.path_bias is not None
                step = edge_vector(bias, edge) @ bias.path_bias.weight[k]
                out[i, j] += step / min(len(edges), max_hops)
    return out


FEATURES = {
    "categories": ({"edge_vocabulary": [3, 2]}, CATEGORIES),
    "floats": ({"edge_dim": 3}, FLOATS),
}


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize(("max_distance", "max_hops"), [(254, 5), (2, 2), (300, 1)])
@torch.no_grad()
def test_every_pair_follows_the_formula(kind, max_distance, max_hops):
    arguments, edge_attr = FEATURES[kind]
    bias = spread_out(StructuralBias(4, max_distance, max_hops, **arguments))
    out = bias(encoding(), PTR, edge_attr).bias
    expected = graph_zero(bias, max_hops, max_distance)
    torch.testing.assert_close(out[0].permute(1, 2, 0), expected)


@torch.no_grad()
def test_without_edge_features_there_are_only_distances():
    bias = spread_out(StructuralBias(4))
    out = bias(encoding(), PTR).bias
    distances = torch.tensor([[0, 1, 2, 255], [1, 0, 1, 255], [2, 1, 0, 255], [255] * 3 + [0]])
    assert torch.equal(out[0], bias.distance[distances].permute(2, 0, 1))


@torch.no_grad()
def test_a_token_is_at_its_own_distance_from_all_rows():
    plain = spread_out(StructuralBias(4, edge_dim=3))
    bias = spread_out(StructuralBias(4, edge_dim=3, token=True))
    bias.load_state_dict(plain.state_dict(), strict=False)
    out, without = bias(encoding(), PTR, FLOATS).bias, plain(encoding(), PTR, FLOATS).bias
    virtual = bias.virtual_distance[0]
    for b, n in enumerate(PTR.diff().tolist()):
        assert torch.equal(out[b, :, 0, : n + 1], virtual.unsqueeze(-1).expand(4, n + 1))
        assert torch.equal(out[b, :, : n + 1, 0], virtual.unsqueeze(-1).expand(4, n + 1))
        assert torch.equal(out[b, :, 1 : n + 1, 1 : n + 1], without[b, :, :n, :n])


@pytest.mark.parametrize("token", [False, True])
@torch.no_grad()
def test_the_weights_of_a_row_add_up_to_one_and_padding_has_none(token):
    pairs = spread_out(StructuralBias(4, token=token))(encoding(), PTR)
    for b, n in enumerate((PTR.diff() + token).tolist()):
        assert bool((pairs.weights[b, :, :n, n:] == 0).all())
        torch.testing.assert_close(pairs.weights[b, :, :n].sum(-1), torch.ones(4, n))
    assert bool(pairs.weights.isfinite().all())


@pytest.mark.parametrize("clip", [3, 254, 509])
@torch.no_grad()
def test_unreachable_is_told_from_far_however_the_encoding_was_clipped(clip):
    bias = spread_out(StructuralBias(4, max_distance=2, max_hops=2, edge_dim=3))
    wanted = bias(encoding(max_distance=2), PTR, FLOATS).bias
    assert torch.equal(bias(encoding(max_distance=clip), PTR, FLOATS).bias, wanted)


@torch.no_grad()
def test_empty_hops_add_the_padding_row_only_where_asked():
    arguments = {"edge_vocabulary": [3, 2], "padding_row": True, "max_hops": 2}
    bias = spread_out(StructuralBias(4, **arguments))
    quirk = StructuralBias(4, **arguments, empty_hops=True)
    quirk.load_state_dict(bias.state_dict())
    plain = bias(encoding(), PTR, CATEGORIES).bias[0].permute(1, 2, 0)
    with_noise = quirk(encoding(), PTR, CATEGORIES).bias[0].permute(1, 2, 0)
    torch.testing.assert_close(plain, graph_zero(bias, 2, 254))
    noise = bias.path_bias.edge_table.weight[0] @ bias.path_bias.weight
    torch.testing.assert_close(with_noise[0, 0], plain[0, 0] + noise[0] + noise[1])
    torch.testing.assert_close(with_noise[0, 1], plain[0, 1] + noise[1])
    torch.testing.assert_close(with_noise[0, 2], plain[0, 2])
    torch.testing.assert_close(with_noise[0, 3], plain[0, 3] + (noise[0] + noise[1]) / 2)


@torch.no_grad()
def test_graphs_without_edges():
    ptr = torch.tensor([0, 2])
    found = shortest_paths(torch.empty(2, 0, dtype=torch.int64), ptr)
    bias = spread_out(StructuralBias(2, edge_vocabulary=[3, 2]))
    out = bias(found, ptr, torch.empty(0, 2, dtype=torch.int64)).bias
    assert torch.equal(out[0].permute(1, 2, 0), bias.distance[torch.tensor([[0, 255], [255, 0]])])


@pytest.mark.parametrize("kind", FEATURES)
def test_gradients(kind):
    arguments, edge_attr = FEATURES[kind]
    bias = spread_out(StructuralBias(2, 3, 2, **arguments, token=True)).double()
    edge_attr = edge_attr.double() if kind == "floats" else edge_attr
    names = [name for name, _ in bias.named_parameters()]

    def weights(*values):
        parameters = dict(zip(names, values, strict=True))
        call = torch.func.functional_call(bias, parameters, (encoding(), PTR, edge_attr))
        return call.weights

    values = [p.detach().requires_grad_() for p in bias.parameters()]
    assert torch.autograd.gradcheck(weights, values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_hops": 6, "max_distance": 5}, "max_hops = 6"),
        ({"edge_dim": 3, "edge_vocabulary": [2]}, "edge_dim = 3"),
        ({"edge_dim": 3, "hop_blocks": 4}, "hop_blocks = 4"),
        ({"edge_dim": 3, "empty_hops": True}, "empty_hops"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        StructuralBias(4, **arguments)


@pytest.mark.parametrize(
    ("hops", "ptr", "edge_attr", "message"),
    [
        (2, PTR, FLOATS, "paths of 2 hops"),
        (5, torch.tensor([0, 7]), FLOATS, "expected 49"),
        (5, PTR, None, "edge_attr is missing"),
        (5, PTR, FLOATS[:, :2], r"edge_attr has shape \[6, 2\]"),
    ],
)
def test_wrong_input_is_named(hops, ptr, edge_attr, message):
    with pytest.raises(ValueError, match=message):
        StructuralBias(4, edge_dim=3)(encoding(max_hops=hops), ptr, edge_attr)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_padding_is_finite_in_the_type_of_the_values(dtype):
    """Half of float32's minimum is -inf in float16, and a row of -inf has no softmax."""
    ptr = torch.tensor([0, 3, 3, 4])  # one graph has no rows
    paths = shortest_paths(torch.tensor([[0, 1], [1, 0]]), ptr)
    pairs = StructuralBias(heads=2)(paths, ptr)
    qkv = torch.randn(4, 24, generator=torch.Generator().manual_seed(0))
    expected = pairs.attend(qkv)
    found = pairs.attend(qkv.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("mixer", ["sort_attn", "qkv"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_layer_in_half_precision_is_near_the_one_in_single(mixer, dtype):
    torch.manual_seed(0)
    conv, batch = SliceSortConv(8, heads=2, mixer=mixer), torch.tensor([0, 0, 0, 1])
    x, edge_index = torch.randn(4, 8), torch.tensor([[0, 1], [1, 2]])
    expected = conv(x, edge_index, batch=batch)
    with torch.autocast("cpu", dtype):
        mixed = conv(x, edge_index, batch=batch)
    half = conv.to(dtype)(x.to(dtype), edge_index, batch=batch)
    for found in (mixed, half):
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("mixer", [name for name, kind in MIXERS.items() if kind.needs_pairs])
def test_pairs_that_do_not_fit_are_named_before_they_are_allocated(mixer):
    x, none = torch.zeros(2_000_000, 1), torch.empty(2, 0, dtype=torch.int64)
    message = (
        r'2,000,000 nodes .* 4,000,000,000,000 pairs, .* need at least [\d,]+ GB.*mixer="sort"'
    )
    with pytest.raises(MemoryError, match=message):
        SliceSortConv(1, mixer=mixer)(x, none)


def test_many_small_graphs_next_to_a_large_one_are_counted_with_their_padding():
    sizes = torch.cat([torch.ones(1_000_000, dtype=torch.int64), torch.tensor([3000])])
    batch = torch.arange(1_000_001).repeat_interleave(sizes)
    x, none = torch.zeros(len(batch), 1), torch.empty(2, 0, dtype=torch.int64)
    with pytest.raises(MemoryError, match="at most 3,000 in a graph"):
        SliceSortConv(1)(x, none, batch=batch)


WALKS = torch.rand(4 * 4 + 1 + 2 * 2, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize("layers", [0, 2])
@torch.no_grad()
def test_walks_are_a_third_term(token, layers):
    bias = spread_out(StructuralBias(4, token=token, walk_length=2, layers=layers)).eval()
    term = bias.walk_bias
    term.norm.running_mean.copy_(torch.tensor([0.1, 0.2]))
    term.norm.running_var.copy_(torch.tensor([2.0, 0.5]))
    pairs = bias(encoding(), PTR, walks=WALKS)
    plain = StructuralBias(4, token=token)
    plain.load_state_dict(bias.state_dict(), strict=False)
    expected = plain(encoding(), PTR).bias
    scaled = (WALKS[:, :2] - term.norm.running_mean) / (term.norm.running_var + 1e-5).sqrt()
    hidden = torch.nn.functional.gelu(scaled @ term.inner.weight.T + term.inner.bias)
    for layer in range(max(1, layers)):
        added = (hidden @ term.outer.weight[4 * layer : 4 * layer + 4].T).split([16, 1, 4])
        found, t = pairs.for_layer(layer), int(token)
        for b, n in enumerate(PTR.diff().tolist()):
            both = expected[b, :, t : n + t, t : n + t] + added[b].view(n, n, 4).permute(2, 0, 1)
            torch.testing.assert_close(found.bias[b, :, t : n + t, t : n + t], both)
        torch.testing.assert_close(found.weights, found.bias.softmax(-1))
    assert layers or pairs.for_layer(1) is pairs


def test_missing_walks_are_an_error():
    bias = StructuralBias(4, walk_length=4)
    for walks, shape in ((None, "None"), (WALKS, r"\[21, 3\]")):
        with pytest.raises(ValueError, match=rf"walks has shape {shape}, expected \[21, 4\]"):
            bias(encoding(), PTR, walks=walks)


@pytest.mark.parametrize("layers", [0, 2])
@torch.no_grad()
def test_a_kernel_is_the_mean_over_the_nodes_weighted_by_the_bias(layers):
    bias = spread_out(StructuralBias(2, walk_length=3, layers=layers, weights="kernel")).eval()
    pairs, values = bias(encoding(), PTR, walks=WALKS).for_layer(0), torch.randn(7, 4)
    for b, (first, last) in enumerate(zip(PTR[:-1].tolist(), PTR[1:].tolist(), strict=True)):
        weights = pairs.bias[b, :, : last - first, : last - first] / (last - first)
        rows = values[first:last].view(-1, 2, 2).transpose(0, 1)
        expected = (weights @ rows).transpose(0, 1).flatten(1)
        torch.testing.assert_close(pairs.mix(values)[first:last], expected)
