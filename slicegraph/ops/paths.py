"""Operators on batches of small graphs: shortest paths, random walks, the pair bias S + E, and sums
along edges.

Graph `b` is the nodes `ptr[b]` to `ptr[b + 1]`; its edges follow one another, in the order of the
graphs, and so do its pairs of nodes, row major.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from slicegraph.ops import reference
from slicegraph.ops.layout import can_read, check_dense, check_index, check_tensor, on_cpu, plain
from slicegraph.ops.operator import fused, implementation, is_transformed

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MAX_DISTANCE = 254  # the largest whose distances, unreachable included, fit a byte


class ShortestPaths(NamedTuple):
    """Graph ``b`` has the pairs ``pair_ptr[b]`` to ``pair_ptr[b + 1]``, row major; the largest has
    ``max_nodes`` nodes, None if that is not known."""

    distance: Tensor
    path: Tensor
    pair_ptr: Tensor
    edge_ptr: Tensor
    max_nodes: int | None = None


def shortest_paths(
    edge_index: Tensor,
    ptr: Tensor,
    max_distance: int = MAX_DISTANCE,
    max_hops: int = 5,
    num_pairs: int | None = None,
) -> ShortestPaths:
    r"""Finds the distance of every pair of nodes of a graph, and the edges of one shortest path.

    These are the structural encodings of `"Do Transformers Really Perform Bad for Graph
    Representation?" <https://arxiv.org/abs/2106.05234>`_ (Graphormer), for a whole batch at once.

    .. math:: d_{ij} = \min \{ k : i = v_0 \to v_1 \to \ldots \to v_k = j \}

    Among equally short paths the one whose node sequence :math:`(v_0, v_1, \ldots, v_k)` is
    lexicographically smallest is taken: every step goes to the lowest-numbered node that lies on a
    shortest path to :math:`j`. Among parallel edges the first is taken. So the nodes of the path
    do not depend on the order of the edges.

    Args:
        edge_index: ``[2, E]``, int64, node numbers of the whole batch. Edges are directed; self
            loops and parallel edges are allowed. The edges of a graph follow one another, in the
            order of the graphs, as in a PyG ``Batch``.
        ptr: ``[B + 1]``, int32 or int64: graph ``b`` is the nodes ``ptr[b]`` to ``ptr[b + 1]``.
        max_distance: longer distances are clipped to this one; at most 32,766.
        max_hops: how many edges of each path to return, from its beginning.
        num_pairs: the number of pairs :math:`P` if it is known; only a compiled graph reads it,
            whose sizes must not depend on values.

    Shapes:
        With :math:`P = \sum_b n_b^2`, pair ``(i, j)`` of graph ``b`` in row
        ``pair_ptr[b] + i * n_b + j``:

        - distance: ``[P]``, 0 from a node to itself, ``max_distance + 1`` where there is no path;
          uint8 if that fits, else int16.
        - path: ``[P, max_hops]``, the numbers of the edges within their graph (the position in
          ``edge_index`` less ``edge_ptr[b]``), -1 after the end of the path and where there is
          none; int16, or int32 if compiled or if a graph has more than 32,767 edges. A path whose
          distance was clipped has its first edges all the same.
        - pair_ptr, edge_ptr: ``[B + 1]``, int64, the first pair and the first edge of each graph.
        - max_nodes: the nodes of the largest graph; None if compiled.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> paths = shortest_paths(edge_index, ptr=torch.tensor([0, 3]), max_hops=2)
        >>> paths.distance.view(3, 3)
        tensor([[0, 1, 2],
                [1, 0, 1],
                [2, 1, 0]], dtype=torch.uint8)
        >>> paths.path.view(3, 3, 2)[0]
        tensor([[-1, -1],
                [ 0, -1],
                [ 0,  2]], dtype=torch.int16)
    """
    name = "shortest_paths"
    edge_index, ptr = _checked_graphs(name, edge_index, ptr)
    check_limits(name, max_distance, max_hops)
    if torch.compiler.is_compiling():
        return ShortestPaths(*_paths_op(edge_index, ptr, max_distance, max_hops, num_pairs))
    pair_ptr, edge_ptr = offsets = _run("graph_offsets", ptr)(edge_index, ptr)
    num_pairs, many = int(pair_ptr[-1]), 1 << 15
    few_edges = int(edge_ptr[-1]) < many or int(edge_ptr.diff().amax()) < many
    distance = ptr.new_empty(num_pairs, dtype=torch.uint8 if max_distance < 255 else torch.int16)
    path = ptr.new_empty(num_pairs, max_hops, dtype=torch.int16 if few_edges else torch.int32)
    _run(name, ptr)(edge_index, ptr, offsets, (distance, path), max_distance)
    largest = int(ptr.diff().max()) if len(ptr) > 1 else 0
    return ShortestPaths(distance, path, pair_ptr, edge_ptr, largest)


def _checked_graphs(name: str, edge_index: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    edge_index, ptr = plain(edge_index), plain(ptr)
    for argument, value in (("edge_index", edge_index), ("ptr", ptr)):
        check_dense(name, argument, value)
        if not value.is_cpu:
            raise ValueError(f"{name}: {argument} is on {value.device}, expected the CPU")
    if edge_index.dtype != torch.int64:
        raise TypeError(f"{name}: edge_index is {edge_index.dtype}, expected int64")
    if ptr.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name}: ptr is {ptr.dtype}, expected int32 or int64")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"{name}: edge_index has shape {list(edge_index.shape)}, expected [2, E]")
    if ptr.dim() != 1 or ptr.numel() == 0:
        raise ValueError(f"{name}: ptr has shape {list(ptr.shape)}, expected [B + 1]")
    return edge_index.contiguous(), ptr.long().contiguous()


def _run(operator: str, ptr: Tensor) -> Any:
    # Inside of `torch.func`, tensors have no memory that a kernel could read.
    return getattr(reference, operator) if is_transformed() else implementation(operator, ptr)


@torch.library.custom_op("slicegraph::shortest_paths", mutates_args=())
def _paths_op(
    edge_index: Tensor, ptr: Tensor, max_distance: int, max_hops: int, num_pairs: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    distance, path, *ptrs = shortest_paths(edge_index, ptr, max_distance, max_hops)[:4]
    return distance, path.int(), ptrs[0].clone(), ptrs[1].clone()


@_paths_op.register_fake
def _(
    edge_index: Tensor, ptr: Tensor, max_distance: int, max_hops: int, num_pairs: int | None
) -> tuple[Tensor, ...]:
    size = _fake_size(num_pairs)
    distance = ptr.new_empty(size, dtype=torch.uint8 if max_distance < 255 else torch.int16)
    path = ptr.new_empty((size, max_hops), dtype=torch.int32)
    return distance, path, ptr.new_empty(ptr.shape), ptr.new_empty(ptr.shape)


def _fake_size(num_pairs: int | None) -> Any:
    return torch.library.get_ctx().new_dynamic_size() if num_pairs is None else num_pairs


class Rings(NamedTuple):
    """Ring ``r`` has the nodes ``nodes[ring_ptr[r]]`` to ``nodes[ring_ptr[r + 1] - 1]``, and graph
    ``b`` the rings ``graph_ptr[b]`` to ``graph_ptr[b + 1]``."""

    nodes: Tensor
    ring_ptr: Tensor
    graph_ptr: Tensor


def rings(edge_index: Tensor, ptr: Tensor, max_length: int) -> Rings:
    r"""Finds the rings of each graph: the cycles without an edge between two of their nodes that
    does not belong to the cycle. Those of molecules are few.

    Args:
        edge_index: ``[2, E]``, int64, as in :func:`shortest_paths`; the direction of an edge, self
            loops and parallel edges do not matter.
        ptr: ``[B + 1]``, int32 or int64, as in :func:`shortest_paths`.
        max_length: the nodes of the longest ring to find, at least 3.

    Shapes:
        For :math:`R` rings with :math:`M` nodes in all, int64:

        - nodes: ``[M]``, by their numbers in the batch, along each ring, from its smallest node
          towards the smaller of the two next to it. The rings of a graph are in ascending order.
        - ring_ptr: ``[R + 1]``, graph_ptr: ``[B + 1]``.

    Example:
        >>> square = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> rings(square, ptr=torch.tensor([0, 4]), max_length=6).nodes
        tensor([0, 1, 2, 3])
    """
    edge_index, ptr = _checked_graphs("rings", edge_index, ptr)
    if max_length < 3:
        raise ValueError(f"rings: max_length = {max_length}, expected at least 3")
    offsets = _run("graph_offsets", ptr)(edge_index, ptr, "rings")
    nodes, lengths, counts = _run("rings", ptr)(edge_index, ptr, offsets, max_length)
    zero = ptr.new_zeros(1)
    return Rings(nodes, *(torch.cat([zero, sizes.cumsum(0)]) for sizes in (lengths, counts)))


_MOST_WALKS = 1 << 24  # values that `random_walks` pads at a time


def random_walks(
    edge_index: Tensor, ptr: Tensor, length: int, num_pairs: int | None = None
) -> Tensor:
    r"""The probabilities that a random walk leads from one node to another, for every pair.

    These are the relative random-walk probabilities (RRWP) of `"Graph Inductive Biases in
    Transformers without Message Passing" <https://arxiv.org/abs/2305.17589>`_ (GRIT).

    .. math:: p_{ij} = [I, M, M^2, \ldots, M^{K-1}]_{ij}, \quad M = D^{-1} A

    where :math:`A_{ij}` counts the edges from i to j and :math:`D` is the out-degree. A walk ends
    at a node without outgoing edges. The diagonal :math:`p_{ii}` is the random-walk structural
    encoding (RWSE), with a 1 in front.

    Args:
        edge_index: ``[2, E]``, int64, node numbers of the whole batch; directed edges.
        ptr: ``[B + 1]``, int64: graph ``b`` is the nodes ``ptr[b]`` to ``ptr[b + 1]``.
        length: how many powers :math:`K` to compute, at least 1.
        num_pairs: as in :func:`shortest_paths`.

    Shapes:
        output: ``[P, length]``, float32, the pairs in the order of :func:`shortest_paths`.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> random_walks(edge_index, ptr=torch.tensor([0, 3]), length=3).view(3, 3, 3)[0]
        tensor([[1.0000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000],
                [0.0000, 0.0000, 0.5000]])
    """
    check_tensor("random_walks", "edge_index", edge_index, torch.int64, [2, "E"])
    check_tensor("random_walks", "ptr", ptr, torch.int64, ["B + 1"])
    if length < 1:
        raise ValueError(f"random_walks: length = {length} must be at least 1")
    if torch.compiler.is_compiling():
        return _walks_op(edge_index, ptr, length, num_pairs)
    sizes = ptr.diff()
    graph = torch.searchsorted(ptr, edge_index[0].contiguous(), right=True) - 1  # of each edge
    out = torch.empty(int(sizes.square().sum()), length, device=ptr.device)
    done = 0
    for first, last in _parts(sizes.tolist(), length):
        inside = (graph >= first) & (graph < last)
        dense = _adjacency(edge_index[:, inside], graph[inside] - first, ptr[first : last + 1])
        step = dense / dense.sum(-1, keepdim=True).clamp(min=1)
        powers = dense.new_empty(length, *dense.shape)
        powers[0] = torch.eye(dense.shape[1], device=ptr.device)
        for k in range(1, length):
            torch.bmm(powers[k - 1], step, out=powers[k])
        real = torch.arange(dense.shape[1], device=ptr.device) < sizes[first:last].unsqueeze(-1)
        places = (real.unsqueeze(-1) & real.unsqueeze(1)).flatten().nonzero().squeeze(-1)
        out[done : done + len(places)] = powers.flatten(1).index_select(1, places).T
        done += len(places)
    return out


@torch.library.custom_op("slicegraph::random_walks", mutates_args=())
def _walks_op(edge_index: Tensor, ptr: Tensor, length: int, num_pairs: int | None) -> Tensor:
    return random_walks(edge_index, ptr, length)


@_walks_op.register_fake
def _(edge_index: Tensor, ptr: Tensor, length: int, num_pairs: int | None) -> Tensor:
    return ptr.new_empty((_fake_size(num_pairs), length), dtype=torch.float32)


def _parts(sizes: list[int], length: int) -> Iterator[tuple[int, int]]:
    """Cut a batch into runs of graphs that fit when padded; one for a batch of molecules."""
    first, largest = 0, 0
    for graph, size in enumerate(sizes):
        largest = max(largest, size)
        if graph > first and (graph + 1 - first) * largest**2 * length > _MOST_WALKS:
            yield first, graph
            first, largest = graph, size
    if sizes:
        yield first, len(sizes)


def _adjacency(edge_index: Tensor, graph: Tensor, ptr: Tensor) -> Tensor:
    """How many edges lead from one node of a graph to another: `[B, n, n]`, float32."""
    sizes = ptr.diff()
    n = int(sizes.max())
    row, column = edge_index - ptr[graph]
    out = torch.zeros(len(sizes) * n * n, device=ptr.device)
    ones = torch.ones(len(graph), device=ptr.device)
    return out.index_add_(0, (graph * n + row) * n + column, ones).view(len(sizes), n, n)


def check_limits(name: str, max_distance: int, max_hops: int) -> None:
    """Raise unless distances fit an int16 and hops can be counted."""
    if not 1 <= max_distance <= 32766:
        raise ValueError(f"{name}: max_distance = {max_distance} is not in 1..32766")
    if max_hops < 0:
        raise ValueError(f"{name}: max_hops = {max_hops} is negative")


def structural_bias(
    table: Tensor,
    products: Tensor,
    encoding: ShortestPaths,
    ptr: Tensor,
    length: int,
    max_distance: int,
    *,
    token: bool = False,
    empty: bool = False,
    padding: float = 0.0,
) -> Tensor:
    r"""The bias S + E of every pair of nodes of a graph, from its distance and its path.

    .. math:: b_{ij} = t_{d_{ij}} + \frac{1}{\max(1, \min(d_{ij}, K))} \sum_{k=1}^{\min(d_{ij}, K)}
        p_{e_k, k}

    where :math:`e_k` is the k-th edge of the path from i to j. On a CPU, in float32 and float64,
    nothing of the size of the paths is stored, forward or backward, and the sums do not depend on
    the number of threads.

    Args:
        table: ``[R, H]``, floating point: the distances 0 to ``max_distance``, then unreachable,
            then the token if there is one.
        products: ``[E, K, H]``, of the same type: the vector of each edge as the k-th of a path.
        encoding: the distances and paths of all pairs, with at least ``K`` hops.
        ptr: ``[B + 1]``, int64, the nodes of each graph.
        length: the rows of each graph in the output, at least those of the largest.
        max_distance: longer distances share the row of this one.
        token: whether each graph has a row more, its first, with the last row of the table for all
            its pairs.
        empty: whether the last row of ``products`` is not an edge, but is added for each hop after
            the end of a path.
        padding: the value where a graph has no row.

    Shapes:
        output: ``[B, H, length, length]``.
    """
    distance, path, _, edge_ptr = map(plain, encoding[:4])
    ptr = plain(ptr)
    name, pairs = "structural_bias", distance.shape[0]
    hops, heads = products.shape[1], table.shape[-1]
    check_tensor(name, "table", table, None, [max_distance + 2 + token, heads])
    check_tensor(name, "products", products, table.dtype, ["E", "K", heads])
    for argument, value in (("distance", distance), ("path", path)):
        if value.dtype not in _INTEGERS:
            raise TypeError(f"{name}: {argument} is {value.dtype}, expected integers")
    check_tensor(name, "path", path, path.dtype, [pairs, max(hops, path.shape[-1])])
    check_tensor(name, "ptr", ptr, torch.int64, ["B + 1"])
    check_tensor(name, "edge_ptr", edge_ptr, torch.int64, [ptr.shape[0]])
    tensors = (table, products, distance, path, ptr, edge_ptr)
    return fused(name, tensors, length, max_distance, token, empty, padding)


def edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    r"""Adds up the messages that each row receives along its edges.

    .. math:: y_i = \sum_{e: j \to i} \mathrm{ReLU} \Big( x_j + \sum_k t_{\mathrm{codes}_{ek}}
        \Big)

    On a CPU, in float32 and float64, nothing of the size of the edges is stored, forward or
    backward, and the sums do not depend on the number of threads.

    Args:
        x: ``[T, C]``, floating point.
        table: ``[R, C]``, of the same type.
        codes: ``[E, K]``, int64, each in ``0..R - 1``. An edge is the sum of these rows; with
            ``K = 0`` it is 0.
        index: ``[2, E]``, int64, source and target, each in ``0..T - 1``.

    Shapes:
        output: like ``x``.

    Example:
        >>> x, table = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [-2.5]])
        >>> edge_sum(x, table, torch.tensor([[0], [1], [1]]), torch.tensor([[0, 1, 2], [2, 2, 2]]))
        tensor([[ 0.0000],
                [ 0.0000],
                [11.5000]])
    """
    codes, index = plain(codes), plain(index)
    edges = index.shape[-1]
    check_tensor("edge_sum", "x", x, None, ["T", "C"])
    check_tensor("edge_sum", "table", table, x.dtype, ["R", x.shape[1]])
    check_tensor("edge_sum", "codes", codes, torch.int64, [edges, "K"])
    check_tensor("edge_sum", "index", index, torch.int64, [2, edges])
    if _sums_by_product(table):
        return reference.edge_sum(x, table, codes, index, _SmallTable.apply)
    return fused("edge_sum", (x, table, codes, index))


def gather_sum(table: Tensor, places: Tensor) -> Tensor:
    r"""Adds up the rows of a table that each entry names.

    .. math:: y_p = \sum_k t_{\mathrm{places}_{pk}}

    Args:
        table: ``[R, C]``, floating point.
        places: ``[P, K]``, int64, each in ``0..R - 1``.

    Shapes:
        output: ``[P, C]``.

    Example:
        >>> gather_sum(torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1], [2, 2]]))
        tensor([[ 11.],
                [200.]])
    """
    check_tensor("gather_sum", "table", table, None, ["R", "C"])
    check_tensor("gather_sum", "places", places, torch.int64, ["P", "K"])
    if can_read(places):
        check_index("gather_sum", "places", places, table.shape[0], "the table")
    return (_SmallTable.apply if _sums_by_product(table) else reference.gather_sum)(table, places)


SMALL_TABLE = 64  # rows up to which the gradient of a table on a GPU is a matrix product


def _sums_by_product(table: Tensor) -> bool:
    return not on_cpu(table) and table.shape[0] <= SMALL_TABLE and not is_transformed()


class _SmallTable(Function):
    """`gather_sum` of a small table, such as that of the 13 categories of OGB's bonds.

    Its gradient is the product of the counts of each row with the gradient of the output. Torch
    would sort all places, or add them up by atomics, in an order that changes from run to run.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = table.shape[0]
        return reference.gather_sum(table, places)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        rows = torch.arange(ctx.rows, device=places.device)
        counts = (places.unsqueeze(-1) == rows).sum(1).to(grad_out.dtype)
        return counts.T @ grad_out, None
