"""How nodes, edges and pairs of nodes fall into graphs, and what is wrong when they do not.

Graph `b` is the nodes `ptr[b]` to `ptr[b + 1]`; its edges follow one another, in the order of the
graphs, and so do its pairs of nodes, row major.
"""

import torch
from torch import Tensor

from slicegraph.ops.sets import set_of_row


def check_graphs(name: str, edge_index: Tensor, ptr: Tensor) -> None:
    """Raises unless shapes, types and devices are right; reads no values."""
    for argument, value in (("edge_index", edge_index), ("ptr", ptr)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: {argument} is {type(value).__name__}, expected a tensor")
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


def graph_offsets(name: str, edge_index: Tensor, ptr: Tensor) -> Tensor:
    """`[2, B + 1]`, the first pair and the first edge of each graph; raises if one lies astray."""
    _check_ptr(name, ptr)
    num_nodes, sizes = int(ptr[-1]), ptr.diff()
    if bool((outside := ((edge_index < 0) | (edge_index >= num_nodes)).any(0)).any()):
        raise ValueError(f"{name}: {_edge(edge_index, outside)} is beyond the {num_nodes} nodes")
    start, end = set_of_row(ptr, num_nodes)[edge_index]
    if bool((crossing := start != end).any()):
        raise ValueError(f"{name}: {_edge(edge_index, crossing)} joins two graphs")
    if bool((descends := start[1:] < start[:-1]).any()):
        raise ValueError(f"{name}: {_ungrouped(start, _first(descends))}")
    counts = torch.stack([sizes * sizes, start.bincount(minlength=len(sizes))])
    return torch.cat([counts.new_zeros(2, 1), counts.cumsum(1)], dim=1)


def _check_ptr(name: str, ptr: Tensor) -> None:
    if int(ptr[0]) != 0:
        raise ValueError(f"{name}: ptr[0] = {int(ptr[0])}, expected 0")
    if bool((descends := ptr[1:] < ptr[:-1]).any()):
        b = _first(descends)
        raise ValueError(
            f"{name}: ptr must not descend, but ptr[{b + 1}] = {int(ptr[b + 1])} "
            f"follows ptr[{b}] = {int(ptr[b])}"
        )


def _ungrouped(graph: Tensor, e: int) -> str:
    return (
        f"edge {e + 1} of graph {int(graph[e + 1])} follows edge {e} of graph {int(graph[e])}; "
        "group the edges by graph: perm = batch[edge_index[0]].argsort(stable=True); "
        "edge_index = edge_index[:, perm], and edge_attr = edge_attr[perm]"
    )


def _edge(edge_index: Tensor, wrong: Tensor) -> str:
    e = _first(wrong)
    return f"edge_index[:, {e}] = {edge_index[:, e].tolist()}"


def _first(wrong: Tensor) -> int:
    return int(wrong.to(torch.uint8).argmax())
