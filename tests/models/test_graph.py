"""GraphSliceformer: what it takes, what it gives, and the laws it keeps."""

import pytest
import torch
from models.small_graphs import disconnected_graph, equal_graph, random_graph, renumbered
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE, ToSparseTensor
from torch_geometric.utils import to_undirected

from slicegraph.models import PRESETS, GraphSliceformer, GraphSliceformerConfig, load
from slicegraph.models.graph import preset
from slicegraph.nn import all_pairs
from slicegraph.nn.block import LOCALS
from slicegraph.nn.mixer import ALIGNS, MIXERS
from slicegraph.nn.readout import READOUTS
from slicegraph.nn.slice_sort import ORDERS
from slicegraph.ops.operator import as_on_gpu
from slicegraph.predict.predictor import encoding_of
from slicegraph.testing import assert_padding_invariant, assert_permutation_invariant
from slicegraph.transforms import StructuralEncoding
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

CASES = [
    (name, order, align)
    for name, kind in MIXERS.items()
    for order in (ORDERS if kind.needs_order else ["ascending"])
    for align in (ALIGNS if kind.needs_order else ["rows"])
]
KINDS = {
    "paper": {"local": "none", "readout": "token"},
    "ours": {"local": "gine", "readout": "quantiles"},
}
WALKS = {
    "rwse": {"walk_length": 4, "walk_terms": ("node",)},
    "all": {"walk_length": 4},
    "kernel": {"walk_length": 4, "walk_layers": True, "pair_weights": "kernel"},
    "layers": {"walk_length": 4, "walk_layers": True, "norm": "batch", "head_layers": 3},
}
TINY = {"num_layers": 2, "channels": 16, "ffn_channels": 16, "heads": 2}


def model(name: str = "mini", **overrides) -> GraphSliceformer:
    """A model with weights large enough that the bias and the sort matter."""
    torch.manual_seed(0)
    found = GraphSliceformer.from_preset(name, **overrides).eval()
    matrices = {id(m.weight): m.in_features for m in found.modules() if isinstance(m, Linear)}
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.dim() > 1:
                deviation = 1.2 / matrices.get(id(parameter), 16) ** 0.5
                torch.nn.init.normal_(parameter, std=deviation)
    return found


def some_graphs() -> list[Data]:
    return [*(random_graph(n, seed=n) for n in (7, 1, 4, 12, 2)), disconnected_graph()]


@torch.no_grad()
def run(found: torch.nn.Module, graphs: list[Data]) -> list[Tensor]:
    return list(found(Batch.from_data_list(graphs)))


def assert_the_laws(found: GraphSliceformer, equivariant: bool) -> None:
    """No dependence on companions or, if it is promised, on the numbering; finite gradients."""
    graphs = some_graphs()
    assert_padding_invariant(found, graphs, run, rtol=1e-5, atol=1e-5)
    forwards, backwards = torch.stack(run(found, graphs)), torch.stack(run(found, graphs[::-1]))
    torch.testing.assert_close(backwards.flip(0), forwards, rtol=1e-5, atol=1e-5)
    trees = [random_graph(n, seed=n, extra_edges=0) for n in (7, 4, 12)]
    if equivariant:
        assert_permutation_invariant(found, trees, run, permute=renumbered, rtol=1e-4, atol=1e-5)
    batch = Batch.from_data_list([random_graph(1), disconnected_graph(), equal_graph()])
    found.train()(batch).square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in found.parameters())


@pytest.mark.parametrize(("mixer", "order", "align"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_mixer_keeps_the_laws(mixer, order, align, kind):
    found = model(mixer=mixer, order=order, align=align, **TINY, **KINDS[kind])
    assert_the_laws(found, not MIXERS[mixer].needs_order or align == "pivot")


@pytest.mark.parametrize("mixer", ["quantile_attn", "sort_attn"])
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("local", LOCALS)
def test_every_readout_keeps_the_laws(mixer, readout, local):
    found = model(mixer=mixer, readout=readout, local=local, align="pivot", **TINY)
    empty = Data(
        x=torch.empty(0, 9, dtype=torch.int64),
        edge_index=torch.empty(2, 0).long(),
        edge_attr=torch.empty(0, 3).long(),
    )
    graphs = [random_graph(4, seed=4), empty, random_graph(3, seed=3)]
    with_it, without = run(found, graphs), run(found, graphs[::2])
    torch.testing.assert_close(torch.stack(with_it[::2]), torch.stack(without))
    assert_the_laws(found, equivariant=True)


@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("readout", ["token", "sum"])
@pytest.mark.parametrize("walks", WALKS)
def test_random_walks_keep_the_laws(local, readout, walks):
    found = model(mixer="attn", local=local, readout=readout, **TINY, **WALKS[walks])
    assert_the_laws(found, equivariant=True)


RINGS = {
    "rings": {"mixer": "none", "local": "gine", "norm": "batch", "readout": "sum_mean"},
    "rings, ours": {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"},
    "rings, gated": {"mixer": "qkv", "local": "gated", "readout": "token", "walk_length": 3},
    "rings, no edges": {"mixer": "attn", "local": "gine", "edge_vocabulary": None},
}


@pytest.mark.parametrize("fields", RINGS.values(), ids=RINGS)
def test_rings_keep_the_laws(fields):
    found = model(**TINY, rings=6, **fields)
    assert_the_laws(found, equivariant=True)
    graphs = [equal_graph(), disconnected_graph()]
    assert_permutation_invariant(found, graphs, run, permute=renumbered, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fields", RINGS.values(), ids=RINGS)
@torch.no_grad()
def test_rings_in_the_batch_are_what_the_model_would_add(fields):
    found, batch = model(**TINY, rings=6, **fields), Batch.from_data_list(some_graphs())
    nodes, expected = len(batch.x), found(batch)
    assert len(batch.x) == nodes  # the batch of the caller is as it was
    added = encoding_of(found.config)(Batch.from_data_list(some_graphs()))
    assert len(added.x) > nodes
    torch.testing.assert_close(found(added), expected)
    batch.max_nodes = int(batch.ptr.diff().max())
    with as_on_gpu():
        torch.testing.assert_close(found(batch), expected)


@torch.no_grad()
def test_a_ring_is_seen_that_messages_do_not_tell_from_two():
    """One ring of six and two of three, whose nodes all look the same."""
    two = to_undirected(torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3]]))
    one = equal_graph()
    other = Data(one.x, two, one.edge_attr)
    for rings, same in ((0, True), (6, False)):
        found = model(**TINY, rings=rings, mixer="none", local="gine", readout="mean")
        assert torch.allclose(found(one), found(other)) == same


def test_a_preset_leaves_out_rings_where_graphs_cannot_have_them():
    assert preset("rings").rings == 8
    for fields in ({"node_dim": 4}, {"edge_dim": 2}, {"task_level": "node"}, {"random_walk_pe": 3}):
        assert preset("rings", **fields).rings == 0
    with pytest.raises(ValueError, match="rings = 6 needs categories"):
        preset("rings", rings=6, node_dim=4)


def test_rings_of_float_features_or_in_a_compiled_graph_are_an_error(monkeypatch):
    found = model(**TINY, rings=6)
    with pytest.raises(TypeError, match="the categories of the features"):
        found(Data(torch.rand(3, 9), torch.tensor([[0], [1]]), torch.zeros(1, 3).long()))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="rings cannot be found in a compiled graph; apply RingN"):
        found(equal_graph())


@torch.no_grad()
@pytest.mark.parametrize("mixer", ["quantile", "quantile_attn"])
def test_rings_are_added_to_encoded_batches_and_to_weights_of_categories(mixer):
    found, graphs = model(**TINY, mixer=mixer, rings=6), some_graphs()
    batch = Batch.from_data_list(graphs)
    expected = found(batch)
    encoded = StructuralEncoding()(Batch.from_data_list(graphs))
    torch.testing.assert_close(found(encoded), expected)
    assert "pair_distance" in encoded  # the batch of the caller is as it was
    weights = found.one_hot(batch.x)
    assert weights.shape[1] == sum(found.config.node_vocabulary) + 6 - 2
    out = found(weights, batch.edge_index, batch.edge_attr, batch=batch.batch)
    torch.testing.assert_close(out, expected)


def test_walks_tell_graphs_apart_that_messages_do_not():
    """Decalin and bicyclopentyl: two rings of six that share an edge, two of five with a bond."""
    decalin = [*((i, (i + 1) % 10) for i in range(10)), (0, 5)]
    bicyclopentyl = [(r + i, r + (i + 1) % 5) for r in (0, 5) for i in range(5)] + [(0, 5)]
    graphs = []
    for bonds in (decalin, bicyclopentyl):
        index = torch.tensor(bonds + [(j, i) for i, j in bonds]).T
        x, edge_attr = torch.zeros(10, 9).long(), torch.zeros(index.shape[1], 3).long()
        graphs.append(Data(x=x, edge_index=index, edge_attr=edge_attr))
    pairs = {"mixer": "attn", "max_distance": 1, "max_hops": 0}  # every other node is at 1
    fields = {**pairs, "local": "gine", "readout": "sum", **TINY}
    one, other = run(model(**fields), graphs)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    one, other = run(model(**fields, walk_length=6), graphs)  # five steps around a ring of five
    assert not torch.allclose(one, other, atol=1e-3)


def test_attention_treats_equal_nodes_alike():
    found = model(mixer="quantile_attn", **TINY)
    assert_permutation_invariant(
        found, [equal_graph()], run, permute=renumbered, rtol=1e-4, atol=1e-5
    )


def test_rows_depend_on_the_numbering():
    tree = random_graph(7, seed=7, extra_edges=0)
    found = model(mixer="sort_attn", align="rows", **TINY)
    before, after = run(found, [tree]), run(found, [renumbered(tree, torch.arange(7).flip(0))])
    assert not torch.allclose(before[0], after[0], atol=1e-3)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_preset_depends_on_companions(name):
    """At the depth of the preset; of the wide ones, two layers are enough to see it."""
    layers = {} if PRESETS[name]["channels"] < 512 else {"num_layers": 2}
    assert_padding_invariant(model(name, **layers), some_graphs(), run, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mixer", MIXERS)
@torch.no_grad()
def test_an_encoding_in_the_batch_is_what_the_model_would_compute(mixer):
    found, graphs = model(mixer=mixer, **TINY), some_graphs()
    expected = found(Batch.from_data_list(graphs))
    transform = StructuralEncoding()
    whole = transform(Batch.from_data_list(graphs))
    single = Batch.from_data_list([transform(g.clone()) for g in graphs])
    loaded = next(iter(DataLoader([transform(g.clone()) for g in graphs], batch_size=6)))
    for batch in (whole, single, loaded):
        torch.testing.assert_close(found(batch), expected)


@torch.no_grad()
@torch.no_grad()
def test_walks_in_the_batch_are_what_the_model_would_compute():
    found = model(mixer="attn", local="gine", **TINY, walk_length=4)
    batch = Batch.from_data_list(some_graphs())
    expected = found(batch)
    encoded = StructuralEncoding(walk_length=6)(Batch.from_data_list(some_graphs()))
    torch.testing.assert_close(found(encoded), expected)


def test_the_hidden_layers_of_the_head_halve():
    found = model(**TINY, readout="sum", head_layers=3)
    sizes = [(m.in_features, m.out_features) for m in (*found.head_hidden, found.head)]
    assert sizes == [(16, 8), (8, 4), (4, 1)]


def test_linear_layers_begin_as_init_says():
    def first(init: str) -> Tensor:
        torch.manual_seed(0)
        found = GraphSliceformer.from_preset("mini", **TINY, init=init)
        return found.blocks[0].ffn_in.weight.detach()

    assert 0.9 / 16**0.5 < float(first("torch").abs().max()) <= 1 / 16**0.5  # uniform
    assert float(first("graphormer").std()) == pytest.approx(0.02 / 2**0.5, rel=0.2)
    with pytest.raises(ValueError, match="init = 'zeros', expected one of graphormer, torch"):
        first("zeros")


def test_one_graph_needs_no_batch():
    found, graph = model(**TINY), random_graph(5)
    torch.testing.assert_close(found(graph), found(Batch.from_data_list([graph])))


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        ({}, (6, 1)),
        ({"num_targets": 3}, (6, 3)),
        ({"num_targets": 3, "task": "binary"}, (6, 3)),
        ({"num_targets": 3, "task": "multiclass", "num_classes": 4}, (6, 3, 4)),
    ],
)
@torch.no_grad()
def test_the_shape_of_a_prediction(arguments, shape):
    found = model(**TINY, **arguments)
    assert found(Batch.from_data_list(some_graphs())).shape == shape


@pytest.mark.parametrize("local", LOCALS)
def test_float_features(local):
    arguments = {"node_vocabulary": None, "node_dim": 3, "edge_vocabulary": None, "edge_dim": 2}
    found, graph = model(local=local, **TINY, **arguments), random_graph(5)
    graph.x, graph.edge_attr = torch.randn(5, 3), torch.randn(graph.num_edges, 2)
    assert found(graph).shape == (1, 1)
    arguments["edge_dim"], graph.edge_attr = None, None  # no features of edges at all
    assert model(local=local, **TINY, **arguments)(graph).shape == (1, 1)


@pytest.mark.parametrize(("mixer", "order", "align"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(mixer, order, align, kind):
    arguments = {"node_vocabulary": None, "node_dim": 2, "edge_vocabulary": None, "edge_dim": 2}
    tiny = TINY | {"channels": 4, "ffn_channels": 4, "max_distance": 6}
    options = {"mixer": mixer, "order": order, "align": align, **KINDS[kind]}
    found = model(**options, **tiny, **arguments).double()
    graphs = [random_graph(3, seed=3), random_graph(1)]
    for graph in graphs:
        graph.edge_attr = torch.randn(graph.num_edges, 2).double()
    batch = Batch.from_data_list(graphs)

    def predict(x: Tensor) -> Tensor:
        batch.x = x
        return found(batch)

    assert torch.autograd.gradcheck(predict, torch.randn(4, 2).double().requires_grad_())


@pytest.mark.parametrize("mixer", [name for name, kind in MIXERS.items() if kind.needs_softmax])
def test_the_softmax_is_computed_once_for_all_layers(mixer):
    class Count(TorchDispatchMode):
        softmaxes = 0

        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            self.softmaxes += "softmax" in str(function)
            return function(*arguments, **(named or {}))

    found = model(mixer=mixer, **TINY | {"num_layers": 3})
    with Count() as count, torch.no_grad():
        found(Batch.from_data_list(some_graphs()))
    assert count.softmaxes == 1


def test_a_graph_without_edges_has_a_local_branch_too():
    found, alone = model(local="gine", **TINY), random_graph(1)
    assert alone.num_edges == 0
    assert bool(run(found, [alone])[0].isfinite().all())
    alone.edge_index = None
    assert bool(run(found, [alone])[0].isfinite().all())


def test_edges_are_those_between_the_rows_of_their_nodes():
    """A token before every graph moves the rows; the messages are still between neighbours."""
    found, graphs = model(local="gine", readout="token", **TINY), some_graphs()
    seen = {}
    found.blocks[0].local.register_forward_hook(lambda _, inputs, __: seen.update(edges=inputs[1]))
    batch = Batch.from_data_list(graphs)
    found(batch)
    tokens = torch.tensor([0, *(g.num_nodes + 1 for g in graphs)]).cumsum(0)
    rows = torch.cat(
        [t + 1 + torch.arange(g.num_nodes) for t, g in zip(tokens[:-1], graphs, strict=True)]
    )
    assert torch.equal(seen["edges"].index, rows[batch.edge_index])
    assert torch.equal(seen["edges"].attr, batch.edge_attr)


def test_dropout_is_for_training_alone():
    found = model(**TINY, dropout=0.3, attention_dropout=0.3, input_dropout=0.3)
    batch = Batch.from_data_list(some_graphs())
    assert torch.equal(found(batch), found(batch))
    found.train()
    assert not torch.equal(found(batch), found(batch))


def test_an_empty_batch_is_an_error():
    nothing = Data(x=torch.empty(0, 9, dtype=torch.int64), edge_index=torch.empty(2, 0).long())
    for batch in (nothing, Batch.from_data_list([nothing])):
        with pytest.raises(ValueError, match="the batch is empty: 1 graphs with 0 nodes"):
            model(**TINY)(batch)
    with pytest.raises(ValueError, match="the batch has no x"):
        model(**TINY)(Data())


def test_new_weights_are_small_and_padding_is_zero():
    found = GraphSliceformer.from_preset("mini", vocabulary="graphormer", num_layers=4)
    assert bool((found.embedding.nodes.weight[0] == 0).all())
    assert bool((found.structural_bias.distance[0] == 0).all())
    matrix = found.blocks[0].mixer.value_proj.weight
    assert float(matrix.detach().std()) == pytest.approx(0.01, rel=0.1)  # 0.02 / sqrt(4 layers)


def test_the_papers_vocabulary_agrees_with_ours_on_the_same_rows():
    """Only sizes differ: large tables with the rows of a small model make the small model."""
    fields = TINY | {"local": "none"}
    small = model(**fields)
    large = GraphSliceformer.from_preset("mini", vocabulary="graphormer", **fields).eval()
    state = large.state_dict()
    for name, value in small.state_dict().items():
        if value.shape == state[name].shape:
            state[name] = value
    state["structural_bias.distance"][1:256] = small.structural_bias.distance[:255]
    state["structural_bias.distance"][511] = small.structural_bias.distance[255]
    state["structural_bias.path_bias.weight"][:5] = small.structural_bias.path_bias.weight
    for table in ("in_degree", "out_degree"):
        rows = small.state_dict()[f"embedding.{table}.weight"]
        state[f"embedding.{table}.weight"][1 : 1 + len(rows)] = rows
    for name, part in (
        ("embedding.nodes.weight", small.embedding.nodes),
        ("structural_bias.path_bias.edge_table.weight", small.structural_bias.path_bias.edge_table),
    ):
        for column, (size, offset) in enumerate(
            zip(part.vocabulary, part.offsets.tolist(), strict=True)
        ):
            start = 1 + 512 * column
            state[name][start : start + size] = part.weight[offset : offset + size]
    large.load_state_dict(state)
    graphs = some_graphs()
    torch.testing.assert_close(torch.stack(run(large, graphs)), torch.stack(run(small, graphs)))


def test_names_of_classes_and_steps_are_kept_and_counted(tmp_path):
    fields = {"task": "binary", "class_names": ("dead", "alive"), "standardize": ("fragment",)}
    model(**TINY, **fields).save(tmp_path)
    config = load(tmp_path).config
    assert (config.class_names, config.standardize) == (("dead", "alive"), ("fragment",))
    with pytest.raises(ValueError, match="2 class_names for 4 classes"):
        model(**fields | {"task": "multiclass", "num_classes": 4})


# What users of PyG expect beyond a batch of molecules.

FLOATS = {"node_vocabulary": None, "node_dim": 3, "edge_vocabulary": None, **TINY}


@pytest.mark.parametrize("readout", ["token", "quantiles"])
@pytest.mark.parametrize("mixer", ["quantile_attn", "qkv", "sort"])
@torch.no_grad()
def test_a_prediction_for_each_node(readout, mixer):
    options = {"task_level": "node", "readout": readout, "mixer": mixer, "align": "pivot"}
    found = model(**options, num_targets=2, target_mean=(1.0, 2.0), target_std=(2.0, 3.0), **TINY)
    graphs = some_graphs()
    sizes = [graph.num_nodes for graph in graphs]
    out = found(Batch.from_data_list(graphs))
    assert out.shape == (sum(sizes), 2)
    for graph, rows in zip(graphs, out.split(sizes), strict=True):
        torch.testing.assert_close(found(graph), rows, rtol=1e-4, atol=1e-5)
    tree = random_graph(7, extra_edges=0)
    perm = torch.arange(7).flip(0)
    torch.testing.assert_close(found(renumbered(tree, perm)), found(tree)[perm])


@pytest.mark.parametrize("readout", ["token", "mean"])
@pytest.mark.parametrize("mixer", ["quantile_attn", "sort"])
def test_the_masks_of_a_batch_choose_the_nodes_of_each_graph(mixer, readout):
    options = {"task_level": "node", "task": "multiclass", "num_classes": 3, "mixer": mixer}
    found, graphs = model(readout=readout, **options, **TINY), some_graphs()
    for number, graph in enumerate(graphs):
        graph.train_mask = torch.arange(graph.num_nodes) % 2 == number % 2
        graph.y = torch.arange(graph.num_nodes) % 3
    assert not graphs[1].train_mask.any()  # a graph without a node to train on

    def loss(data: Data) -> Tensor:
        scores = found(data).squeeze(1)[data.train_mask]
        return cross_entropy(scores, data.y[data.train_mask], reduction="sum")

    def gradients(parts: list[Data]) -> list[Tensor]:
        found.zero_grad()
        torch.stack([loss(part) for part in parts]).sum().backward()
        return [parameter.grad.clone() for parameter in found.parameters()]

    together = gradients([Batch.from_data_list(graphs)])
    torch.testing.assert_close(together, gradients(graphs), rtol=1e-3, atol=1e-5)


def test_every_node_has_a_gradient_and_classes_of_its_own():
    found = model(task_level="node", task="multiclass", num_classes=4, **TINY).train()
    out = found(Batch.from_data_list(some_graphs()))
    assert out.shape == (32, 1, 4)
    out.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in found.parameters())


@pytest.mark.parametrize("mixer", ["quantile_attn", "sort"])
@torch.no_grad()
def test_plain_tensors_are_the_batch(mixer):
    found, batch = model(mixer=mixer, **TINY), Batch.from_data_list(some_graphs())
    expected = found(batch)
    tensors = (batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(found(*tensors), expected)
    order = torch.randperm(batch.num_edges, generator=torch.Generator().manual_seed(0))
    shuffled = (batch.x, batch.edge_index[:, order], batch.edge_attr[order], batch.batch)
    if mixer == "sort":  # the order of edges chooses between equally short paths
        torch.testing.assert_close(found(*shuffled), expected)
    assert found(*shuffled).shape == expected.shape
    graph = random_graph(5)
    one = found(graph.x, graph.edge_index, edge_attr=graph.edge_attr)
    torch.testing.assert_close(one, found(graph))


def test_a_wrong_batch_of_plain_tensors_is_named():
    found, graph = model(**TINY), random_graph(3)
    tensors = (graph.x, graph.edge_index, graph.edge_attr)
    with pytest.raises(ValueError, match=r"batch of shape \[2\] with x of shape \[3, \d+\]"):
        found(*tensors, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="batch is not sorted"):
        found(*tensors, torch.tensor([1, 0, 0]))


def test_the_number_of_float_features_is_enough():
    config = GraphSliceformerConfig(node_dim=7, **TINY)
    assert (config.node_vocabulary, config.edge_vocabulary) == (None, None)
    graph = random_graph(5)
    x, edge_index = torch.randn(5, 7), graph.edge_index
    assert GraphSliceformer(config)(x, edge_index).shape == (1, 1)
    assert GraphSliceformer.from_preset("mini", node_dim=7, **TINY)(x, edge_index).shape == (1, 1)
    floats = GraphSliceformerConfig(node_dim=7, edge_dim=2, **TINY)
    edge_attr = torch.randn(edge_index.shape[1], 2)
    assert GraphSliceformer(floats)(x, edge_index, edge_attr).shape == (1, 1)
    bonds = GraphSliceformerConfig(node_dim=7, edge_vocabulary=OGB_BONDS, **TINY)
    assert bonds.edge_vocabulary == OGB_BONDS
    assert GraphSliceformerConfig().node_vocabulary == OGB_ATOMS
    with pytest.raises(ValueError, match="node_vocabulary = 'zinc', expected 'ogb' or numbers"):
        GraphSliceformerConfig(node_vocabulary="zinc")


ENCODINGS = {
    "laplacian_eigenvector_pe": AddLaplacianEigenvectorPE(k=3, is_undirected=True),
    "random_walk_pe": AddRandomWalkPE(walk_length=4),
}


@pytest.mark.parametrize("readout", ["token", "quantiles"])
def test_positional_encodings_of_pyg(readout):
    sizes = {"laplacian_eigenvector_pe": 3, "random_walk_pe": 4}
    found = model(readout=readout, **sizes, **TINY)
    graphs = [random_graph(n, seed=n) for n in (7, 5, 12)]
    for transform in ENCODINGS.values():
        graphs = [transform(graph) for graph in graphs]
    batch = Batch.from_data_list(graphs)
    out = found(batch)
    assert_padding_invariant(found, graphs, run, rtol=1e-5, atol=1e-5)
    named = {name: batch[name] for name in sizes}
    tensors = (batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(found(*tensors, **named), out)
    for name in sizes:
        changed = batch.clone()
        changed[name] = changed[name] + 1
        assert not torch.allclose(found(changed), out)
        del changed[name]
        expected = rf"{name} is missing, expected .*transforms\.Add.*={sizes[name]}\) writes it"
        with pytest.raises(ValueError, match=expected):
            found(changed)
    out.sum().backward()
    assert all(bool(p.grad.any()) for p in found.encodings.parameters())


class Spatial(GraphSliceformer):
    """Nearness in space, as a bias of pairs."""

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__(config)
        self.scale = torch.nn.Parameter(torch.ones(config.heads))

    def pair_values(self, batch: Data, ptr: Tensor) -> Tensor:
        i, j = all_pairs(ptr)
        return -(batch.pos[i] - batch.pos[j]).norm(dim=-1, keepdim=True) * self.scale


@pytest.mark.parametrize("mixer", ["quantile_attn", "qkv"])
@pytest.mark.parametrize("readout", ["token", "quantiles"])
def test_a_pair_bias_of_ones_own(mixer, readout, tmp_path):
    torch.manual_seed(0)
    plain = GraphSliceformer.from_preset("mini", mixer=mixer, readout=readout, **TINY).eval()
    found = Spatial(plain.config).eval()
    found.load_state_dict(plain.state_dict(), strict=False)
    graphs = some_graphs()
    for graph in graphs:
        graph.pos = torch.randn(graph.num_nodes, 3)
    assert_padding_invariant(found, graphs, run, rtol=1e-5, atol=1e-5)
    batch, token = Batch.from_data_list(graphs), int(plain.config.token)
    own, theirs = found.pair_bias(batch).bias, plain.pair_bias(batch).bias
    for b, graph in enumerate(graphs):
        rows = slice(token, token + graph.num_nodes)
        expected = theirs[b, :, rows, rows] - torch.cdist(graph.pos, graph.pos)
        torch.testing.assert_close(own[b, :, rows, rows], expected, rtol=1e-4, atol=1e-4)
    found(batch).sum().backward()
    assert bool(found.scale.grad.any())
    found.save(tmp_path)
    loaded = load(tmp_path, choose=lambda _: Spatial)
    assert torch.equal(loaded(batch), found(batch))


def test_a_pair_bias_of_another_size_is_named():
    class Wrong(GraphSliceformer):
        def pair_values(self, batch: Data, ptr: Tensor) -> Tensor:
            return torch.zeros(3, 2)

    found = Wrong(model(**TINY).config)
    with pytest.raises(ValueError, match=r"values has shape \[3, 2\], expected \[25, 2\]"):
        found(random_graph(5))


def test_all_pairs_are_in_the_order_of_the_distances():
    i, j = all_pairs(torch.tensor([0, 2, 2, 5]))
    assert i.tolist() == [0, 0, 1, 1, *[2] * 3, *[3] * 3, *[4] * 3]
    assert j.tolist() == [0, 1, 0, 1, *[2, 3, 4] * 3]


@torch.no_grad()
def test_one_hot_categories_are_the_categories():
    for name in ("mini", "graphormer-slim"):
        found = GraphSliceformer.from_preset(name, "graphormer", **TINY).eval()
        graph = random_graph(6)
        x = found.one_hot(graph.x)
        assert x.shape == (6, 512 * 9)
        assert x.sum() == 6 * 9
        out = found(x, graph.edge_index, graph.edge_attr)
        torch.testing.assert_close(out, found(graph))
    floats = model(**FLOATS)
    x = torch.randn(5, 3)
    assert floats.one_hot(x) is x


ALGORITHMS = {
    "GNNExplainer": lambda: GNNExplainer(epochs=3),
    "Saliency": lambda: CaptumExplainer("Saliency"),
    "IntegratedGradients": lambda: CaptumExplainer("IntegratedGradients", n_steps=4),
}


@pytest.mark.parametrize(
    ("edges", "edge_attr", "message"),
    [
        ({}, torch.zeros(4).long(), r"int64 of shape \[4\], expected \[E, F\]; .* batch=batch"),
        ({"edge_vocabulary": (1,)}, torch.zeros(4).long(), r"expected \[E, F\]; .* batch=batch"),
        ({}, torch.zeros(4, 2), r"float32 of shape \[4, 2\], and .* neither edge_dim nor"),
    ],
)
def test_a_tensor_in_place_of_the_edge_features_is_not_ignored(edges, edge_attr, message):
    found = model(node_dim=3, **edges, **TINY)
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])  # as many edges as nodes
    with pytest.raises(ValueError, match=message):
        found(torch.randn(4, 3), edge_index, edge_attr)


GRAPH = Data(x=torch.randn(2, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize(
    ("arguments", "named", "error", "message"),
    [
        (([GRAPH],), {}, TypeError, "the batch is a list, .* Batch.from_data_list"),
        ((HeteroData(),), {}, TypeError, "the batch is a HeteroData, expected a Data or Batch"),
        ((GRAPH, GRAPH.edge_index), {}, ValueError, "x is a Data, expected no further arguments"),
        ((ToSparseTensor()(GRAPH.clone()),), {}, ValueError, "adj_t and no edge_index"),
        ((GRAPH.x, torch.eye(2).to_sparse_csr()), {}, ValueError, "sparse adjacency matrix"),
        (
            (GRAPH.x, GRAPH.edge_index),
            {"edge_weight": torch.ones(2)},
            ValueError,
            "weights are edge features: .*edge_dim=1",
        ),
        (
            (GRAPH.x, GRAPH.edge_index),
            {"batch": torch.zeros(2)},
            TypeError,
            r"batch is torch\.float32, expected int64",
        ),
    ],
)
def test_input_that_would_be_ignored_is_named(arguments, named, error, message):
    with pytest.raises(error, match=message):
        model(node_dim=3, **TINY)(*arguments, **named)


@pytest.mark.parametrize("rows", [1, 3])
def test_edge_features_of_other_edges_are_named(rows):
    message = rf"edge_attr has shape \[{rows}, 2\], expected a row for each of the 2 edges"
    with pytest.raises(ValueError, match=message):
        model(node_dim=3, edge_dim=2, **TINY)(GRAPH.x, GRAPH.edge_index, torch.randn(rows, 2))


@pytest.mark.parametrize("x", [torch.randn(4, 2), torch.zeros(4, 3).long(), torch.randn(4)])
def test_float_features_of_another_size_or_type_are_named(x):
    with pytest.raises(ValueError, match=r"expected floats of shape \[T, 3\], as node_dim = 3"):
        model(node_dim=3, **TINY)(x, torch.tensor([[0, 1], [1, 0]]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("features", ["molecules", "floats"])
@pytest.mark.parametrize("level", ["graph", "node"])
def test_pygs_explainer_finds_the_nodes(algorithm, features, level):
    if algorithm != "GNNExplainer":
        pytest.importorskip("captum")
    found = model(task_level=level, **(TINY if features == "molecules" else FLOATS))
    graph = random_graph(6)
    if features == "floats":
        graph.x, graph.edge_attr = torch.randn(6, 3), None
    explainer = Explainer(
        found,
        ALGORITHMS[algorithm](),
        explanation_type="model",
        node_mask_type="attributes",
        model_config={"mode": "regression", "task_level": level, "return_type": "raw"},
    )
    x = found.one_hot(graph.x)
    index = 2 if level == "node" else None
    explanation = explainer(x, graph.edge_index, edge_attr=graph.edge_attr, index=index)
    assert explanation.node_mask.shape == x.shape
    assert bool(explanation.node_mask.isfinite().all())
    assert bool(explanation.node_mask.any())
