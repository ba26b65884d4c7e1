"""The laws of set layers as assertions, for the layers of slicegraph and for your own.

Every law is about a batch of sets and takes

- ``module``: a layer, a model or any function;
- ``sets``: the samples, usually tensors ``[n, C]`` of different lengths;
- ``layout``: how the module takes a batch. ``"dense"`` calls ``module(x, mask=mask)`` with ``x``
  ``[B, N, C]`` and ``mask`` ``[B, N]`` true at the real rows; ``"packed"`` calls
  ``module(x, batch=batch)`` with ``x`` ``[T, C]`` and a PyG ``batch`` vector. For anything else,
  such as graphs, give a function ``(module, sets) -> list of outputs, one per set``.

The output may have a row for each row of the input or be one vector per set. The module is left in
its mode: call ``module.eval()`` first if it has dropout. The tolerances are those of
:func:`torch.testing.assert_close`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

from slicegraph.ops.operator import available, use_backend

__all__ = [
    "assert_backends_agree",
    "assert_padding_invariant",
    "assert_permutation_equivariant",
    "assert_permutation_invariant",
]

Run = Callable[[Callable, Sequence[Any]], Sequence[Tensor]]
Permute = Callable[[Any, Tensor], Any]


def assert_padding_invariant(
    module: Callable,
    sets: Sequence[Any],
    layout: str | Run = "dense",
    *,
    holes: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    r"""Asserts that a set gets the same output alone as in a batch.

    .. math:: f(\{S_1, \ldots, S_B\})_b = f(\{S_b\})

    Args:
        module, sets, layout, rtol, atol: see :mod:`slicegraph.testing`. Sets of different lengths
            make the batch padded.
        holes: whether the padding of a dense batch may lie between the real rows too.

    Example:
        >>> sets = [torch.randn(n, 8) for n in (5, 1, 3)]
        >>> assert_padding_invariant(SliceSort(8), sets, "dense", holes=True)
        >>> assert_padding_invariant(SliceSort(8), sets, "packed")
    """
    run = _layout_named(layout)
    alone = [run(module, [one])[0] for one in sets]
    ways = [run]
    if isinstance(run, Dense):
        # Fills on both sides of the data find a layer that sorts its padding along.
        ways = list(starmap(Dense, product((0.0, 100.0, -100.0), (0, 3), sorted({False, holes}))))
    for way in ways:
        how = f" as {way}" if isinstance(way, Dense) else ""
        for b, (actual, expected) in enumerate(zip(way(module, sets), alone, strict=True)):
            _compare(f"set {b} changes in a batch{how}", actual, expected, rtol, atol)


def assert_permutation_invariant(
    module: Callable,
    sets: Sequence[Any],
    layout: str | Run = "dense",
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
    for b, _, actual, expected in _permuted_outputs(module, sets, layout, permute, trials):
        _compare(f"set {b} changes when its rows are permuted", actual, expected, rtol, atol)


def assert_permutation_equivariant(
    module: Callable,
    sets: Sequence[Any],
    layout: str | Run = "dense",
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
    for b, perm, actual, expected in _permuted_outputs(module, sets, layout, permute, trials):
        if expected.shape[:1] != perm.shape:
            shape = list(expected.shape)
            raise AssertionError(f"set {b} has {len(perm)} rows, but its output has shape {shape}")
        permuted = expected[perm.to(expected.device)]
        _compare(f"set {b} is not permuted like its rows", actual, permuted, rtol, atol)


def _permuted_outputs(
    module: Callable, sets: Sequence[Any], layout: str | Run, permute: Permute | None, trials: int
) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Yields number, permutation, output after it and output before it, of each set and trial."""
    run, generator = _layout_named(layout), torch.Generator().manual_seed(0)
    permute = permute or (lambda rows, perm: rows[perm.to(rows.device)])
    sizes = [len(one) if isinstance(one, Tensor) else one.num_nodes for one in sets]
    before = run(module, sets)
    for trial in range(trials):
        perms = [torch.randperm(n, generator=generator) for n in sizes]
        if trial == 0:
            perms = [torch.arange(n).flip(0) for n in sizes]
        after = run(module, list(map(permute, sets, perms)))
        yield from zip(range(len(sets)), perms, after, before, strict=True)


def assert_backends_agree(
    function: Callable, *args: Any, rtol: float = 0.0, atol: float = 0.0, **kwargs: Any
) -> list[str]:
    """Asserts that every backend of the device gives the outputs and gradients of the reference.

    Args:
        function: a module, or any function that returns a tensor or a tuple of tensors.
        args, kwargs: its arguments. Gradients are compared for those that are tensors of
            floating-point numbers, and for the parameters of a module.
        rtol, atol: 0 by default, as the backends are equal to the bit; a function whose order of
            summation changes from run to run needs more.

    Returns:
        The names of the backends that were compared; ``["reference"]`` if there is no other.

    Example:
        >>> assert_backends_agree(SliceSort(8), torch.randn(2, 5, 8))
        ['cpu', 'reference']
    """
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    names = available(tensors[0].device.type if tensors else "cpu")
    results = {name: _run_on(name, function, args, kwargs) for name in names}
    for name in names:
        for what, expected in results["reference"].items():
            problem = f"backend {name!r} differs from the reference in the {what}"
            _compare(problem, results[name][what], expected, rtol, atol)
    return names


def _run_on(
    name: str, function: Callable, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Tensor]:
    """Returns the outputs on a backend, and the gradients of a random weighting of them."""
    leaves: dict[str, Tensor] = {}

    def leaf(what: str, value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            value = leaves[what] = value.detach().clone().requires_grad_()
        return value

    args = [leaf(f"gradient of argument {i}", value) for i, value in enumerate(args)]
    kwargs = {key: leaf(f"gradient of {key}", value) for key, value in kwargs.items()}
    if isinstance(function, torch.nn.Module):
        leaves |= {f"gradient of {n}": p for n, p in function.named_parameters() if p.requires_grad}
    with use_backend(name), torch.random.fork_rng():
        torch.manual_seed(0)
        out = function(*args, **kwargs)
        outputs = [out] if isinstance(out, Tensor) else [o for o in out if isinstance(o, Tensor)]
        found = {f"output {i}": o.detach() for i, o in enumerate(outputs)}
        smooth = [o for o in outputs if o.requires_grad]
        if smooth and leaves:
            weights, inputs = [torch.randn_like(o) for o in smooth], list(leaves.values())
            gradients = torch.autograd.grad(smooth, inputs, weights, materialize_grads=True)
            found |= dict(zip(leaves, gradients, strict=True))
    return found


def _layout_named(layout: str | Run) -> Run:
    """Returns the function that calls a module on a batch of sets."""
    if callable(layout):
        return layout
    layouts: dict[str, Run] = {"dense": Dense(), "packed": _packed}
    if layout not in layouts:
        raise ValueError(f"unknown layout {layout!r}, expected 'dense', 'packed' or a function")
    return layouts[layout]


@dataclass(frozen=True)
class Dense:
    """Pads the sets to a common length, with `fill` in the rows that are not real."""

    fill: float = 0.0
    extra_rows: int = 0
    holes: bool = False

    def __call__(self, module: Callable, sets: Sequence[Tensor]) -> list[Tensor]:
        length = max(len(rows) for rows in sets) + self.extra_rows
        x = sets[0].new_full((len(sets), length, *sets[0].shape[1:]), self.fill)
        mask = x.new_zeros(x.shape[:2], dtype=torch.bool)
        for b, rows in enumerate(sets):
            places = torch.arange(length)
            if self.holes:
                places = torch.randperm(length, generator=torch.Generator().manual_seed(b))
            mask[b, places[: len(rows)]] = True
            x[b, mask[b]] = rows
        out = module(x, mask=mask)
        if out.shape[:2] == mask.shape and out.dim() == x.dim():
            return [out[b, mask[b]] for b in range(len(sets))]
        if out.shape[0] != len(sets):
            raise ValueError(f"an output of shape {list(out.shape)} for {list(x.shape)}")
        return list(out)


def _packed(module: Callable, sets: Sequence[Tensor]) -> list[Tensor]:
    """Concatenates the sets, with a PyG `batch` vector."""
    sizes = [len(rows) for rows in sets]
    x = torch.cat(list(sets))
    if len(x) == len(sets) and set(sizes) != {1}:
        problem = "an output per row cannot be told from one per set"
        raise ValueError(f"{len(x)} rows in {len(sets)} sets: {problem}")
    batch = torch.arange(len(sets)).repeat_interleave(torch.tensor(sizes)).to(x.device)
    out = module(x, batch=batch)
    if out.shape[0] not in (len(x), len(sets)):
        raise ValueError(f"an output of {len(out)} rows for {len(x)} rows in {len(sets)} sets")
    return list(out.split(sizes if out.shape[0] == len(x) else 1))


def _compare(
    problem: str, actual: Tensor, expected: Tensor, rtol: float | None, atol: float | None
) -> None:
    """Raises an AssertionError that begins with `problem` unless the tensors are close."""
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{problem}: {m}"
    )
