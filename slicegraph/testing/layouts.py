"""The ways in which a module takes a batch of sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Run = Callable[[Callable, Sequence[Any]], Sequence[Tensor]]
Layout = str | Run


def layout_named(layout: Layout) -> Run:
    """The function that calls a module on a batch of sets; a function stands for itself."""
    if callable(layout):
        return layout
    if layout not in ("dense", "packed"):
        raise ValueError(f"unknown layout {layout!r}, expected 'dense', 'packed' or a function")
    return Dense() if layout == "dense" else packed


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
            mask[b, self._positions(len(rows), length, seed=b)] = True
            x[b, mask[b]] = rows
        out = module(x, mask=mask)
        if out.shape[:2] == mask.shape and out.dim() == x.dim():
            return [out[b, mask[b]] for b in range(len(sets))]
        if out.shape[0] != len(sets):
            raise ValueError(f"an output of shape {list(out.shape)} for {list(x.shape)}")
        return list(out)

    def _positions(self, count: int, length: int, seed: int) -> Tensor:
        if not self.holes:
            return torch.arange(count)
        return torch.randperm(length, generator=torch.Generator().manual_seed(seed))[:count]


def packed(module: Callable, sets: Sequence[Tensor]) -> list[Tensor]:
    """Concatenates the sets, with a PyG `batch` vector."""
    sizes = [len(rows) for rows in sets]
    x = torch.cat(list(sets))
    if len(x) == len(sets) and set(sizes) != {1}:
        raise ValueError(
            f"{len(x)} rows in {len(sets)} sets: an output per row cannot be told from one per set"
        )
    batch = torch.arange(len(sets)).repeat_interleave(torch.tensor(sizes)).to(x.device)
    out = module(x, batch=batch)
    if out.shape[0] not in (len(x), len(sets)):
        raise ValueError(f"an output of {len(out)} rows for {len(x)} rows in {len(sets)} sets")
    return list(out.split(sizes if out.shape[0] == len(x) else 1))
