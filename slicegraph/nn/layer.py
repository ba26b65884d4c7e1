"""The base class of all layers, and the norms they can have."""

from collections.abc import Iterable

import torch
from torch_geometric.nn.inits import reset

NORMS: dict[str, type[torch.nn.Module]] = {
    "layer": torch.nn.LayerNorm,
    "batch": torch.nn.BatchNorm1d,  # over the rows of all sets of a batch
}


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
