"""The models by name: ours (`slicegraph-*`, `mini`), the paper's, and Graphormer."""

from typing import Any

from slicegraph.models.config import OGB_ATOMS, OGB_BONDS, GraphSliceformerConfig

_BASE = {
    "num_layers": 12,
    "channels": 768,
    "ffn_channels": 768,
    "heads": 32,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "recompute": "mix",
}
_SMALL = _BASE | {"num_layers": 6, "channels": 512, "ffn_channels": 512}
_SLIM = _BASE | {"channels": 80, "ffn_channels": 80, "heads": 8, "recompute": "none"}
_MINI = {"num_layers": 5, "channels": 96, "ffn_channels": 96, "heads": 8}
_OURS = {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"}
_SORT = {"mixer": "sort_attn", "order": "ascending"}
_QKV = {"mixer": "qkv"}

PRESETS: dict[str, dict[str, Any]] = {
    "slicegraph-base": _BASE | _OURS,
    "slicegraph-small": _SMALL | _OURS,
    "slicegraph-slim": _SLIM | _OURS,
    "mini": _MINI | _OURS,
    "sliceformer-base": _BASE | _SORT,
    "sliceformer-base-interleave": _BASE | _SORT | {"order": "interleave"},
    "graphormer-base": _BASE | _QKV,
    "sliceformer-small": _SMALL | _SORT,
    "graphormer-small": _SMALL | _QKV,
    "sliceformer-slim": _SLIM | _SORT,
    "graphormer-slim": _SLIM | _QKV,
}
"""The size and the mixer of each preset."""

VOCABULARIES: dict[str, dict[str, Any]] = {
    "ogb": {"node_vocabulary": OGB_ATOMS, "edge_vocabulary": OGB_BONDS},
    "graphormer": {
        "node_vocabulary": (512,) * len(OGB_ATOMS),
        "edge_vocabulary": (512,) * len(OGB_BONDS),
        "max_distance": 509,
        "max_degree": 510,
        "padding_row": True,
        "hop_blocks": 128,
    },
}
"""The tables: as large as OGB's features need, or as large as those of Graphormer v1."""


def preset(name: str, vocabulary: str = "ogb", **overrides: Any) -> GraphSliceformerConfig:
    """The configuration of a preset.

    Args:
        name: a name from :obj:`PRESETS`.
        vocabulary: ``"ogb"``, or ``"graphormer"`` for tables of 512 entries per feature.
        **overrides: fields of the configuration that shall differ.

    Example:
        >>> preset("sliceformer-slim", num_targets=3).channels
        80
    """
    for what, value, known in (
        ("preset", name, PRESETS),
        ("vocabulary", vocabulary, VOCABULARIES),
    ):
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}, expected one of {', '.join(known)}")
    return GraphSliceformerConfig.from_dict(PRESETS[name] | VOCABULARIES[vocabulary] | overrides)
