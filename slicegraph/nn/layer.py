"""The base class of all layers, and the norms they can have."""

from collections.abc import Iterable
from typing import Any

import torch
from torch_geometric.nn.inits import reset

NORMS: dict[str, type[torch.nn.Module]] = {
    "layer": torch.nn.LayerNorm,
    "batch": torch.nn.BatchNorm1d,  # over the rows of all sets of a batch
}


class Layer(torch.nn.Module):
    """A module with the ``reset_parameters`` of PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        if type(self).fill_buffers is not Layer.fill_buffers:
            self.register_load_state_dict_post_hook(_fill_buffers)

    def fill_buffers(self) -> None:
        """Computes the buffers that checkpoints do not contain.

        This also happens after a checkpoint was loaded: a module that was built on the meta device
        or moved by ``to_empty`` has no values yet.
        """

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        for child in self.children():
            reset(child)

    def _check_choice(self, what: str, value: str, known: Iterable[str]) -> None:
        if value not in (names := list(known)):
            owner, expected = type(self).__name__, ", ".join(names)
            raise ValueError(f"{owner}: unknown {what} {value!r}, expected one of {expected}")


def _fill_buffers(layer: Layer, _: Any) -> None:
    layer.fill_buffers()
