"""LocalBranch against PyG's GINEConv, and what it does where there is little to hear."""

import pytest
import torch
from support.multigraphs import edge_tensor
from torch import Tensor
from torch_geometric.nn import GINEConv

from slicegraph.nn import Edges, EncoderBlock, LocalBranch, Mixer
from slicegraph.ops import use_backend

CHANNELS, ROWS = 6, 5
VOCABULARY = [3, 4]
KINDS = {
    "categorical": {"edge_vocabulary": VOCABULARY},
    "float": {"edge_dim": 2},
    "none": {},
}
GRAPHS = {
    "plain": [(0, 1), (1, 0), (1, 2), (3, 4), (4, 0)],
    "parallel": [(0, 1), (0, 1), (0, 1), (2, 1)],
    "self loops": [(0, 0), (1, 1), (1, 1), (0, 1)],
    "no edges": [],
}


def attributes(kind: str, count: int) -> Tensor | None:
    if kind == "categorical":
        return torch.stack([torch.randint(size, (count,)) for size in VOCABULARY], 1)
    return torch.randn(count, 2, dtype=torch.float64) if kind == "float" else None


def case(kind: str, graph: str = "plain") -> tuple[LocalBranch, Tensor, Edges]:
    """A branch with random weights, and something to run it on."""
    torch.manual_seed(0)
    branch = LocalBranch(CHANNELS, **KINDS[kind]).double()
    for parameter in branch.parameters():
        torch.nn.init.normal_(parameter)
    index = edge_tensor(GRAPHS[graph])
    x = torch.randn(ROWS, CHANNELS, dtype=torch.float64)
    return branch, x, Edges(index, attributes(kind, index.shape[1]))


def edge_vectors(branch: LocalBranch, edges: Edges) -> Tensor:
    """The vector of each edge, by indexing and matrix products."""
    if edges.attr is None:
        return torch.zeros(edges.index.shape[1], CHANNELS, dtype=torch.float64)
    if edges.attr.is_floating_point():
        return edges.attr @ branch.edge.weight.T + branch.edge.bias
    first, second = branch.edge.weight.split(VOCABULARY)
    return first[edges.attr[:, 0]] + second[edges.attr[:, 1]]


def gine(branch: LocalBranch) -> GINEConv:
    return GINEConv(torch.nn.Sequential(branch.inner, torch.nn.ReLU(), branch.outer))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_equals_the_layer_of_pyg(kind, graph):
    branch, x, edges = case(kind, graph)
    torch.nn.init.zeros_(branch.epsilon)
    expected = gine(branch)(x, edges.index, edge_vectors(branch, edges))
    torch.testing.assert_close(branch(x, edges), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_for_each_channel_is_added(kind):
    branch, x, edges = case(kind)
    source, target = edges.index
    heard = torch.relu(x[source] + edge_vectors(branch, edges))
    mixed = (1 + branch.epsilon) * x + torch.zeros_like(x).index_add(0, target, heard)
    expected = branch.outer(torch.relu(branch.inner(mixed)))
    torch.testing.assert_close(branch(x, edges), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_gradients_are_those_of_the_formula(kind, graph):
    branch, x, edges = case(kind, graph)
    torch.nn.init.zeros_(branch.epsilon)
    wanted = [x.requires_grad_(), *branch.inner.parameters()]
    if branch.edge is not None:
        wanted += branch.edge.parameters()
    expected = gine(branch)(x, edges.index, edge_vectors(branch, edges))
    g = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(branch(x, edges), wanted, g),
        torch.autograd.grad(expected, wanted, g),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    branch, x, edges = case(kind)
    parameters = dict(branch.named_parameters())

    def call(x, *values):
        weights = dict(zip(parameters, values, strict=True))
        return torch.func.functional_call(branch, weights, (x, edges))

    assert torch.autograd.gradcheck(call, (x.requires_grad_(), *parameters.values()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_kernel_and_pygs_scatter_agree(kind, graph):
    branch, x, edges = case(kind, graph)
    wanted = [x.requires_grad_(), *branch.parameters()]

    def compute():
        out = branch(x, edges)
        return out, *torch.autograd.grad(out.square().sum(), wanted)

    with use_backend("reference"):
        expected = compute()
    torch.testing.assert_close(compute(), expected)


def test_second_gradients():
    branch, x, edges = case("float")
    assert torch.autograd.gradgradcheck(lambda x: branch(x, edges).square(), x.requires_grad_())


def test_gradient_with_respect_to_float_edge_features():
    branch, x, edges = case("float")
    attr = edges.attr.requires_grad_()
    assert torch.autograd.gradcheck(lambda attr: branch(x, Edges(edges.index, attr)), attr)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_edges_hears_of_itself_only(kind):
    branch, x, _ = case(kind)
    index = edge_tensor([(0, 1), (1, 0), (2, 0)])
    out = branch(x, Edges(index, attributes(kind, 3)))
    alone = branch(x[2:], Edges(edge_tensor([]), attributes(kind, 0)))
    torch.testing.assert_close(out[2:], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_some_rows_are_those_of_all_and_so_are_their_gradients(kind):
    branch, x, edges = case(kind)
    rows, wanted = torch.tensor([4, 1]), [x.requires_grad_(), *branch.parameters()]
    some, expected = branch(x, edges, rows), branch(x, edges)[rows]
    torch.testing.assert_close(some, expected)
    torch.testing.assert_close(
        torch.autograd.grad(some.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_edges_does_not_matter(kind):
    branch, x, edges = case(kind)
    attr = None if edges.attr is None else edges.attr.flip(0)
    torch.testing.assert_close(branch(x, Edges(edges.index.flip(1), attr)), branch(x, edges))


def test_the_same_bits_with_any_number_of_threads():
    torch.manual_seed(0)
    branch = LocalBranch(96, edge_vocabulary=VOCABULARY)
    edges = Edges(torch.randint(400, (2, 4000)), attributes("categorical", 4000))
    x = torch.randn(400, 96, requires_grad=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5, 1):
            torch.set_num_threads(count)
            heard = branch._messages(x, edges)
            found.append((heard, *torch.autograd.grad(heard.sum(), [x, branch.edge.weight])))
    finally:
        torch.set_num_threads(threads)
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, found[0], strict=True))


def test_half_precision_is_close_to_single():
    branch, x, edges = case("categorical")
    expected = branch(x, edges).float()
    out = branch.bfloat16()(x.bfloat16(), edges)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.5)


def test_compiles_to_one_graph_with_gradients():
    branch, x, edges = case("categorical")
    compiled = torch.compile(branch, fullgraph=True, dynamic=True, backend="aot_eager")
    for graph in ("plain", "parallel"):
        _, _, edges = case("categorical", graph)
        out, expected = compiled(x, edges), branch(x, edges)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(
            torch.autograd.grad(out.sum(), branch.edge.weight),
            torch.autograd.grad(expected.sum(), branch.edge.weight),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_drawn_anew(kind):
    branch, _, _ = case(kind)
    before = {name: p.detach().clone() for name, p in branch.named_parameters()}
    branch.reset_parameters()
    assert bool((branch.epsilon == 0).all())
    assert not any(torch.equal(p, before[name]) for name, p in branch.named_parameters())


@pytest.mark.parametrize("kind", ["categorical", "float"])
def test_missing_edge_features_are_an_error(kind):
    branch, x, edges = case(kind)
    with pytest.raises(ValueError, match="edge_attr is missing, expected edge features"):
        branch(x, Edges(edges.index, None))


def test_a_block_with_a_local_branch_needs_edges():
    block = EncoderBlock(Mixer(8, mixer="sort"), 8, local=LocalBranch(8))
    with pytest.raises(ValueError, match="a block with a local branch needs edges"):
        block(torch.randn(3, 8), torch.tensor([0, 3]))


@pytest.mark.parametrize("post_norm", [False, True])
def test_a_block_adds_what_the_branch_says_to_the_mix(post_norm):
    torch.manual_seed(0)
    x, ptr = torch.randn(ROWS, 8), torch.tensor([0, 3, ROWS])
    edges = Edges(edge_tensor(GRAPHS["self loops"]), None)
    block = EncoderBlock(Mixer(8, mixer="sort"), 8, post_norm=post_norm, local=LocalBranch(8))
    read = x if post_norm else block.mixer_norm(x)
    y = x + block.mixer(read, ptr) + block.local(read, edges)
    y = block.mixer_norm(y) if post_norm else y
    inner = block.ffn_in(y if post_norm else block.ffn_norm(y))
    y = y + block.ffn_out(torch.nn.functional.gelu(inner))
    expected = block.ffn_norm(y) if post_norm else y
    torch.testing.assert_close(block(x, ptr, edges=edges), expected)
