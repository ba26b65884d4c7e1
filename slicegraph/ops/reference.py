"""Every operator in plain torch: the specification, on any device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.ops.layout import (
    BITS,
    INDEX_DTYPES,
    OptTensor,
    can_read,
    check_ascending,
    check_heads,
    check_index,
    check_lengths,
    check_pairs,
    check_sizes,
    check_tensor,
    first_true,
    padding_rows,
    quantile_positions,
    set_of_row,
)
from slicegraph.ops.sorted_scan import Scan, SortedSlices, log_step_scan

AUTOMATIC = ("cpu", "cuda", "meta", "mps", "xpu")  # devices that use this backend by default
DTYPES: dict[str, tuple[torch.dtype, ...]] = {}  # the operators that have a kernel: none


def problem(device_type: str) -> str | None:
    """Return None: the reference serves every device."""
    return None


def column_sort(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, down: bool, index_bytes: int
) -> tuple[Tensor, Tensor]:
    """Sort every column of every set; `mask` (a direction per channel) overrides `down`."""
    if can_read(x):  # on a GPU the public function has checked: this would wait in every layer
        check_sizes("column_sort", x, lengths, ptr)
    if mask is None:
        values, indices = torch.sort(x, dim=-2, stable=True, descending=down)
    else:
        # Both directions of every column: to choose the columns first would read the mask.
        falling, rising = (
            torch.sort(x, dim=-2, stable=True, descending=way) for way in (True, False)
        )
        values = torch.where(mask, falling.values, rising.values)
        indices = torch.where(mask, falling.indices, rising.indices)
    if lengths is not None:
        padding, rows = padding_rows(x, lengths), torch.arange(x.shape[-2], device=x.device)
        values, indices = _group(values, indices, padding.to(torch.uint8))
        values = values.masked_fill(padding, 0)
        indices = torch.where(padding, rows.unsqueeze(-1), indices)
    if ptr is not None:
        sets = set_of_row(ptr, x.shape[0]).unsqueeze(-1)
        values, indices = _group(values, indices, sets)
        indices = indices - ptr[sets]
    return values.contiguous(), indices.to(INDEX_DTYPES[index_bytes]).contiguous()


def column_sort_values(
    x: Tensor, lengths: OptTensor, ptr: OptTensor, mask: OptTensor, down: bool
) -> Tensor:
    """The values of `column_sort` only."""
    return column_sort(x, lengths, ptr, mask, down, 8)[0]


def _group(values: Tensor, indices: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Move the sorted values of each group of rows together, in the order of the groups."""
    group_of_value = groups.expand_as(indices).gather(-2, indices)
    order = torch.sort(group_of_value, dim=-2, stable=True).indices
    return _gather(values, order), indices.gather(-2, order)


def _gather(x: Tensor, rows: Tensor) -> Tensor:
    # As integers: torch's own gather of half floats rewrites the payload of a NaN.
    return x.view(BITS[x.element_size()]).gather(-2, rows).view(x.dtype)


def column_scatter(x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    """`out[indices[r, c], c] = x[r, c]`: the gradient of a sort, and the inverse of a gather."""
    if lengths is not None:
        x = x.masked_fill(padding_rows(x, lengths), 0)
    bits = x.contiguous().view(BITS[x.element_size()])
    return torch.zeros_like(bits).scatter_(-2, row_numbers(indices, ptr), bits).view(x.dtype)


def column_gather(x: Tensor, indices: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    """`out[r, c] = x[indices[r, c], c]`: the gradient of a scatter."""
    out = _gather(x.contiguous(), row_numbers(indices, ptr))
    return out if lengths is None else out.masked_fill(padding_rows(x, lengths), 0)


def row_numbers(indices: Tensor, ptr: OptTensor) -> Tensor:
    """The rows of `x` that local `indices` name, int64."""
    indices = indices.long()
    if ptr is None:
        return indices
    return indices + ptr[set_of_row(ptr, indices.shape[0])].unsqueeze(-1)


def max_exchange(x: Tensor, lengths: OptTensor, ptr: OptTensor) -> tuple[Tensor, Tensor]:
    """Swap each column's first maximum with its first row; also return its row.

    NaN counts as the largest value, as in `torch.argmax`.
    """
    if can_read(x):  # on a GPU the public function has checked: this would wait in every layer
        check_sizes("max_exchange", x, lengths, ptr)
    if ptr is not None:
        where = _packed_argmax(x, ptr)
    elif x.shape[-2] == 0:
        where = x.new_zeros(x.shape[:-2] + x.shape[-1:], dtype=torch.int64)
    else:
        real = x if lengths is None else x.masked_fill(padding_rows(x, lengths), -torch.inf)
        where = real.argmax(dim=-2)
    return exchange_rows(x, where, lengths, ptr), where


def _packed_argmax(x: Tensor, ptr: Tensor) -> Tensor:
    num_sets, rows = ptr.numel() - 1, torch.arange(x.shape[0], device=x.device)
    sets = set_of_row(ptr, x.shape[0])
    columns = sets.unsqueeze(-1).expand_as(x)
    top = x.new_full((num_sets, x.shape[1]), -torch.inf).scatter_reduce(0, columns, x, "amax")[sets]
    is_top = (x == top) | (x.isnan() & top.isnan())
    position = torch.where(is_top, (rows - ptr[sets]).unsqueeze(-1), x.shape[0])
    first = position.new_full((num_sets, x.shape[1]), x.shape[0])
    first = first.scatter_reduce(0, columns, position, "amin")
    return first.masked_fill((ptr.diff() == 0).unsqueeze(-1), 0)


def exchange_rows(x: Tensor, where: Tensor, lengths: OptTensor, ptr: OptTensor) -> Tensor:
    """Swap row 0 with row `where[c]` in column c of every set: its own inverse and gradient."""
    return column_gather(x, exchanged(x, where, ptr), lengths, ptr)


def exchanged(x: Tensor, where: Tensor, ptr: OptTensor) -> Tensor:
    """The local row that each value of `exchange_rows` comes from, like `x`."""
    rows = torch.arange(x.shape[-2], device=x.device)
    if ptr is None:
        local, other = rows.unsqueeze(-1), where.unsqueeze(-2)
    else:
        sets = set_of_row(ptr, x.shape[0])
        local, other = (rows - ptr[sets]).unsqueeze(-1), where[sets]
    indices = torch.where(local == 0, other, torch.where(local == other, 0, local))
    return indices.expand_as(x)


def slice_attention(
    v: Tensor,
    k: Tensor,
    q: OptTensor,
    tau: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    relu: bool,
    scan: Scan = log_step_scan,
) -> tuple[Tensor, Tensor]:
    """`y[i] = sum_j w(q[i] - k[j]) v[j]` by scans; also return the rows of the sorted keys."""
    if can_read(v):  # on a GPU the public function has checked
        check_sizes("slice_attention", v, lengths, ptr, "v")
    order = column_sort(k.detach(), lengths, ptr, None, False, 4)[1]
    sets: Any = {"order": order, "lengths": lengths, "ptr": ptr, "scan": scan}
    return SortedSlices((v, k, q, tau), **sets).attend(relu), order


def slice_attention_backward(
    grad_out: Tensor,
    v: Tensor,
    k: Tensor,
    q: OptTensor,
    tau: Tensor,
    order: Tensor,
    lengths: OptTensor,
    ptr: OptTensor,
    relu: bool,
    scan: Scan = log_step_scan,
) -> tuple[Tensor, ...]:
    """The gradients of `v, k, q, tau`, that of `q` empty if there is none."""
    sets: Any = {"order": order, "lengths": lengths, "ptr": ptr, "scan": scan}
    return SortedSlices((v, k, q, tau), **sets).gradients(grad_out, relu)


def pair_mix(weights: Tensor, values: Tensor, ptr: Tensor, transpose: bool) -> Tensor:
    """`out[i] = sum_j weights[i, j] values[j]` in each set and head; or by `weights[j, i]`."""
    check_pairs("pair_mix", weights, values, ptr)
    num_sets, heads, length, _ = weights.shape
    slots = _slots("pair_mix", values, ptr, length)
    if transpose:
        weights = weights.transpose(2, 3)
    # Padding times 0 would be NaN where it is infinite, and AMX spreads a row of NaN to others.
    weights = weights.masked_fill(_outside(ptr, length), 0)
    mixed = _matmul(weights, _pad(values, slots, num_sets, heads, length))
    rows = mixed.transpose(1, 2).reshape(num_sets * length, values.shape[1])
    return rows.index_select(0, slots)


def pair_outer(left: Tensor, right: Tensor, ptr: Tensor, heads: int, length: int) -> Tensor:
    """`out[i, j] = left[i] right[j]` in each set and head, 0 where there are no such rows."""
    check_heads("pair_outer", right, ptr, heads, "left", left)
    check_tensor("pair_outer", "left", left, right.dtype, right.shape)
    slots, num_sets = _slots("pair_outer", right, ptr, length), ptr.shape[0] - 1
    left, right = (_pad(rows, slots, num_sets, heads, length) for rows in (left, right))
    return _matmul(left, right.transpose(2, 3)).masked_fill_(_outside(ptr, length), 0)


def _slots(name: str, rows: Tensor, ptr: Tensor, length: int) -> Tensor:
    """`[T]`: the position of each row in `[B * length]`."""
    if can_read(rows):
        check_lengths(name, rows, ptr, length)
    sets = set_of_row(ptr, rows.shape[0])
    return sets * length + torch.arange(rows.shape[0], device=rows.device) - ptr[sets]


def _outside(ptr: Tensor, length: int) -> Tensor:
    """`[B, 1, length, length]`, true where a set has no such pair of rows."""
    padding = (torch.arange(length, device=ptr.device) >= ptr.diff().unsqueeze(-1)).unsqueeze(1)
    return padding.unsqueeze(-1) | padding.unsqueeze(-2)


def _pad(rows: Tensor, slots: Tensor, num_sets: int, heads: int, length: int) -> Tensor:
    """`[T, H * D]` to `[B, H, length, D]`, with zeros where a set has no row."""
    width = rows.shape[1] // heads
    padded = rows.new_zeros(num_sets * length, rows.shape[1]).index_put((slots,), rows)
    return padded.view(num_sets, length, heads, width).transpose(1, 2)


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    # The type of the result is that of the operands, with or without autocast.
    with torch.autocast(a.device.type, enabled=False):
        return torch.matmul(a, b)


_LOW = 0xFFFFFFFF


def dropping(p: float) -> tuple[int, float]:
    """The 32-bit hash from which on an entry is kept, and the factor of the entries kept."""
    return min(round(p * 2**32), _LOW), 1 / (1 - p) if p < 1 else 0.0


def dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """Drop an entry if the hash of its position and the seed is small, and scale the others.

    The C++ kernels have the same hash (csrc/dropout.h), so that nothing has to be stored and every
    backend drops the same entries.
    """
    position = torch.arange(x.numel(), device=x.device)
    low, high = seed & _LOW, (seed >> 32) & _LOW
    first = _scramble((low + position) & _LOW)
    mixed = _scramble(first ^ ((high + (position >> 32) * 0x9E3779B9) & _LOW))
    below, scale = dropping(p)
    return torch.where((mixed >= below).view(x.shape), x * scale, 0)


def dropout_add(x: Tensor, added: Tensor, seed: Tensor, p: float) -> Tensor:
    """`dropout(x) + added`."""
    return dropout(x, seed, p) + added


def dropout_add_norm(
    x: Tensor, added: Tensor, weight: Tensor, bias: Tensor, seed: OptTensor, p: float, eps: float
) -> tuple[Tensor, Tensor]:
    """`dropout(x) + added`, and its layer norm."""
    total = (x if seed is None else dropout(x, seed, p)) + added
    affine = (weight.to(total.dtype), bias.to(total.dtype))
    return total, functional.layer_norm(total, total.shape[-1:], *affine, eps)


def dropout_add_norm_backward(
    grad_total: Tensor, grad_out: Tensor, total: Tensor, weight: Tensor, seed: OptTensor, p: float,
    eps: float
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `added`; of `x`, empty if nothing is dropped; of weight and bias."""
    values = total.to(torch.promote_types(total.dtype, torch.float32))
    centred = values - values.mean(-1, keepdim=True)
    factor = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    normed, grads = centred * factor, grad_out * weight.to(values.dtype)
    along = normed * (grads * normed).mean(-1, keepdim=True)
    grad_added = grad_total + factor * (grads - grads.mean(-1, keepdim=True) - along)
    grad_added = grad_added.to(total.dtype)
    grad_x = total.new_empty(0) if seed is None else dropout(grad_added, seed, p)
    sums = torch.stack([grad_out * normed, grad_out.to(values.dtype)]).flatten(1, -2).sum(1)
    return grad_added, grad_x, sums.to(weight.dtype)


def _scramble(x: Tensor) -> Tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D & _LOW
    x = (x ^ (x >> 15)) * 0x846CA68B & _LOW
    return x ^ (x >> 16)


def gather_sum(table: Tensor, index: Tensor) -> Tensor:
    """`out[p] = table[index[p, 0]] + table[index[p, 1]] + ...`"""
    return functional.embedding(index, table).sum(1)


def edge_sum(
    x: Tensor,
    table: Tensor,
    codes: Tensor,
    index: Tensor,
    sum_rows: Callable[[Tensor, Tensor], Tensor] = gather_sum,
) -> Tensor:
    """`out[target] += relu(x[source] + table[code 0] + table[code 1] + ...)`, from zeros."""
    if can_read(index):
        check_edges(x, table, codes, index)
    messages = torch.relu(x.index_select(0, index[0]) + sum_rows(table, codes))
    return torch.zeros_like(x).index_add(0, index[1], messages)


def check_edges(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> None:
    """Raise unless every end of an edge is a row of `x`, and every code one of the table."""
    check_index("edge_sum", "index", index, x.shape[0], "x")
    check_index("edge_sum", "codes", codes, table.shape[0], "the table")


def structural_bias(table: Tensor, products: Tensor, *encoding_and_options: Any) -> Tensor:
    """`out[b, :, i, j] = table[distance] + (products[edge 0, 0] + products[edge 1, 1] ...) / k`"""
    distance, path, ptr, edge_ptr, length, *options = encoding_and_options
    (edges, hops, heads), (max_distance, token, empty, padding) = products.shape, options
    if can_read(path):
        check_encoding(distance, path, ptr, edge_ptr, length, edges - empty, hops, token)
    # The graph of each pair, and the position of the pair in [B, length, length].
    sizes = ptr.diff()
    pair_ptr = _pair_ptr(sizes)
    graphs = set_of_row(pair_ptr, distance.shape[0])
    local = torch.arange(distance.shape[0], device=ptr.device) - pair_ptr[graphs]
    # In float64, where it is exact: compiled integer division raises in unused lanes of a vector.
    row = (local.double() / sizes[graphs]).floor().long()
    column = local - row * sizes[graphs]
    # The row of the table of each pair, for any distance that the encoding was clipped to.
    far = distance.long()
    no_path = path[:, 0] < 0 if path.shape[1] else far > max_distance
    entries = far.clamp(max=max_distance).masked_fill(no_path & (far > 0), max_distance + 1)
    # The rows of the products on its path, followed by one of zeros.
    step, hop = path[:, :hops].long(), torch.arange(hops, device=path.device)
    nothing = (edges - 1) * hops + hop if empty else edges * hops
    steps = torch.where(step < 0, nothing, (step + edge_ptr[graphs].unsqueeze(-1)) * hops + hop)
    rows = torch.cat([products.flatten(0, 1), products.new_zeros(1, heads)])
    counts = entries.clamp(1, max(hops, 1)).unsqueeze(-1)
    pairs = functional.embedding(entries, table) + gather_sum(rows, steps) / counts
    out = table.new_full((ptr.shape[0] - 1, length, length, heads), padding)
    out = out.index_put((graphs, row + int(token), column + int(token)), pairs)
    if token:
        nodes = torch.arange(length, device=ptr.device)
        real = nodes <= sizes.unsqueeze(-1)
        first = (nodes == 0).unsqueeze(-1) | (nodes == 0)
        virtual = real.unsqueeze(-1) & real.unsqueeze(-2) & first
        out = torch.where(virtual.unsqueeze(-1), table[-1], out)
    return out.permute(0, 3, 1, 2).contiguous()


def check_encoding(
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    length: int,
    edges: int,
    hops: int,
    token: bool,
) -> None:
    """Raise unless the pairs are those of the graphs, and every step of a path is an edge."""
    if (wrong := first_true(distance < 0)) is not None:
        value = int(distance[wrong])
        raise IndexError(f"structural_bias: distance[{wrong}] = {value}, expected 0 or more")
    if edge_ptr.numel() and (int(edge_ptr[0]) or bool((edge_ptr.diff() < 0).any())):
        raise ValueError("structural_bias: edge_ptr must start at 0 and ascend")
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
    if (wrong := first_true((steps < -1) | (steps >= most))) is not None:
        pair, hop = divmod(wrong, hops)
        raise IndexError(
            f"structural_bias: path[{pair}, {hop}] = {int(steps[pair, hop])} is none of the "
            f"{int(most[pair])} edges of its graph"
        )


def _pair_ptr(sizes: Tensor) -> Tensor:
    squares = sizes.square()
    return torch.cat([squares.new_zeros(1), squares.cumsum(0)])


def graph_offsets(edge_index: Tensor, ptr: Tensor, name: str = "shortest_paths") -> Tensor:
    """`[2, B + 1]`, the first pair and edge of each graph; raise if an edge is out of place."""
    check_ascending(name, ptr)
    num_nodes, sizes = int(ptr[-1]), ptr.diff()
    if (e := first_true(((edge_index < 0) | (edge_index >= num_nodes)).any(0))) is not None:
        edge = f"edge_index[:, {e}] = {edge_index[:, e].tolist()}"
        raise ValueError(f"{name}: {edge} is beyond the {num_nodes} nodes")
    start, end = set_of_row(ptr, num_nodes)[edge_index]
    if (e := first_true(start != end)) is not None:
        edge = f"edge_index[:, {e}] = {edge_index[:, e].tolist()}"
        raise ValueError(f"{name}: {edge} joins two graphs")
    if (e := first_true(start[1:] < start[:-1])) is not None:
        raise ValueError(
            f"{name}: edge {e + 1} of graph {int(start[e + 1])} follows edge {e} of graph "
            f"{int(start[e])}; group the edges by graph: "
            "perm = batch[edge_index[0]].argsort(stable=True); "
            "edge_index = edge_index[:, perm], and edge_attr = edge_attr[perm]"
        )
    counts = torch.stack([sizes * sizes, start.bincount(minlength=len(sizes))])
    return torch.cat([counts.new_zeros(2, 1), counts.cumsum(1)], dim=1)


def shortest_paths(
    edge_index: Tensor, ptr: Tensor, offsets: Tensor, out: tuple[Tensor, Tensor], max_distance: int
) -> None:
    """Fill `out`, the distances and paths (see `slicegraph.ops.shortest_paths`)."""
    row, max_hops = 0, out[1].shape[1]
    for b in range(len(ptr) - 1):
        edges = edge_index[:, int(offsets[1, b]) : int(offsets[1, b + 1])] - ptr[b]
        # Each node's neighbours in ascending order, each with the first edge that leads to it.
        first: list[dict[int, int]] = [{} for _ in range(int(ptr[b + 1] - ptr[b]))]
        for edge, (start, end) in enumerate(edges.t().tolist()):
            first[start].setdefault(end, edge)
        neighbours = [sorted(edge_to.items()) for edge_to in first]
        for source in range(len(neighbours)):
            found = _search(neighbours, source, max_distance, max_hops)
            paths = [(path + [-1] * max_hops)[:max_hops] for _, path in found]
            out[0][row : row + len(found)] = torch.tensor([distance for distance, _ in found])
            out[1][row : row + len(found)] = torch.tensor(paths)
            row += len(found)


def _search(
    neighbours: list[list[tuple[int, int]]], source: int, max_distance: int, max_hops: int
) -> list[tuple[int, list[int]]]:
    """Search breadth first: the distance to each node, and the first edges of its path.

    Nodes enter the queue in the lexicographic order of their paths, so the first path found to a
    node is the smallest.
    """
    found: dict[int, tuple[int, list[int]]] = {source: (0, [])}
    queue = [source]
    for node in queue:
        distance, path = found[node]
        for end, edge in neighbours[node]:
            if end not in found:
                found[end] = (min(distance + 1, max_distance), [*path, edge][:max_hops])
                queue.append(end)
    return [found.get(node, (max_distance + 1, [])) for node in range(len(neighbours))]


def rings(
    edge_index: Tensor, ptr: Tensor, offsets: Tensor, max_length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes of all rings, the length of each, and the rings of each graph."""
    nodes: list[int] = []
    lengths: list[int] = []
    counts: list[int] = []
    for b in range(len(ptr) - 1):
        first = int(ptr[b])
        neighbours: list[set[int]] = [set() for _ in range(int(ptr[b + 1]) - first)]
        for start, end in (edge_index[:, offsets[1, b] : offsets[1, b + 1]] - first).T.tolist():
            if start != end:
                neighbours[start].add(end)
                neighbours[end].add(start)
        found = _chordless_cycles([sorted(near) for near in neighbours], max_length)
        nodes += [first + node for ring in found for node in ring]
        lengths += map(len, found)
        counts.append(len(found))
    return ptr.new_tensor(nodes), ptr.new_tensor(lengths), ptr.new_tensor(counts)


def _chordless_cycles(neighbours: list[list[int]], max_length: int) -> list[list[int]]:
    found = []

    def extend(path: list[int], blocked: set[int]) -> None:
        first, last = path[0], path[-1]
        blocked_next = blocked.union(neighbours[last])
        for node in neighbours[last]:
            if node <= first or node in blocked:
                continue
            if first in neighbours[node]:
                if path[1] < node:  # else it is found in the other direction
                    found.append([*path, node])
            elif len(path) + 1 < max_length:
                extend([*path, node], blocked_next)

    for first, around in enumerate(neighbours):
        for second in around:
            if second > first:
                extend([first, second], {second})
    return found


def dense_mix(
    values: Tensor,
    bias: Tensor,
    weight: OptTensor,
    lengths: Tensor,
    mask: OptTensor,
    seed: OptTensor,
    down: bool,
    sort: bool,
    softmax: bool,
    p: float,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mix dense sets by the weights of their pairs, then sort them or add weighted quantiles.

    For the gradient, if `keep`: the position of each row among the sorted ones, and the quantiles.
    """
    if can_read(values):
        check_sizes("dense_mix", values, lengths, None, "values")
    padding, heads = padding_rows(values, lengths), bias.shape[1]
    weights = _dense_weights(bias, lengths, softmax)
    if seed is not None:
        weights = dropout(weights, seed, p)
    rows = _heads_first(values.masked_fill(padding, 0), heads)
    mixed = _matmul(weights.to(values.dtype), rows).transpose(1, 2).flatten(2)
    mixed = mixed.masked_fill(padding, 0)
    ranks, nothing = values.new_empty(0, dtype=torch.uint8), values.new_empty(0)
    if not sort and weight is None:
        return mixed, ranks, nothing
    origin = column_sort(mixed.detach(), lengths, None, mask, down, 8)[1]
    if keep:
        ranks = origin.argsort(1).to(torch.uint8)
    in_order = mixed.gather(1, origin)
    if weight is None:
        return in_order.masked_fill(padding, 0), ranks, nothing
    below, above, share = quantile_positions(lengths, weight.shape[0])
    low, high = (
        _wide(in_order).gather(1, at.unsqueeze(-1).expand(-1, -1, values.shape[2]))
        for at in (below, above)
    )
    quantiles = low.lerp(high, share.to(low.dtype).unsqueeze(-1)).to(values.dtype)
    quantiles = quantiles.masked_fill((lengths == 0).view(-1, 1, 1), 0)
    context = (_wide(quantiles) * weight).sum(1, keepdim=True)
    out = (mixed + context).to(values.dtype).masked_fill(padding, 0)
    return out, ranks, quantiles if keep else nothing


def dense_mix_backward(
    grad_out: Tensor,
    values: Tensor,
    bias: Tensor,
    weight: OptTensor,
    added: OptTensor,
    ranks: Tensor,
    quantiles: Tensor,
    lengths: Tensor,
    seed: OptTensor,
    sort: bool,
    softmax: bool,
    p: float,
    with_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of values, bias (plus `added`) and weight; those not asked for are empty."""
    padding, heads = padding_rows(values, lengths), bias.shape[1]
    grad, grad_weight, rank = grad_out.masked_fill(padding, 0), values.new_empty(0), ranks.long()
    if sort:
        grad = grad.gather(1, rank).masked_fill(padding, 0)
    if weight is not None:
        total = _wide(grad).sum(1, keepdim=True)
        grad_weight = (_wide(quantiles) * total).sum(0).to(weight.dtype)
        below, above, share = (
            x[:, None, :, None] for x in quantile_positions(lengths, len(weight))
        )
        rank = rank.unsqueeze(2)  # [B, N, K, C]
        shares = (rank == below) * (1 - share) + (rank == above) * share
        grad = _wide(grad) + (shares * (total * weight).unsqueeze(1)).sum(2)
        grad = grad.to(values.dtype).masked_fill(padding, 0)
    weights = _dense_weights(bias, lengths, softmax)
    kept = weights if seed is None else dropout(weights, seed, p)
    grad = _heads_first(grad, heads)
    grad_values = _matmul(kept.to(values.dtype).transpose(2, 3), grad).transpose(1, 2).flatten(2)
    if not with_bias:
        return grad_values, values.new_empty(0), grad_weight
    rows = _heads_first(values.masked_fill(padding, 0), heads)
    grad_bias = _matmul(_wide(grad), _wide(rows).transpose(2, 3))
    grad_bias = grad_bias if seed is None else dropout(grad_bias, seed, p)
    if softmax:
        grad_bias = weights * (grad_bias - (weights * grad_bias).sum(-1, keepdim=True))
    outside = padding.unsqueeze(1) | padding.unsqueeze(1).transpose(2, 3)
    grad_bias = grad_bias.masked_fill(outside, 0)
    grad_bias = grad_bias if added is None else grad_bias + added
    return grad_values, grad_bias.to(bias.dtype), grad_weight


def _wide(x: Tensor) -> Tensor:
    """Sums are at least in float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _heads_first(x: Tensor, heads: int) -> Tensor:
    """`[B, N, H * D]` to `[B, H, N, D]`."""
    return x.unflatten(2, (heads, x.shape[2] // heads)).transpose(1, 2)


def _dense_weights(bias: Tensor, lengths: Tensor, softmax: bool) -> Tensor:
    """`[B, H, N, N]` with zeros where a set has no such pair; a row may have no partner at all."""
    real = torch.arange(bias.shape[2], device=bias.device) < lengths.unsqueeze(-1)
    rows, columns = real[:, None, :, None], real[:, None, None, :]
    if not softmax:
        return _wide(bias).masked_fill(~(rows & columns), 0)
    scores = _wide(bias).masked_fill(~columns, -torch.inf)
    forbidden = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(forbidden, 0).softmax(-1)
    return weights.masked_fill(forbidden | ~(rows & columns), 0)
