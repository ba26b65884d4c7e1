"""LocalBranch against PyG's GINEConv, GatedBranch against its formula, and both on odd graphs."""

import pytest
import torch
from support.multigraphs import edge_tensor
from torch import Tensor
from torch_geometric.nn import GINEConv

from slicegraph.nn import Edges, GatedBranch, LocalBranch
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
def test_equals_the_layer_of_pyg_with_its_gradients(kind, graph):
    branch, x, edges = case(kind, graph)
    torch.nn.init.zeros_(branch.epsilon)
    wanted = [x.requires_grad_(), *branch.inner.parameters()]
    wanted += [] if branch.edge is None else branch.edge.parameters()
    expected = gine(branch)(x, edges.index, edge_vectors(branch, edges))  # resets the weights
    out = branch(x, edges)
    torch.testing.assert_close(out, expected)
    g = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(out, wanted, g), torch.autograd.grad(expected, wanted, g)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_for_each_channel_is_added(kind):
    branch, x, edges = case(kind)
    source, target = edges.index
    messages = torch.relu(x[source] + edge_vectors(branch, edges))
    mixed = (1 + branch.epsilon) * x + torch.zeros_like(x).index_add(0, target, messages)
    expected = branch.outer(torch.relu(branch.inner(mixed)))
    torch.testing.assert_close(branch(x, edges), expected)


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
def test_the_kernel_and_the_reference_agree(kind, graph):
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_edges_receives_no_message(kind):
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


def test_the_same_bits_with_any_number_of_threads():
    torch.manual_seed(0)
    branch = LocalBranch(96, edge_vocabulary=VOCABULARY)
    edges = Edges(torch.randint(400, (2, 4000)), attributes("categorical", 4000))
    x = torch.randn(400, 96, requires_grad=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5, 1):
            torch.set_num_threads(count)
            out = branch(x, edges)
            found.append((out, *torch.autograd.grad(out.sum(), [x, branch.edge.weight])))
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


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_reset(kind):
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


def test_float_edge_features_work_under_autocast():
    branch = LocalBranch(8, edge_dim=3)
    edges = Edges(torch.tensor([[0, 1], [1, 0]]), torch.randn(2, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert branch(torch.randn(2, 8), edges).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_added_to_the_vectors_of_the_edges(kind):
    branch, x, edges = case(kind)
    edges.state = torch.randn(edges.index.shape[1], CHANNELS, dtype=torch.float64)
    source, target = edges.index
    messages = torch.relu(x[source] + edge_vectors(branch, edges) + edges.state)
    mixed = (1 + branch.epsilon) * x + torch.zeros_like(x).index_add(0, target, messages)
    torch.testing.assert_close(branch(x, edges), branch.outer(torch.relu(branch.inner(mixed))))


def gated_case(graph: str = "plain", **options) -> tuple[GatedBranch, Tensor, Edges]:
    torch.manual_seed(0)
    branch = GatedBranch(CHANNELS, **options).double()
    index = edge_tensor(GRAPHS[graph])
    x, state = (torch.randn(n, CHANNELS, dtype=torch.float64) for n in (ROWS, index.shape[1]))
    return branch, x, Edges(index, None, state)


@pytest.mark.parametrize("graph", GRAPHS)
def test_gated_messages_follow_their_formula(graph):
    branch, x, edges = gated_case(graph)
    state, (u, a, b, v) = edges.state, branch.nodes.weight.chunk(4)
    shift = branch.nodes.bias.chunk(4)
    z = torch.zeros_like(state)
    expected = []
    for i in range(ROWS):
        total, gates = torch.zeros(2, CHANNELS, dtype=torch.float64)
        for e, (j, to) in enumerate(edges.index.T.tolist()):
            if to == i:
                z[e] = a @ x[i] + shift[1] + b @ x[j] + shift[2] + branch.edge.weight @ state[e]
                gate = z[e].sigmoid()
                total, gates = total + gate * (v @ x[j] + shift[3]), gates + gate
        expected.append(u @ x[i] + shift[0] + total / (gates + 1e-6))
    torch.testing.assert_close(branch(x, edges), torch.stack(expected))
    torch.testing.assert_close(edges.state, state + torch.relu(branch.edge_norm(z)))


def test_gated_some_rows_and_the_last_layer():
    branch, x, edges = gated_case(update=False)
    state, rows = edges.state, torch.tensor([4, 1])
    torch.testing.assert_close(branch(x, edges, rows), branch(x, edges)[rows])
    assert edges.state is state
    with pytest.raises(ValueError, match="state is missing, expected a vector per edge"):
        branch(x, Edges(edges.index, None))
