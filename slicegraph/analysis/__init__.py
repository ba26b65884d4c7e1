"""What the mixing layers of a model do: singular spectra, ranks, permutations, and a page of them.

Everything is measured on samples that go through the model; nothing is trained.
"""

from slicegraph.analysis.findings import Findings, LayerFindings, check_sample, measure
from slicegraph.analysis.page import Choice
from slicegraph.analysis.permutation import implicit_permutation
from slicegraph.analysis.smoothing import Smoothing, softmax_smoothing
from slicegraph.analysis.spectrum import effective_rank, singular_values
from slicegraph.analysis.trace import LayerTrace, trace
from slicegraph.analysis.write import write_analysis

__all__ = [
    "Choice",
    "Findings",
    "LayerFindings",
    "LayerTrace",
    "Smoothing",
    "check_sample",
    "effective_rank",
    "implicit_permutation",
    "measure",
    "singular_values",
    "softmax_smoothing",
    "trace",
    "write_analysis",
]
