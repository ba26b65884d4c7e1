"""What is kept of a model's samples, of which only a few are traced at a time."""

from collections import defaultdict

from torch import Tensor

from slicegraph.analysis.spectrum import one_below_another, singular_values
from slicegraph.analysis.trace import LayerTrace


class Gathered:
    """The singular values of all sets, and the rows of one of them.

    The rows of a long sequence in all layers are large, their singular values are not.

    Args:
        name: that of the model, for errors.
        chosen: the number of the set whose rows are kept, from 0.
    """

    def __init__(self, name: str, chosen: int) -> None:
        self.name, self.chosen = name, chosen
        self.sizes: list[int] = []
        self.kept: list[LayerTrace] = []
        self._values: defaultdict[str, list[Tensor]] = defaultdict(list)

    def add(self, layers: list[LayerTrace]) -> None:
        """Takes what it keeps of the next sets."""
        place, sizes = self.chosen - len(self.sizes), layers[0].ptr.diff().tolist()
        if 0 <= place < len(sizes):
            self.kept = [layer.only(place) for layer in layers]
        self.sizes += sizes
        for number, layer in enumerate(layers, start=1):
            self._add(f"layer {number}", layer.mixed, layer.ptr)
            self._add(f"block {number}", layer.block, layer.ptr)

    def values(self, what: str) -> Tensor:
        """``[B, K]``: the singular values of ``"layer 1"``, ``"block 1"`` ... of every set."""
        return one_below_another(self._values[what])

    def _add(self, what: str, rows: Tensor, ptr: Tensor) -> None:
        if not bool(rows.isfinite().all()):
            raise ValueError(
                f"{self.name}: {what} has an output that is not finite; was the training stopped?"
            )
        self._values[what].append(singular_values(rows, ptr))
