"""Analysis of the mixing layers of a model: singular spectra, ranks, permutations, and a page.

All measures are taken on samples that go through the model; nothing is trained.
"""

from slicegraph.extras import needs

with needs(__name__, "mol", "train"):
    from slicegraph.analysis.measures import (
        Findings,
        LayerFindings,
        LayerTrace,
        Samples,
        Smoothing,
        check_sample,
        effective_rank,
        implicit_permutation,
        measure,
        singular_values,
        slice_weights,
        softmax_smoothing,
        spaced_positions,
        trace,
    )
    from slicegraph.analysis.page import Choice, table_lines, write_analysis

__all__ = [
    "Choice",
    "Findings",
    "LayerFindings",
    "LayerTrace",
    "Samples",
    "Smoothing",
    "check_sample",
    "effective_rank",
    "implicit_permutation",
    "measure",
    "singular_values",
    "slice_weights",
    "softmax_smoothing",
    "spaced_positions",
    "table_lines",
    "trace",
    "write_analysis",
]
