"""Samples for `slicegraph analyze`, of which only a few go through a model at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_MOST_ELEMENTS = 1 << 14
"""In a batch: what every layer of a model makes of them is in memory at once."""


@dataclass(frozen=True)
class Samples:
    """Samples of a data set.

    Args:
        read: what a model is called with for the samples of these numbers.
        sizes: how many elements each sample has: atoms, tokens or numbers, of an image pixels.
        name: what they are.
        note: what to say of them.
    """

    read: "Callable[[np.ndarray], tuple[Any, ...]]"
    sizes: "np.ndarray"
    name: str
    note: str = ""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.sizes)

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """What a model is called with, a few samples at a time: of long ones only one."""
        import numpy as np

        each = max(1, _MOST_ELEMENTS // max(1, int(self.sizes.max())))
        for first in range(0, self.count, each):
            yield self.read(np.arange(first, min(first + each, self.count)))
