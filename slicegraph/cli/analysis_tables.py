"""What `slicegraph analyze` prints of the layers."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slicegraph.analysis import Findings


def rank_lines(models: Sequence["Findings"]) -> list[str]:
    """A table of the ranks, a line for each layer and one for their mean."""
    from slicegraph.analysis.page import rank_rows

    head, rows = rank_rows(models)
    means = ["mean", *(cell for model in models for cell in (model.effective_rank, None, None))]
    return _aligned(head, [*rows, means])


def decay_lines(model: "Findings", twin: "Findings") -> list[str]:
    """A table of the spectra of both, and in how many layers the model's decays more slowly.

    The measure is that of :mod:`slicegraph.analysis.decay`: the area under sigma_k / sigma_1.
    """
    from slicegraph.analysis.decay import decay_rows, slower_layers

    slower, layers = slower_layers(model, twin)
    return [
        *_aligned(*decay_rows([model, twin])),
        f"the spectrum of {model.name} decays more slowly than that of {twin.name} in {slower} of "
        f"{layers} layers, by the area under sigma_k / sigma_1",
    ]


def _aligned(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    from slicegraph.report.markup import cell

    cells = [list(head), *([cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)).rstrip() for row in cells]
