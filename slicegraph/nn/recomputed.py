"""What is computed once more in the backward pass instead of being kept for it."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def recomputed(run: Callable[[Tensor], Tensor], x: Tensor, is_random: bool) -> Tensor:
    """``run(x)``, of which only ``x`` is kept; with the same random numbers if ``is_random``."""
    if not torch.is_grad_enabled():
        return run(x)
    return checkpoint(run, x, use_reentrant=False, preserve_rng_state=is_random)
