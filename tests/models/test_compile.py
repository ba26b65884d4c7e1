"""Every layer and model as one compiled or exported graph, whatever the sizes of its batches."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from models.small_graphs import random_graph
from models.test_gpu_path import KINDS, encoded, graph_model, outcome
from support.traced_models import image_model, images, sequence_model
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv

from slicegraph.models import GraphSliceformer
from slicegraph.nn import (
    GPSLayer,
    MultiheadSliceSort,
    SliceAttention,
    SliceAttention2d,
    SliceSort,
    SliceSort2d,
    SliceSortAggregation,
    SliceSortAttention,
    SliceSortConv,
    TokenSliceSort,
)
from slicegraph.nn.mixer import SEQUENCE_MIXERS
from slicegraph.ops import shortest_paths
from slicegraph.ops.operator import as_on_gpu

SHAPES = ((3, 5), (2, 7), (4, 6), (5, 3), (6, 9))
BATCHES = ((5, 9, 1), (4, 8), (12, 3, 3, 2), (6, 6, 6, 6, 2), (11, 2))
C = 4


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Counting:
    """A backend that counts the graphs it is given, and runs them."""

    def __init__(self, backend: str = "eager") -> None:
        self.backend, self.graphs = backend, 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        if self.backend == "eager":
            return graph.forward
        return torch._dynamo.lookup_backend(self.backend)(graph, inputs)


def assert_one_graph(
    model: torch.nn.Module, batches: list[tuple[Any, ...]], backend: str = "eager"
) -> None:
    """Without a break, forward and backward, and compiled at most twice."""
    counting = Counting(backend)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counting)
    for batch in batches:
        torch.testing.assert_close(outcome(compiled, *batch), outcome(model, *batch))
    assert 1 <= counting.graphs <= 2


def dense(masked: bool = False) -> list[tuple[Any, ...]]:
    found = []
    for sets, rows in SHAPES:
        mask = torch.arange(rows) < torch.arange(1, sets + 1).clamp(max=rows)[:, None]
        found.append((torch.randn(sets, rows, C), mask.flip(1))[: 1 + masked])
    return found


def maps() -> list[tuple[Any, ...]]:
    return [(torch.randn(n, C, h, h + 1),) for n, h in SHAPES]


def packed() -> list[tuple[Any, ...]]:
    """Rows, no mask, and their sets."""
    found = []
    for sets, rows in SHAPES:
        batch = torch.arange(sets).repeat_interleave(torch.arange(1, sets + 1) * rows)
        found.append((torch.randn(len(batch), C), None, batch))
    return found


def graphs(several: bool) -> list[tuple[Any, ...]]:
    """Nodes, edges, no features; and of several graphs their batch and encoding."""
    found = []
    for sizes in BATCHES:
        parts = [random_graph(n, n) for n in (sizes if several else sizes[:1])]
        batch = Batch.from_data_list(parts)
        inputs = (torch.randn(batch.num_nodes, C), batch.edge_index)
        if several:
            inputs += (None, batch.batch, shortest_paths(batch.edge_index, batch.ptr))
        found.append(inputs)
    return found


class Aggregate(torch.nn.Module):
    """The aggregation by numbers of sets that are not sorted, with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.read = torch.nn.Linear(C, C), SliceSortAggregation(3)

    def forward(self, x: Tensor, _: None, batch: Tensor) -> Tensor:
        return self.read(self.linear(x), batch.flip(0), dim_size=9, dim=0)


class SelfAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = MultiheadSliceSort(C, order="max_exchange")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.inner(x, x, x, key_padding_mask=~mask)[0]


class Gps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = GPSLayer(C, GINEConv(torch.nn.Linear(C, C), edge_dim=C), norm="layer_norm")

    def forward(self, x: Tensor, edge_index: Tensor, _: None, batch: Tensor, __: Any) -> Tensor:
        return self.inner(x, edge_index, batch, edge_attr=x[edge_index[0]])


LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], list[tuple[Any, ...]]]]] = {
    "SliceSort": (lambda: SliceSort(C), dense),
    "SliceSort, mask": (lambda: SliceSort(C, order="interleave"), lambda: dense(True)),
    "SliceSort, batch": (lambda: SliceSort(C, order="max_exchange"), packed),
    "SliceSort2d": (lambda: SliceSort2d(C), maps),
    "SliceAttention": (lambda: SliceAttention(C, queries=True), lambda: dense(True)),
    "SliceAttention, batch": (lambda: SliceAttention(C, kernel="relu"), packed),
    "SliceAttention2d": (lambda: SliceAttention2d(C), maps),
    "SliceSortAggregation": (Aggregate, packed),
    "SliceSortConv": (lambda: SliceSortConv(C, heads=2), lambda: graphs(False)),
    "SliceSortConv, batch": (
        lambda: SliceSortConv(C, heads=2, mixer="sort_attn"),
        lambda: graphs(True),
    ),
    "SliceSortConv, sort": (lambda: SliceSortConv(C, mixer="sort"), lambda: graphs(True)),
    "SliceSortAttention": (lambda: SliceSortAttention(C), lambda: dense(True)),
    "SliceSortAttention, batch": (lambda: SliceSortAttention(C, mixer="sort"), packed),
    "MultiheadSliceSort": (SelfAttention, lambda: dense(True)),
    "TokenSliceSort": (lambda: TokenSliceSort(C), dense),
    "GPSLayer": (Gps, lambda: graphs(True)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_one_graph(name):
    torch.manual_seed(0)
    make, batches = LAYERS[name]
    assert_one_graph(make(), batches())


# Together these have every mixer: "ours" has quantile_attn, "gated" attn and "nodes" sort_attn.
QUICK = ("qkv", "ours", "slice", "gated")
SLOW = ("quantile", "attn_plus_sort", "slice_attn", "sort", "pivot", "walks", "kernel", "nodes")


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
def test_a_graph_model_is_one_graph(kind):
    model = graph_model(**KINDS[kind], num_layers=1).double()
    assert_one_graph(model, [(encoded(sizes),) for sizes in BATCHES])


@pytest.mark.parametrize(("mixer", "towers"), [("sort", 1), ("slice", 1), ("qkv", 1), ("sort", 2)])
def test_a_sequence_model_is_one_graph(mixer, towers):
    model = sequence_model(mixer, readout="cls", num_layers=1, towers=towers).double()
    batches = []
    for sets, rows in SHAPES:
        pairs = (sets,) if towers == 1 else (sets, 2)
        x = torch.randint(1, 16, (*pairs, rows))
        batches.append((x, torch.arange(rows) < torch.randint(1, rows, (*pairs, 1))))
    assert_one_graph(model, batches)


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
def test_an_image_model_is_one_graph(mixer):
    model = image_model(mixer, order="interleave", num_layers=1).double()
    assert_one_graph(model, [(images(n).double(),) for n in range(2, 7)], "aot_eager")


@pytest.mark.slow
def test_inductor_compiles_a_layer_and_its_gradient(monkeypatch):
    # Otherwise it starts processes that import torch, one for each core.
    monkeypatch.setattr("torch._inductor.config.compile_threads", 1)
    assert_one_graph(SliceSort(C, order="interleave"), dense()[:3], "inductor")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "bf16"),
    [
        ("slicegraph-base", True),
        ("graphormer-base", True),
        ("rings", False),
    ],
)
def test_a_preset_trains_as_one_graph(preset, bf16):
    """Its mixer, readout, dropout and recomputation; the other presets differ in size and order.
    In bfloat16 the code of a GPU is compiled, where a layer computes with copies of its weights."""
    torch.manual_seed(0)
    small = {"num_layers": 1, "channels": 8, "ffn_channels": 8, "heads": 2, "max_hops": 3}
    model, counting = GraphSliceformer.from_preset(preset, **small), Counting("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counting)
    with as_on_gpu() if bf16 else nullcontext():
        for sizes in BATCHES:
            batch = encoded(sizes)
            if model.config.ring_nodes is not None:
                graphs = [random_graph(size, size) for size in sizes]
                batch = model.config.ring_nodes(Batch.from_data_list(graphs))
                batch.max_nodes = int(batch.ptr.diff().max())
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                found = outcome(compiled, batch)
            assert all(x.isfinite().all() for x in found)
            assert len(found) == 1 + sum(p.requires_grad for p in model.parameters())
    assert 1 <= counting.graphs <= 2
