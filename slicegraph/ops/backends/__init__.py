"""Which code runs an operator: `reference` (torch), `cpu` (C++) or `triton` (CUDA).

The fastest available backend of the tensor's device is used. `SLICEGRAPH_BACKEND=reference` in the
environment, or `with use_backend("reference"):` around some lines, forces one.
"""

import contextlib
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch import Tensor

from slicegraph.ops.backends import (
    cpu,
    cpu_bias,
    cpu_dropout,
    cpu_edges,
    cpu_pairs,
    cpu_rows,
    cpu_tables,
    reference,
    reference_bias,
    reference_dropout,
    reference_edges,
    reference_pairs,
    reference_rows,
    reference_tables,
    triton,
)

BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "triton": triton, "reference": reference}
# The files of a backend that has several, the first being the one that is chosen.
_PARTS = (
    (cpu, cpu_bias, cpu_dropout, cpu_edges, cpu_pairs, cpu_rows, cpu_tables),
    (
        reference,
        reference_bias,
        reference_dropout,
        reference_edges,
        reference_pairs,
        reference_rows,
        reference_tables,
    ),
)

_forced: str | None = os.environ.get("SLICEGRAPH_BACKEND") or None
_chosen: dict[str, ModuleType] = {}
_implementations: dict[tuple[str, str], Any] = {}


def problem(name: str, device_type: str) -> str | None:
    """Why a backend cannot serve tensors of a device, or None if it can."""
    return BACKENDS[name].problem(device_type)


def available(device_type: str) -> list[str]:
    """The backends that can serve tensors of a device, fastest first."""
    return [name for name in BACKENDS if problem(name, device_type) is None]


def default(device_type: str) -> str:
    """The backend that serves tensors of a device when none is forced."""
    return next(n for n in available(device_type) if device_type in BACKENDS[n].AUTOMATIC)


def choose(device_type: str) -> ModuleType:
    """The backend in force for tensors of a device."""
    if device_type not in _chosen:
        if _forced is not None:
            _check_forced(_forced, device_type)
        _chosen[device_type] = BACKENDS[_forced or default(device_type)]
    return _chosen[device_type]


def _check_forced(name: str, device_type: str) -> None:
    reason = "there is no such backend" if name not in BACKENDS else problem(name, device_type)
    if reason is not None:
        raise ValueError(
            f"SLICEGRAPH_BACKEND: {name!r} cannot serve {device_type} tensors: {reason}; "
            f"available: {', '.join(available(device_type))}"
        )


def implementation(operator: str, x: Tensor) -> Any:
    """A backend's function for an operator; what a backend does not have, the reference does."""
    device_type = "cpu" if x.is_cpu else x.device.type
    found = _implementations.get((operator, device_type))
    if found is None:
        parts = (*_parts(choose(device_type)), *_parts(reference))
        found = next(getattr(part, operator) for part in parts if hasattr(part, operator))
        _implementations[operator, device_type] = found
    return found


def _parts(backend: ModuleType) -> tuple[ModuleType, ...]:
    return next((parts for parts in _PARTS if parts[0] is backend), (backend,))


@contextlib.contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Runs every slicegraph operator inside the `with` block on one backend.

    Example:
        >>> with use_backend("reference"):
        ...     values = column_sort(x, return_indices=False)
    """
    before = _forced
    _force(name)
    try:
        yield
    finally:
        _force(before)


def _force(name: str | None) -> None:
    global _forced
    _forced = name
    _chosen.clear()
    _implementations.clear()
