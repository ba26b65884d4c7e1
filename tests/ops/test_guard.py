"""Only plain tensors reach C++: others are unwrapped, handled by torch, or refused."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map
from torch_geometric import EdgeIndex, Index
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer
from slicegraph.nn import Edges, LocalBranch, SliceSort, SliceSortConv
from slicegraph.ops import (
    column_sort,
    cpu,
    edge_sum,
    gather_sum,
    max_exchange,
    pair_mix,
    rings,
    shortest_paths,
    slice_attention,
)
from slicegraph.ops.pairs import dropout, pair_attention
from slicegraph.ops.paths import ShortestPaths, structural_bias
from slicegraph.transforms import StructuralEncoding

PTR = torch.tensor([0, 2, 5])
EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 4]])
RING = torch.tensor([[0, 2, 3, 4], [1, 3, 4, 2]])
PATHS = shortest_paths(EDGES, PTR, max_distance=6, max_hops=2)
GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def padded_bias() -> Tensor:
    """A bias that is far below all others beyond the rows of the first set."""
    bias = numbers(2, 2, 3, 3)
    bias[0, :, :, 2] = -1e9
    return bias


def bias_of_pairs(table, products, distance, path, edge_ptr, ptr) -> Tensor:
    encoding = ShortestPaths(distance, path, PATHS.pair_ptr, edge_ptr)
    return structural_bias(table, products, encoding, ptr, length=3, max_distance=6)


def seeded_dropout(x: Any) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return dropout(x, 0.5)


OPERATORS: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "column_sort": (column_sort, [numbers(2, 3, 4), torch.tensor([2, 3])]),
    "column_sort packed": (lambda x, ptr: column_sort(x, ptr=ptr), [numbers(5, 4), PTR]),
    "column_sort by channel": (
        lambda x, down: column_sort(x, descending=down),
        [numbers(5, 2), torch.tensor([True, False])],
    ),
    "max_exchange": (lambda x, ptr: max_exchange(x, ptr=ptr), [numbers(5, 4), PTR]),
    "pair_mix": (pair_mix, [numbers(2, 2, 3, 3), numbers(5, 4), PTR]),
    "pair_attention": (
        lambda *tensors: pair_attention(*tensors)[0],
        [numbers(5, 12), padded_bias(), PTR],
    ),
    "edge_sum": (
        edge_sum,
        [numbers(5, 4), numbers(2, 4), torch.tensor([[0], [1], [1], [0]]), EDGES],
    ),
    "gather_sum": (gather_sum, [numbers(3, 4), torch.tensor([[0, 1], [2, 2]])]),
    "shortest_paths": (lambda *tensors: shortest_paths(*tensors, 6, 2), [EDGES, PTR]),
    "rings": (lambda *tensors: rings(*tensors, 6).nodes, [RING, PTR]),
    "structural_bias": (
        bias_of_pairs,
        [numbers(8, 2), numbers(4, 2, 2), PATHS.distance, PATHS.path, PATHS.edge_ptr, PTR],
    ),
    "slice_attention": (
        lambda q, k, v, tau, lengths: slice_attention(q, k, v, lengths, tau=tau),
        [
            *(numbers(2, 3, 2), numbers(2, 3, 2), numbers(2, 3, 4)),
            torch.ones(2),
            torch.tensor([2, 3]),
        ],
    ),
    "slice_attention packed": (
        lambda q, k, v, ptr: slice_attention(q, k, v, ptr=ptr),
        [numbers(5, 2), numbers(5, 2), numbers(5, 4), PTR],
    ),
    "slice_attention by relu": (
        lambda q, k, v: slice_attention(q, k, v, kernel="relu"),
        [numbers(5, 2), numbers(5, 2), numbers(5, 4)],
    ),
    "dropout": (seeded_dropout, [numbers(5, 4)]),
}
ARGUMENTS = [(name, i) for name, (_, tensors) in OPERATORS.items() for i in range(len(tensors))]


class Named(Tensor):
    """A subclass with memory of its own, which only adds something to look at."""


class Wrapper(Tensor):
    """A subclass without memory of its own: torch's operators see the tensor inside."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapper":
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.wrapped = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def inside(x: Any) -> Any:
            return x.wrapped if isinstance(x, Wrapper) else x

        return function(*tree_map(inside, args), **tree_map(inside, kwargs or {}))


def fake(x: Tensor) -> Tensor:
    return FakeTensorMode().from_tensor(x)


def negated(x: Tensor) -> Tensor:
    """The same values behind a lazy minus sign, as only floats can be."""
    return torch.complex(x, -x).conj().imag if x.is_floating_point() else x


def quantised(x: Tensor) -> Tensor:
    return torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8)


def zero_stride(x: Tensor) -> Tensor:
    """All rows are the first, without memory of their own."""
    return x[:1].expand(x.shape) if x.dim() > 1 else x


WORKS: dict[str, Callable[[Tensor], Tensor]] = {
    "subclass": lambda x: x.as_subclass(Named),
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "zero stride": zero_stride,
}
REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "sparse COO": Tensor.to_sparse,
    "quantised": quantised,
    "complex conjugate": lambda x: x.to(torch.complex64).conj(),
    "number": lambda x: 3.0,
}
MAY_WORK: dict[str, Callable[[Tensor], Tensor]] = {
    "wrapper": Wrapper,
    "fake": fake,
    "meta": lambda x: x.to("meta"),
    "negated": negated,
}


def call(name: str, position: int, change: Callable[[Tensor], Any]) -> Any:
    function, tensors = OPERATORS[name]
    arguments = [change(x) if i == position else x for i, x in enumerate(tensors)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse and quantised tensors warn
        return function(*arguments)


def tensors_of(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [x for x in result if torch.is_tensor(x)]


def assert_same(found: Any, expected: Any) -> None:
    for a, b in zip(tensors_of(found), tensors_of(expected), strict=True):
        torch.testing.assert_close(a.as_subclass(Tensor), b)


def test_every_operator_with_a_kernel_has_a_case():
    """The others are the gradients and the parts of these."""
    parts = {
        *("column_sort_values", "column_scatter", "column_gather", "exchange_rows"),
        *("slice_attention_backward", "pair_outer", "graph_offsets"),
    }
    assert {name.split()[0] for name in OPERATORS} - {"gather_sum"} == {*cpu.DTYPES} - parts


@pytest.mark.parametrize("kind", WORKS)
@pytest.mark.parametrize(("name", "position"), ARGUMENTS)
def test_what_has_memory_is_read(name, position, kind):
    change = WORKS[kind]
    if kind == "zero stride" and not OPERATORS[name][1][position].is_floating_point():
        pytest.skip("equal indices are other indices")
    expected = call(name, position, lambda x: change(x).as_subclass(Tensor).clone())
    assert_same(call(name, position, change), expected)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(("name", "position"), ARGUMENTS)
def test_what_is_not_a_dense_tensor_of_the_type_is_refused(name, position, kind):
    if (name, position, kind) == ("slice_attention", 3, "number"):
        pytest.skip("tau may be a number")
    with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError)):
        call(name, position, REFUSED[kind])


@pytest.mark.parametrize("kind", MAY_WORK)
@pytest.mark.parametrize(("name", "position"), ARGUMENTS)
def test_what_torch_may_know_is_right_or_refused(name, position, kind):
    try:
        found = call(name, position, MAY_WORK[kind])
    except (TypeError, ValueError, RuntimeError, AssertionError):  # the last by fake tensors
        return
    expected = call(name, position, lambda x: x)
    for a, b in zip(tensors_of(found), tensors_of(expected), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
    if kind in ("wrapper", "negated"):
        assert_same(tree_map(lambda x: getattr(x, "wrapped", x), found), expected)


@pytest.mark.parametrize(("name", "position"), ARGUMENTS)
def test_an_index_of_pyg_is_unwrapped(name, position):
    kind = {1: Index, 2: EdgeIndex}
    x = OPERATORS[name][1][position]
    if x.dtype != torch.int64 or (x.dim() == 2 and x.shape[0] != 2):
        pytest.skip("not an index")
    found = call(name, position, lambda x: kind[x.dim()](x))
    assert_same(found, call(name, position, lambda x: x))


@pytest.mark.skipif(cpu.problem("cpu") is not None, reason=str(cpu.problem("cpu")))
@pytest.mark.parametrize(
    ("ptr", "message"),
    [
        (Wrapper(PTR), "sizes is a Wrapper, expected a plain tensor"),
        (fake(PTR), "sizes is a FakeTensor, expected a plain tensor"),
        (PTR.to("meta"), "sizes is on meta, expected the CPU"),
        (PTR.double(), "sizes is torch.float64, expected torch.int32 or torch.int64"),
    ],
)
def test_the_guard_names_the_argument(ptr, message):
    with pytest.raises((TypeError, ValueError), match=f"column_sort: {message}"):
        cpu.column_sort(numbers(5, 4), None, ptr, None, False, 8)


def test_outputs_are_on_the_cpu_whatever_the_default_device():
    with torch.device("meta"):
        found = shortest_paths(EDGES, PTR, 6, 2)
        mixed = pair_mix(torch.ones(2, 2, 3, 3, device="cpu"), torch.ones(5, 4, device="cpu"), PTR)
    assert_same(found, PATHS)
    assert mixed.is_cpu


# The layers, as in the report of the crash.

GRAPH = Data(x=numbers(3, 8), edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=3)


def wrapped(data: Data) -> Data:
    data = data.clone()
    data.edge_index = EdgeIndex(data.edge_index)
    return data


@pytest.mark.parametrize("mixer", ["sort", "quantile_attn", "qkv"])
def test_a_conv_takes_an_edge_index_and_an_index(mixer):
    conv, batch = SliceSortConv(8, mixer=mixer), torch.tensor([0, 0, 1])
    expected = conv(GRAPH.x, GRAPH.edge_index, batch=batch)
    found = conv(GRAPH.x, EdgeIndex(GRAPH.edge_index), batch=Index(batch))
    assert torch.equal(found, expected)


def test_a_layer_of_sets_takes_an_index():
    layer, batch = SliceSort(8), torch.tensor([0, 0, 1])
    assert torch.equal(layer(GRAPH.x, batch=Index(batch)), layer(GRAPH.x, batch=batch))


def test_the_transform_takes_an_edge_index():
    found, expected = StructuralEncoding()(wrapped(GRAPH)), StructuralEncoding()(GRAPH.clone())
    for name in ("pair_distance", "pair_path", "in_degree", "out_degree"):
        assert torch.equal(found[name], expected[name])


def test_the_local_branch_takes_an_edge_index():
    branch = LocalBranch(8)
    found = branch(GRAPH.x, Edges(EdgeIndex(GRAPH.edge_index), None))
    assert torch.equal(found, branch(GRAPH.x, Edges(GRAPH.edge_index, None)))


@pytest.mark.parametrize("preset", ["mini", "graphormer-slim", "sliceformer-slim"])
def test_the_model_takes_an_edge_index(preset):
    options = {"node_vocabulary": None, "node_dim": 8, "edge_vocabulary": None, "local": "gine"}
    model = GraphSliceformer.from_preset(preset, num_layers=1, **options).eval()
    plain = Batch.from_data_list([GRAPH, GRAPH])
    expected = model(plain)
    assert torch.equal(model(wrapped(plain)), expected)
    assert torch.equal(model(StructuralEncoding()(wrapped(plain))), expected)
