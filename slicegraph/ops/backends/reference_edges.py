"""Messages along edges, in plain torch: the specification, on any device."""

import torch
from torch import Tensor

from slicegraph.ops.backends import reference_tables


def edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    """`out[target] += relu(x[source] + table[code 0] + table[code 1] + ...)`, from zeros."""
    _check(x, table, codes, index)
    said = _said(x, table, codes, index).relu()
    return torch.zeros_like(x).index_add(0, index[1], said)


def edge_sum_gradients(
    g: Tensor, x: Tensor, table: Tensor, codes: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Of `x` and of `table`: what is not positive before ReLU passes nothing."""
    _check(x, table, codes, index)
    silent = _said(x, table, codes, index) <= 0
    passed = g.index_select(0, index[1]).masked_fill(silent, 0)
    of_x = torch.zeros_like(x).index_add(0, index[0], passed)
    return of_x, reference_tables.scatter_sum(passed, codes, table.shape[0])


def check(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> None:
    """Raises unless every end of an edge is a row of `x`, and every code one of the table."""
    reference_tables.check_places("edge_sum", index, x.shape[0], "index", "x")
    reference_tables.check_places("edge_sum", codes, table.shape[0], "codes")


def _check(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> None:
    if index.is_cpu:
        check(x, table, codes, index)


def _said(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index[0]) + reference_tables.gather_sum(table, codes)
