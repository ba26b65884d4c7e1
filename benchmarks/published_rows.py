"""The rows of `benchmarks.published`: the models, how they are trained, and published figures."""

from typing import Any

from benchmarks.published_train import Recipe

Row = tuple[dict[str, Any], Recipe]


def _size(layers: int, channels: int, wide: int = 2, heads: int = 8) -> dict[str, Any]:
    sizes = {"num_layers": layers, "channels": channels, "ffn_channels": wide * channels}
    return {**sizes, "heads": heads}


_FIELD = Recipe()  # that of GPS and GRIT, but for the epochs
_GROUPED = Recipe(window=8)
_WALKS = {"walk_length": 21, "norm": "batch", "head_layers": 3}
_GPS = {"mixer": "attn", "local": "gine", "readout": "sum"} | _WALKS
_EACH = {"walk_layers": True}
_OURS = {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"}

_ANCHORS: dict[str, Row] = {
    "graphormer-slim (ours)": (
        _size(12, 80, 1)
        | {"mixer": "qkv", "readout": "token", "dropout": 0.1, "attention_dropout": 0.1},
        Recipe(lr=2e-4, end_lr=1e-9, warmup=0.1, weight_decay=0.01, clip=5.0, batch_size=256),
    ),
    "GPS (PyG)": (
        _size(10, 64, heads=4) | {"kind": "gps", "attention_dropout": 0.5, "walk_length": 21},
        _FIELD,
    ),
}
"""Published models that we train ourselves: Graphormer in our code, GPS in PyG's."""

_V3 = _size(10, 64) | _GPS | _EACH


def _v3(**changed: Any) -> Row:
    return _V3 | changed, _GROUPED


_V2 = _size(10, 64) | _GPS


def _v2(**changed: Any) -> Row:
    return _V2 | changed, _FIELD


ROWS: dict[str, Row] = _ANCHORS | {
    "attn": _v2(),
    "attn, quantile readout": _v2(readout="sum_quantiles"),
    "quantile_attn": _v2(mixer="quantile_attn"),
    "quantile_attn, quantile readout": _v2(mixer="quantile_attn", readout="sum_quantiles"),
    "quantile": _v2(mixer="quantile"),
    "quantile, quantile readout": _v2(mixer="quantile", readout="sum_quantiles"),
    "sort_attn": _v2(mixer="sort_attn"),
    "qkv": _v2(**_size(10, 56), mixer="qkv"),
    "v1": (_size(10, 64) | _OURS, _FIELD),
    "v2": (_size(10, 64) | _GPS, _FIELD),
    "v3": _v3(),
    "v3 kernel": _v3(pair_weights="kernel"),
    "v3 gated": _v3(local="gated"),
    "v3 quantiles": _v3(readout="quantiles"),
    "v3 post-norm": _v3(post_norm=True),
    "v3 quantile_attn": _v3(mixer="quantile_attn"),
    "v3 qkv": _v3(mixer="qkv"),
}
"""The rows by name: the fields of the model, and the recipe."""

PUBLISHED: dict[str, dict[str, str]] = {
    "zinc": {
        "GIN": "0.526",
        "GCN": "0.367",
        "GatedGCN-PE": "0.214",
        "PNA": "0.142",
        "SAN": "0.139",
        "Graphormer-slim": "0.122 ± 0.006",
        "CIN": "0.094",
        "Graphormer-GD": "0.081",
        "GPS": "0.070 ± 0.004",
        "GRIT": "0.059 ± 0.002",
    },
}
"""The test scores that papers report at no more than 500,000 parameters, worst first."""
