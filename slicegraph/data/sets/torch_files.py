"""Reads the `.pt` files of OGB and PyG on a current torch, and nothing but data from them."""

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.serialization import (
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)
from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from slicegraph.torch_damage import DAMAGE

# How NumPy's arrays begin in a pickle; NumPy 1 knew the function by the second name.
_RECONSTRUCT: Any = np.empty(0).__reduce__()[0]
_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
ALLOWED: list[Any] = [
    *(Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, defaultdict, dict, list, set),
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("_core", "core")),
    *(np.ndarray, np.dtype),
    *dict.fromkeys(type(np.dtype(name)) for name in _NUMBERS),
]
"""What these files may hold beside tensors: graphs of PyG, arrays of numbers."""

_one_at_a_time = threading.Lock()


def read_pt(path: str | Path) -> Any:
    """What `torch.save` wrote to a file, if it is tensors, arrays and PyG graphs.

    Since 2.6 `torch.load` refuses the files of OGB, which have graphs of PyG and arrays of NumPy.
    Here these few classes are allowed, for this one call: everything else is refused as before,
    and no code of the file is run.
    """
    with _one_at_a_time:
        # Leaving safe_globals() takes its classes off the list, also those that were there before.
        known = set(get_safe_globals())
        with safe_globals([entry for entry in ALLOWED if entry not in known]):
            return _load(Path(path))


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except DAMAGE as error:
        raise ValueError(f"{path} is not read: {_problem(path)}") from error


def _problem(path: Path) -> str:
    try:
        others = get_unsafe_globals_in_checkpoint(str(path))
    except DAMAGE:
        others = []
    if others:
        return (
            f"it has {', '.join(sorted(others))} in it; only tensors, arrays of numbers and graphs "
            "of PyG are read"
        )
    return "it is damaged, or was not written by torch.save"
