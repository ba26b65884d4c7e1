"""Dropout by a hash of each place, in plain torch: the specification, on any device."""

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF


def dropped_below(p: float) -> int:
    """The hash, of 32 bits, from which on an entry is kept."""
    return min(round(p * 2**32), _LOW)


def dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """`out[i] = x[i] / (1 - p)`, or 0 where the hash of `i` and the seed is small."""
    place = torch.arange(x.numel(), device=x.device)
    low, high = seed & _LOW, (seed >> 32) & _LOW
    first = _scramble((low + place) & _LOW)
    kept = _scramble(first ^ ((high + (place >> 32) * 0x9E3779B9) & _LOW)) >= dropped_below(p)
    return torch.where(kept.view(x.shape), x * (1 / (1 - p)), 0)


def _scramble(x: Tensor) -> Tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D & _LOW
    x = (x ^ (x >> 15)) * 0x846CA68B & _LOW
    return x ^ (x >> 16)
