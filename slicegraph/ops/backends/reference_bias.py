"""S + E of every pair of nodes, in plain torch: the specification, on any device."""

from typing import NamedTuple

import torch
from torch import Tensor

from slicegraph.ops.backends import reference_tables
from slicegraph.ops.sets import set_of_row


class _Pairs(NamedTuple):
    """Of each pair: its row of the table, those of its products, their number, its place."""

    entries: Tensor
    products: Tensor
    counts: Tensor
    places: Tensor


def structural_bias(
    table: Tensor,
    products: Tensor,
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    length: int,
    max_distance: int,
    token: bool,
    empty: bool,
    padding: float,
) -> Tensor:
    """`out[b, :, i, j] = table[distance] + (products[edge 0, 0] + products[edge 1, 1] ...) / k`"""
    edges, hops, heads = products.shape
    pairs = _pairs(distance, path, ptr, edge_ptr, length, edges, hops, max_distance, token, empty)
    nothing = products.new_zeros(1, heads)
    steps = torch.cat([products.flatten(0, 1), nothing])
    paths = reference_tables.gather_sum(steps, pairs.products)
    out = table.new_full((ptr.shape[0] - 1, length, length, heads), padding)
    out.view(-1, heads)[pairs.places] = table[pairs.entries] + paths / pairs.counts
    if token:
        out = torch.where(_virtual(ptr, length).unsqueeze(-1), table[-1], out)
    return out.permute(0, 3, 1, 2).contiguous()


def structural_bias_gradients(
    g: Tensor,
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    edges: int,
    hops: int,
    max_distance: int,
    token: bool,
    empty: bool,
) -> tuple[Tensor, Tensor]:
    """Of the table and of the products."""
    heads, length = g.shape[1:3]
    pairs = _pairs(distance, path, ptr, edge_ptr, length, edges, hops, max_distance, token, empty)
    square = g.permute(0, 2, 3, 1)
    of_pairs = square.reshape(-1, heads)[pairs.places]
    of_table = g.new_zeros(max_distance + 2 + token, heads).index_add_(0, pairs.entries, of_pairs)
    if token:
        of_table[-1] = torch.where(_virtual(ptr, length).unsqueeze(-1), square, 0).sum((0, 1, 2))
    rows = edges * hops + 1
    of_steps = reference_tables.scatter_sum(of_pairs / pairs.counts, pairs.products, rows)
    return of_table, of_steps[:-1].view(edges, hops, heads)


def _pairs(
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    length: int,
    edges: int,
    hops: int,
    max_distance: int,
    token: bool,
    empty: bool,
) -> _Pairs:
    if path.is_cpu:
        check_encoding(path, ptr, edge_ptr, length, edges - empty, hops, token)
    graphs, places = _places(ptr, distance.shape[0], length, int(token))
    entries = _entries(distance.long(), path, max_distance)
    step, hop = path[:, :hops].long(), torch.arange(hops, device=path.device)
    none = (edges - 1) * hops + hop if empty else edges * hops
    own = (step + edge_ptr[graphs].unsqueeze(-1)) * hops + hop
    products = torch.where(step < 0, none, own)
    return _Pairs(entries, products, entries.clamp(1, max(hops, 1)).unsqueeze(-1), places)


def check_encoding(
    path: Tensor, ptr: Tensor, edge_ptr: Tensor, length: int, edges: int, hops: int, token: bool
) -> None:
    """Raises unless the pairs are those of the graphs, and every step of a path is an edge."""
    sizes = ptr.diff()
    expected = int(sizes.square().sum())
    if path.shape[0] != expected or (hops and int(edge_ptr[-1]) > edges) or bool((sizes < 0).any()):
        raise ValueError(
            f"structural_bias: {path.shape[0]} pairs and {edges} edges, expected {expected} and at "
            f"least {int(edge_ptr[-1])}: the encoding is that of other graphs"
        )
    if sizes.numel() and int(sizes.max()) + token > length:
        raise ValueError(
            f"structural_bias: length = {length}, but a graph has {int(sizes.max()) + token} rows"
        )
    steps = path[:, :hops].long()
    most = edge_ptr.diff()[set_of_row(_pair_ptr(sizes), path.shape[0])].unsqueeze(-1)
    wrong = (steps < -1) | (steps >= most)
    if bool(wrong.any()):
        pair, hop = wrong.nonzero()[0].tolist()
        raise IndexError(
            f"structural_bias: path[{pair}, {hop}] = {int(steps[pair, hop])} is none of the "
            f"{int(most[pair])} edges of its graph"
        )


def _entries(distance: Tensor, path: Tensor, max_distance: int) -> Tensor:
    """The row of the table of each pair, whatever distance the encoding was clipped to."""
    has_none = path[:, 0] < 0 if path.shape[1] else distance > max_distance
    unreachable = has_none & (distance > 0)
    return distance.clamp(max=max_distance).masked_fill(unreachable, max_distance + 1)


def _places(ptr: Tensor, num_pairs: int, length: int, token: int) -> tuple[Tensor, Tensor]:
    """The graph of each pair, and its place among ``[B, length, length]``."""
    sizes = ptr.diff()
    pair_ptr = _pair_ptr(sizes)
    graphs = set_of_row(pair_ptr, num_pairs)
    local = torch.arange(num_pairs, device=ptr.device) - pair_ptr[graphs]
    n = sizes[graphs]
    row, column = local // n + token, local % n + token
    return graphs, (graphs * length + row) * length + column


def _pair_ptr(sizes: Tensor) -> Tensor:
    squares = sizes.square()
    return torch.cat([squares.new_zeros(1), squares.cumsum(0)])


def _virtual(ptr: Tensor, length: int) -> Tensor:
    """``[B, length, length]``: where one of the two is the token, and both are there."""
    rows = torch.arange(length, device=ptr.device)
    real = rows <= ptr.diff().unsqueeze(-1)
    first = (rows == 0).unsqueeze(-1) | (rows == 0)
    return real.unsqueeze(-1) & real.unsqueeze(-2) & first
