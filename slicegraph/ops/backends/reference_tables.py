"""Sums of rows of a table, in plain torch: the specification, on any device."""

from torch import Tensor
from torch.nn import functional


def gather_sum(table: Tensor, places: Tensor) -> Tensor:
    """`out[p] = table[places[p, 0]] + table[places[p, 1]] + ...`"""
    if places.is_cpu:
        check_places("gather_sum", places, table.shape[0])
    if places.shape[1] == 0:
        return table.new_zeros(places.shape[0], table.shape[1])
    if places.shape[1] == 1:
        return functional.embedding(places[:, 0], table)
    return functional.embedding_bag(places, table, mode="sum")


def scatter_sum(g: Tensor, places: Tensor, rows: int) -> Tensor:
    """`out[places[p, k]] += g[p]`, from zeros."""
    if places.is_cpu:
        check_places("scatter_sum", places, rows)
    each = g.repeat_interleave(places.shape[1], 0)
    index = places.reshape(-1, 1).expand(-1, g.shape[1])
    return g.new_zeros(rows, g.shape[1]).scatter_add_(0, index, each)


def check_places(
    name: str, places: Tensor, rows: int, argument: str = "places", of: str = "the table"
) -> None:
    """Raises unless every place is a row of the table."""
    wrong = (places < 0) | (places >= rows)
    if bool(wrong.any()):
        p, k = wrong.nonzero()[0].tolist()
        raise IndexError(
            f"{name}: {argument}[{p}, {k}] = {int(places[p, k])} is not in 0..{rows - 1}, the rows "
            f"of {of}"
        )
