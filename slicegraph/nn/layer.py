"""The base class of all layers."""

from collections.abc import Iterable

import torch
from torch_geometric.nn.inits import reset


class Layer(torch.nn.Module):
    """A module with the ``reset_parameters`` of PyG's layers."""

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        for child in self.children():
            reset(child)

    def _check_choice(self, what: str, value: str, known: Iterable[str]) -> None:
        if value not in (names := list(known)):
            owner, expected = type(self).__name__, ", ".join(names)
            raise ValueError(f"{owner}: unknown {what} {value!r}, expected one of {expected}")
