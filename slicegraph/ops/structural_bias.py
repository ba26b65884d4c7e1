"""S + E: what the distance and the path of every pair of nodes add up to, for attention."""

from typing import Any

import torch
from torch import Tensor

from slicegraph.ops.operator import Gradient, Operator
from slicegraph.ops.shortest_paths import ShortestPaths


def structural_bias(
    table: Tensor,
    products: Tensor,
    encoding: ShortestPaths,
    ptr: Tensor,
    length: int,
    max_distance: int,
    token: bool = False,
    empty: bool = False,
    padding: float = 0.0,
) -> Tensor:
    r"""Looks up and adds, for every pair of nodes of a graph.

    .. math:: b_{ij} = t_{d_{ij}} + \frac{1}{\max(1, \min(d_{ij}, K))} \sum_{k=1}^{\min(d_{ij}, K)}
        p_{e_k, k}

    where :math:`e_k` is the k-th edge of the path from i to j. On a CPU, in float32 and float64,
    nothing of the size of the paths is made, forwards or backwards, and the sums do not depend on
    the number of threads.

    Args:
        table: ``[R, H]``, floating point: the distances 0 to ``max_distance``, then unreachable,
            then the token if there is one.
        products: ``[E, K, H]``, of the same type: what each edge says as the k-th of a path.
        encoding: the distances and paths of all pairs, with at least ``K`` hops.
        ptr: ``[B + 1]``, int64, the nodes of each graph.
        length: the rows of each graph in the output, at least those of the largest.
        max_distance: longer distances share the row of this one.
        token: whether each graph has a row more, its first, with the last row of the table for all
            its pairs.
        empty: whether the last of ``products`` is no edge, but what is added after the end of a
            path.
        padding: what stands where a graph has no row.

    Shapes:
        output: ``[B, H, length, length]``.

    Example:
        >>> encoding = shortest_paths(torch.tensor([[0, 1], [1, 0]]), ptr := torch.tensor([0, 2]))
        >>> table, products = torch.tensor([[0.0], [1.0], [9.0]]), torch.full((2, 1, 1), 0.5)
        >>> structural_bias(table, products, encoding, ptr, length=2, max_distance=1)
        tensor([[[[0.0000, 1.5000],
                  [1.5000, 0.0000]]]])
    """
    shapes = (encoding.distance, encoding.path, ptr, encoding.edge_ptr)
    _check(table, products, *shapes, max_distance, token)
    return _structural_bias(table, products, *shapes, length, max_distance, token, empty, padding)


def _check(
    table: Tensor,
    products: Tensor,
    distance: Tensor,
    path: Tensor,
    ptr: Tensor,
    edge_ptr: Tensor,
    max_distance: int,
    token: bool,
) -> None:
    rows, hops, heads = max_distance + 2 + token, products.shape[1], table.shape[-1]
    wanted = (
        ("table", table, (rows, heads), table.is_floating_point()),
        ("products", products, (products.shape[0], hops, heads), products.dtype == table.dtype),
        ("path", path, (distance.shape[0], max(hops, path.shape[-1])), True),
        ("edge_ptr", edge_ptr, (ptr.shape[0],), edge_ptr.dtype == torch.int64),
        ("ptr", ptr, (ptr.shape[0],), ptr.dtype == torch.int64),
    )
    for name, value, shape, right_type in wanted:
        if value.shape != shape or not right_type:
            raise ValueError(
                f"structural_bias: {name} of shape {list(value.shape)} and type {value.dtype} does "
                f"not fit; expected {list(shape)} for table [R, H], products [E, K, H] of one "
                "floating-point type, and int64 ptr [B + 1]"
            )


def _fake_bias(table: Tensor, products: Tensor, *rest: Any) -> Tensor:
    _, _, ptr, _, length, *_ = rest
    return table.new_empty(ptr.shape[0] - 1, table.shape[1], length, length)


def _fake_gradients(g: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _, _, _, _, edges, hops, max_distance, token, _ = rest
    heads = g.shape[1]
    return g.new_empty(max_distance + 2 + token, heads), g.new_empty(edges, hops, heads)


_ENCODING = "Tensor distance, Tensor path, Tensor ptr, Tensor edge_ptr"
_structural_bias = Operator(
    "structural_bias",
    f"Tensor table, Tensor products, {_ENCODING}, SymInt length, int max_distance, bool token, "
    "bool empty, float padding",
    "Tensor",
    _fake_bias,
    two=True,
)
_structural_bias_gradients = Operator(
    "structural_bias_gradients",
    f"Tensor g, {_ENCODING}, SymInt edges, SymInt hops, int max_distance, bool token, bool empty",
    "(Tensor, Tensor)",
    _fake_gradients,
)


class _StructuralBias(Gradient):
    operator = "structural_bias"

    @staticmethod
    def forward(ctx: Any, run, table, products, distance, path, ptr, edge_ptr, *rest):
        ctx.save_for_backward(distance, path, ptr, edge_ptr)
        ctx.options = (*products.shape[:2], *rest[1:4])
        return run(table, products, distance, path, ptr, edge_ptr, *rest)

    @staticmethod
    def backward(ctx: Any, g):
        gradients = _structural_bias_gradients(g, *ctx.saved_tensors, *ctx.options)
        return None, *gradients, *(None,) * 9


class _StructuralBiasGradients(Gradient):
    """S + E is linear in the table and the products: the gradient's gradient is S + E of others."""

    operator = "structural_bias_gradients"

    @staticmethod
    def forward(ctx: Any, run, g, distance, path, ptr, edge_ptr, *rest):
        ctx.save_for_backward(distance, path, ptr, edge_ptr)
        ctx.options = (g.shape[-1], *rest[2:])
        return run(g, distance, path, ptr, edge_ptr, *rest)

    @staticmethod
    def backward(ctx: Any, of_table, of_products):
        of_g = _structural_bias(of_table, of_products, *ctx.saved_tensors, *ctx.options, 0.0)
        return None, of_g, *(None,) * 9


_structural_bias.differentiate_with(_StructuralBias)
_structural_bias_gradients.differentiate_with(_StructuralBiasGradients)
