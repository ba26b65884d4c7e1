"""The laws of the order of rows: it does not matter, or the output follows it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from slicegraph.testing.compare import compare
from slicegraph.testing.layouts import Layout, layout_named

Permute = Callable[[Any, Tensor], Any]


def assert_permutation_invariant(
    module: Callable,
    sets: Sequence[Any],
    layout: Layout = "dense",
    *,
    permute: Permute | None = None,
    trials: int = 3,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    r"""Asserts that the order of the rows of a set does not matter.

    .. math:: f(P X) = f(X)

    The sort is such a function, row by row of its output, and so is every readout.

    Args:
        module, sets, layout, rtol, atol: see :mod:`slicegraph.testing`.
        permute: ``permute(sample, perm)`` renumbers a sample that is not a tensor, such as a graph
            with ``num_nodes``; new row ``i`` is old row ``perm[i]``.
        trials: how many permutations to try; the first reverses the rows.

    Example:
        >>> assert_permutation_invariant(SliceSort(8), [torch.randn(5, 8), torch.randn(2, 8)])
    """
    before, _, after = _permuted_outputs(module, sets, layout, permute, trials)
    for outputs in after:
        for b, (actual, expected) in enumerate(zip(outputs, before, strict=True)):
            compare(f"set {b} changes when its rows are permuted", actual, expected, rtol, atol)


def assert_permutation_equivariant(
    module: Callable,
    sets: Sequence[Any],
    layout: Layout = "dense",
    *,
    permute: Permute | None = None,
    trials: int = 3,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    r"""Asserts that permuting the rows of a set permutes its output in the same way.

    .. math:: f(P X) = P f(X)

    The arguments are those of :func:`assert_permutation_invariant`.

    Example:
        >>> linear = torch.nn.Linear(8, 8)
        >>> assert_permutation_equivariant(lambda x, mask: linear(x), [torch.randn(5, 8)])
    """
    before, perms, after = _permuted_outputs(module, sets, layout, permute, trials)
    for trial, outputs in zip(perms, after, strict=True):
        for b, (perm, actual, expected) in enumerate(zip(trial, outputs, before, strict=True)):
            if expected.shape[:1] != perm.shape:
                raise AssertionError(
                    f"set {b} has {len(perm)} rows, its output of shape {list(expected.shape)} not"
                )
            what = f"set {b} is not permuted like its rows"
            compare(what, actual, expected[perm.to(expected.device)], rtol, atol)


def _permuted_outputs(
    module: Callable, sets: Sequence[Any], layout: Layout, permute: Permute | None, trials: int
) -> tuple[Sequence[Tensor], list[list[Tensor]], list[Sequence[Tensor]]]:
    """The outputs as they are, the permutations, and the outputs after each of them."""
    run, generator = layout_named(layout), torch.Generator().manual_seed(0)
    sizes = [len(one) if isinstance(one, Tensor) else one.num_nodes for one in sets]
    perms = [[torch.arange(n).flip(0) for n in sizes]]
    perms += [[torch.randperm(n, generator=generator) for n in sizes] for _ in range(trials - 1)]
    moved = [list(map(permute or _permute_rows, sets, trial)) for trial in perms]
    return run(module, sets), perms, [run(module, batch) for batch in moved]


def _permute_rows(rows: Tensor, perm: Tensor) -> Tensor:
    return rows[perm.to(rows.device)]
