"""The law of padding: a prediction does not depend on what else is in the batch."""

from collections.abc import Callable, Sequence
from typing import Any

from slicegraph.testing.compare import compare
from slicegraph.testing.layouts import Dense, Layout, layout_named


def assert_padding_invariant(
    module: Callable,
    sets: Sequence[Any],
    layout: Layout = "dense",
    *,
    fills: Sequence[float] = (0.0, 100.0, -100.0),
    extra_rows: Sequence[int] = (0, 3),
    holes: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    r"""Asserts that a set gets the same output alone as in a batch.

    .. math:: f(\{S_1, \ldots, S_B\})_b = f(\{S_b\})

    Args:
        module, sets, layout, rtol, atol: see :mod:`slicegraph.testing`. Sets of different lengths
            make the batch padded.
        fills: what the padding of a dense batch contains, one after the other. Values on both
            sides of the data find a layer that sorts its padding along.
        extra_rows: how many padded rows a dense batch has beyond its longest set.
        holes: whether the padding of a dense batch may lie between the real rows too.

    Example:
        >>> sets = [torch.randn(n, 8) for n in (5, 1, 3)]
        >>> assert_padding_invariant(SliceSort(8), sets, "dense", holes=True)
        >>> assert_padding_invariant(SliceSort(8), sets, "packed")
    """
    run = layout_named(layout)
    alone = [run(module, [one])[0] for one in sets]
    ways = [run]
    if isinstance(run, Dense):
        kinds = (False, True) if holes else (False,)
        ways = [Dense(fill, more, h) for fill in fills for more in extra_rows for h in kinds]
    for way in ways:
        how = f" as {way}" if isinstance(way, Dense) else ""
        for b, (actual, expected) in enumerate(zip(way(module, sets), alone, strict=True)):
            compare(f"set {b} changes in a batch{how}", actual, expected, rtol, atol)
