"""The summary of a small table, as `slicegraph.data.summary.summarize` makes it."""

from collections.abc import Sequence
from typing import Any


def target(
    name: str = "gap", kind: str = "regression", classes: Sequence[str] = ()
) -> dict[str, Any]:
    """A target of the summary: of 24, 3 and 3 labels."""
    shares = {"train": [20, 4], "valid": [3, 0], "test": [2, 1]}
    facts = {"missing": 0, "censored": 0, "mean": 1.5, "std": 0.5, "min": 1.0, "max": 2.0}
    splits = {
        split: {"count": sum(counts), "classes" if classes else "histogram": counts, **facts}
        for split, counts in shares.items()
    }
    edges = [] if classes else [1.0, 1.5, 2.0]
    shown = {"name": name, "kind": kind, "unit": "", "classes": list(classes), "log": False}
    return {**shown, "splits": splits, "edges": edges}


SUMMARY: dict[str, Any] = {
    "file": "own.csv",
    "rows": 37,
    "accepted": 32,
    "lost": {"without a label": 0, "left out as limits": 0, "rejected": 5},
    "rejected": [
        {"reason": "unclosed ring", "count": 4, "examples": [{"row": 7, "text": "C1CC"}]},
        {"reason": "no SMILES", "count": 1, "examples": [{"row": 9, "text": ""}]},
    ],
    "rejected_file": "store/rejected.csv",
    "left_out": 2,
    "odd": {"text": "2 salts or mixtures (--standardize)"},
    "duplicates": 6,
    "conflicts": 5,
    "splits": {
        "train": {"rows": 24, "molecules": 18},
        "valid": {"rows": 3, "molecules": 3},
        "test": {"rows": 3, "molecules": 3},
    },
    "overlap": 0,
    "targets": [target()],
    "sizes": {"smallest": 2, "median": 14.5, "largest": 40},
    "similarity": {"median": 0.35, "share_below_0.4": 0.75, "histogram": [0, 1, 2, 0]},
    "standardize": ["fragment", "charge"],
    "notes": ["the target gap was guessed; --targets chooses another"],
    "warnings": ["the test split has only 3 molecules: its scores have wide intervals"],
}
