"""What all ranks have found, put together so that every molecule counts once."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed


class Gathered:
    """Scores by molecule, collected batch by batch on each rank."""

    def __init__(self) -> None:
        self._index: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []

    def add(self, index: Tensor, scores: Tensor) -> None:
        """The positions of molecules in the store, ``[B]``, and their scores, ``[B, ...]``."""
        self._index.append(index.cpu().numpy())
        self._scores.append(scores.detach().float().cpu().numpy())

    def in_order(self, positions: np.ndarray) -> Tensor:
        """The scores of these molecules, from all ranks; raises unless each was found once."""
        own = (np.concatenate(self._index), np.concatenate(self._scores))
        index, scores = (np.concatenate(parts) for parts in zip(*from_all_ranks(own), strict=True))
        order, wanted = np.argsort(index, kind="stable"), np.argsort(positions, kind="stable")
        if not np.array_equal(index[order], positions[wanted]):
            raise RuntimeError(
                f"evaluation: {len(index)} predictions for {len(positions)} molecules, expected "
                "one for each"
            )
        result = np.empty_like(scores)
        result[wanted] = scores[order]
        return torch.from_numpy(result)


def from_all_ranks(own: Any) -> list[Any]:
    """The values of all ranks, in their order, on each of them."""
    if not _several_ranks():
        return [own]
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own)
    return found


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, without a gradient."""
    if _several_ranks():
        values = values.clone()
        distributed.all_reduce(values)
    return values


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether it is so on any rank."""
    if not _several_ranks():
        return flag
    return bool(sum_over_ranks(torch.tensor([float(flag)], device=device)).item())


def _several_ranks() -> bool:
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
