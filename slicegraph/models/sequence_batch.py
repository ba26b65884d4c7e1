"""A padded batch of sequences, packed."""

from typing import NamedTuple

import torch
from torch import Tensor

from slicegraph.nn.padded_sets import collect_rows


class SequenceBatch(NamedTuple):
    """The elements of all sequences one after another, and where each sequence begins."""

    elements: Tensor
    ptr: Tensor


def pack(x: Tensor, mask: Tensor | None) -> SequenceBatch:
    """Packs ``x`` ``[B, N, ...]``, of which ``mask`` ``[B, N]`` marks the real elements.

    Example:
        >>> x = torch.tensor([[5, 6, 0], [7, 0, 0]])
        >>> pack(x, x > 0)
        SequenceBatch(elements=tensor([5, 6, 7]), ptr=tensor([0, 2, 3]))
    """
    num_sets, length = x.shape[:2]
    elements = x.flatten(0, 1)
    if mask is None:
        return SequenceBatch(elements, length * torch.arange(num_sets + 1, device=x.device))
    places = mask.flatten().nonzero().squeeze(1)
    ptr = torch.cat([places.new_zeros(1), mask.sum(1).cumsum(0)])
    if elements.is_floating_point():
        return SequenceBatch(collect_rows(elements, places), ptr)
    return SequenceBatch(elements[places], ptr)
