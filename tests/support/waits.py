"""What would make the host wait for a GPU, found on the CPU."""

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from slicegraph.ops import reference
from slicegraph.ops.operator import as_on_gpu

# Operators whose output has a size that the values decide, or that return a value to Python.
READERS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique_dim", "_unique2")
READERS += ("unique_consecutive", "bincount", "is_nonzero", "allclose")
COPIES = ("cpu", "numpy", "tolist", "__array__")


@contextlib.contextmanager
def waits_on_gpu() -> Iterator[list[str]]:
    """Run the code of a GPU on the CPU; the list that it yields fills with what would wait there.

    Example:
        >>> with waits_on_gpu() as waits:
        ...     model(batch).sum().backward()
        >>> assert waits == []
    """
    waits: list[str] = []
    with as_on_gpu(), _Copies(waits), _Readers(waits):
        yield waits


def _place(name: str) -> str:
    """The operator, and the line of the package that called it."""
    calls = [f for f in traceback.extract_stack() if "slicegraph/" in f.filename]
    ours = [f for f in calls if "/tests/" not in f.filename]
    return f"{name} at {ours[-1].filename}:{ours[-1].lineno}" if ours else name


class _Readers(TorchDispatchMode):
    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if func.namespace == "slicegraph" and hasattr(reference, name.removesuffix("_kernel")):
            with self:  # look inside: the operators of torch that a kernel would replace
                return getattr(reference, name.removesuffix("_kernel"))(*args)
        sized = name == "repeat_interleave" and (kwargs or {}).get("output_size") is None
        masked = name.startswith("index") and any(
            isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8)
            for x in (args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ())
        )
        if name in READERS or sized or masked:
            self.waits.append(_place(name))
        return func(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    """Copies to the host, which do nothing on the CPU, so that no operator is called."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        targets = [*args[1:], *(kwargs or {}).values()]
        to_host = name == "to" and any(str(x) == "cpu" for x in targets if not torch.is_tensor(x))
        of_tensor = bool(args) and isinstance(args[0], Tensor) and args[0].numel() > 0
        if of_tensor and (to_host or name in COPIES):
            self.waits.append(_place(f"Tensor.{name}"))
        return func(*args, **(kwargs or {}))
