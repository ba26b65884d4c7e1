"""The rows of `benchmarks.published`: the models, how they are trained, and published figures."""

from dataclasses import replace
from typing import Any

from benchmarks.published_train import Recipe

Fields = dict[str, Any]
Row = tuple[Fields, Recipe]


def _size(layers: int, channels: int, wide: int = 2, heads: int = 8) -> Fields:
    sizes = {"num_layers": layers, "channels": channels, "ffn_channels": wide * channels}
    return {**sizes, "heads": heads}


_FIELD = Recipe()  # that of GPS and GRIT, but for the epochs
_GROUPED = Recipe(window=8)
_WALKS = {"walk_length": 21, "norm": "batch", "head_layers": 3}
_GPS = {"mixer": "attn", "local": "gine", "readout": "sum"} | _WALKS
_EACH = {"walk_layers": True}
_OURS = {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"}

_SLIM: Fields = _size(12, 80, 1) | {"mixer": "qkv", "readout": "token"}
_SLIM |= {"dropout": 0.1, "attention_dropout": 0.1}
_SLIM_RECIPE = Recipe(lr=2e-4, end_lr=1e-9, warmup=0.1, weight_decay=0.01, clip=5.0, batch_size=256)
_PYG: Fields = {"kind": "gps", "attention_dropout": 0.5}

_V3 = _size(10, 64) | _GPS | _EACH


def _v3(**changed: Any) -> Row:
    return _V3 | changed, _GROUPED


# Rings are nodes, each molecule has another Kekulé structure in each epoch, and no row of a graph
# sees all others: `docs/published.md` has what was screened.
_RINGS = _size(6, 80) | _GPS | {"rings": 18, "max_degree": 19, "walk_length": 0}
_RINGS |= {"readout": "sum_mean", "init": "torch"}
_LOCAL = {"kind": "local only", "mixer": "quantile"}  # which is not in it
_KEKULE = Recipe(kekule=True)
_KEKULE_MUON = replace(_KEKULE, optimizer="muon")


def _rings(**changed: Any) -> Row:
    return _RINGS | changed, _KEKULE


# The preset `rings` of `slicegraph train`.
_PRESET = _size(5, 96, 1) | {"mixer": "quantile", "local": "gine", "readout": "sum_quantiles"}
_PRESET |= {"head_layers": 2, "norm": "batch", "init": "torch", "rings": 8, "max_degree": 63}

_ZINC: dict[str, Row] = {
    "rings": _rings(**_LOCAL),
    "rings, Muon": (_RINGS | _LOCAL, _KEKULE_MUON),
    "rings, quantile": _rings(mixer="quantile"),
    "rings, quantile, Muon": (_RINGS | {"mixer": "quantile"}, _KEKULE_MUON),
    "preset rings": (_PRESET | {"rings": 18}, _KEKULE_MUON),
    "graphormer-slim (ours)": (_SLIM, _SLIM_RECIPE),
    "GPS (PyG)": (_size(10, 64, heads=4) | _PYG | {"walk_length": 21}, _FIELD),
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

# GPS and GRIT on Peptides-func: 200 epochs, 10 of them warm-up, AdamW at 3e-4 without weight decay,
# 4 layers of 96, attention dropout 0.5, the mean of the nodes; batches of 128 (GPS) and 16 (GRIT,
# walks of 17 steps). (rampasek/GraphGPS, configs/GPS/peptides-func-GPS.yaml; LiamMa/GRIT,
# configs/GRIT/peptides-func-GRIT-RRWP.yaml.) Tönshoff et al. tuned GPS again: 250 epochs, 6 layers
# of 76, dropout 0.1, 1e-3, batches of 200, two layers in the head (toenshoff/LRGB,
# configs/LRGB-tuned/peptides-func-GPS.yaml).
_LONG = Recipe(epochs=200, lr=3e-4, warmup=0.05, weight_decay=0.0, window=8)
_PEPTIDES_BASE = _size(6, 76, heads=4) | _GPS
_PEPTIDES_BASE |= {"walk_length": 17, "readout": "mean", "head_layers": 2, "dropout": 0.1}
_PEPTIDES_BASE |= {"walk_terms": ["node", "edge"]}  # those of pairs cost more than all the rest


def _peptides(**changed: Any) -> Row:
    return _PEPTIDES_BASE | changed, _LONG


# Classic layers do well there with residuals, batch norms, feed-forward parts, RWSE and 250 epochs
# at 1e-3 (https://arxiv.org/abs/2502.09263). This row has less than half of their width.
_PEPTIDES_RINGS = _size(4, 96, 1) | _GPS | _LOCAL | {"rings": 8, "max_degree": 19, "walk_length": 0}
_PEPTIDES_RINGS |= {"readout": "mean", "head_layers": 2, "dropout": 0.1, "init": "torch"}
_PEPTIDES_RINGS |= {"random_walk_pe": 16}

_PEPTIDES_RINGS_RECIPE = Recipe(epochs=80, weight_decay=0.0, warmup=0.05, average=0.999)

_PEPTIDES: dict[str, Row] = {
    "rings": (_PEPTIDES_RINGS, _PEPTIDES_RINGS_RECIPE),
    "rings, 8 layers": (_PEPTIDES_RINGS | _size(8, 96, 1), _PEPTIDES_RINGS_RECIPE),
    "rings, quantile": (_PEPTIDES_RINGS | {"kind": "ours"}, _PEPTIDES_RINGS_RECIPE),
    "rings, quantile, Muon": (
        _PEPTIDES_RINGS | {"kind": "ours"},
        replace(_PEPTIDES_RINGS_RECIPE, optimizer="muon"),
    ),
    "rings, quantile, 3 x 152, Muon": (
        _PEPTIDES_RINGS | _size(3, 152, 1) | {"kind": "ours", "dropout": 0.2},
        replace(_PEPTIDES_RINGS_RECIPE, optimizer="muon", epochs=32),
    ),
    "graphormer-slim (ours)": (_SLIM, replace(_SLIM_RECIPE, batch_size=64, epochs=200, window=8)),
    "GPS (PyG)": (
        _size(4, 96, heads=4) | _PYG | {"walk_length": 17, "readout": "mean"},
        _LONG,
    ),
    "p1": _peptides(),
    "p1 pairs": _peptides(walk_terms=["node", "edge", "pair"]),
    "p1 gated": _peptides(local="gated"),
    "p1 quantiles": _peptides(readout="quantiles"),
    "p1 quantile_attn": _peptides(mixer="quantile_attn"),
}

# GPS on ogbg-molhiv: 100 epochs, 5 of them warm-up, AdamW at 1e-4 with weight decay 1e-5, batches
# of 32, 10 layers of 64, dropout 0.05, attention dropout 0.5, RWSE of 16 steps, the mean of the
# nodes (rampasek/GraphGPS, configs/GPS/ogbg-molhiv-GPS+RWSE.yaml).
_HIV_RECIPE = Recipe(epochs=100, lr=1e-4, warmup=0.05, window=8)
_HIV_BASE = _size(10, 64) | _GPS | {"walk_length": 17, "readout": "mean", "dropout": 0.05}


def _hiv(**changed: Any) -> Row:
    return _HIV_BASE | changed, _HIV_RECIPE


# The depth, the width and the dropout of PNA, which has 0.7905; fewer epochs, the running mean of
# the weights, and shorter rings, of which a molecule like C60 has few.
_HIV_RINGS = _size(4, 80) | _GPS | _LOCAL | {"rings": 8, "max_degree": 19, "walk_length": 0}
_HIV_RINGS |= {"readout": "mean", "head_layers": 2, "dropout": 0.3, "init": "torch"}
_HIV_RINGS_RECIPE = Recipe(epochs=40, batch_size=128, lr=5e-4, warmup=0.05, average=0.999)
_HIV_RINGS_MUON = replace(_HIV_RINGS_RECIPE, optimizer="muon", epochs=20)

_HIV: dict[str, Row] = {
    "rings": (_HIV_RINGS, _HIV_RINGS_RECIPE),
    "rings, quantile": (_HIV_RINGS | {"kind": "ours"}, _HIV_RINGS_RECIPE),
    "rings, dropout 0.5": (_HIV_RINGS | {"dropout": 0.5}, _HIV_RINGS_RECIPE),
    "rings, sum": (_HIV_RINGS | {"readout": "sum_mean"}, _HIV_RINGS_RECIPE),
    "rings, Muon": (_HIV_RINGS, _HIV_RINGS_MUON),
    "rings, Morgan counts, Muon": (_HIV_RINGS | {"fingerprint": 1024}, _HIV_RINGS_MUON),
    "GPS (PyG)": (
        _size(10, 64, heads=4) | _PYG | {"walk_length": 17, "readout": "mean", "dropout": 0.05},
        _HIV_RECIPE,
    ),
    "h1": _hiv(),
    "h1 gated": _hiv(local="gated"),
    "h1 quantiles": _hiv(readout="quantiles"),
}

# Papers on QM9 share the sizes of a random split (110,000 / 10,000 / the rest), not the recipe, and
# most read positions of the atoms, which these models do not. The recipe is that of ZINC with
# larger batches.
_GAP_RECIPE = Recipe(epochs=60, batch_size=64, window=8)

# The preset `mini` of `slicegraph train` with its recipe, but for the epochs.
_MINI = _size(5, 96, 1) | _OURS
_MINI_RECIPE = Recipe(
    epochs=16, batch_size=100, lr=1.5e-3, warmup=0.05, weight_decay=0.01, clip=5.0, window=32
)

_GAP: dict[str, Row] = {
    "mini": (_MINI, _MINI_RECIPE),
    "mini, Muon": (_MINI, replace(_MINI_RECIPE, optimizer="muon", epochs=24)),
    "preset rings": (_PRESET, replace(_MINI_RECIPE, optimizer="muon", epochs=24)),
    "GPS (PyG)": (_size(10, 64, heads=4) | _PYG | {"walk_length": 13}, _GAP_RECIPE),
    "q1": (_size(10, 64) | _GPS | {"walk_length": 13} | _EACH, _GAP_RECIPE),
    "q1 quantiles": (
        _size(10, 64) | _GPS | {"walk_length": 13, "readout": "quantiles"} | _EACH,
        _GAP_RECIPE,
    ),
}

ROWS: dict[str, dict[str, Row]] = {
    "zinc": _ZINC,
    "peptides-func": _PEPTIDES,
    "molhiv": _HIV,
    "qm9-gap": _GAP,
}
"""The rows of each data set by name: the fields of the model, and the recipe. Graphormer in our
code and GPS in PyG's are published models that we train ourselves."""


_STUDY_RECIPE = replace(_KEKULE_MUON, epochs=50)
_ALONE = {"mixer": "none", "ffn_channels": 240}  # for the parameters of a mixer


def _study(**changed: Any) -> Row:
    return _RINGS | changed, _STUDY_RECIPE


_SORT_STUDY: dict[str, Row] = {
    "no mixer": _study(**_ALONE),
    "no mixer, sum": _study(**_ALONE | {"readout": "sum"}),
    "no mixer, mean": _study(**_ALONE | {"readout": "mean"}),
    "no mixer, attention pooling": _study(
        **_ALONE | {"kind": "attention pooling", "readout": "sum"}
    ),
    "no mixer, multi-aggregation": _study(
        **_ALONE | {"kind": "multi aggregation", "readout": "quantiles", "ffn_channels": 230}
    ),
    "no mixer, quantile readout": _study(
        **_ALONE | {"readout": "sum_quantiles", "ffn_channels": 228}
    ),
    "quantile": _study(mixer="quantile"),
    "quantile, quantile readout": _study(
        mixer="quantile", readout="sum_quantiles", ffn_channels=144
    ),
    "sort": _study(mixer="sort"),
    "slice": _study(mixer="slice", ffn_channels=156),
    "attn": _study(),
    "quantile_attn": _study(mixer="quantile_attn"),
    "sort_attn": _study(mixer="sort_attn"),
    "qkv": _study(mixer="qkv", ffn_channels=80),
}

_LONG_SORT_STUDY: dict[str, Row] = {  # the feed-forward parts make up for the parameters of others
    "attn": _peptides(ffn_channels=228),
    "attn, sum": _peptides(readout="sum", ffn_channels=228),
    "attn, attention pooling": _peptides(kind="attention pooling", ffn_channels=222),
    "attn, multi-aggregation": _peptides(
        kind="multi aggregation", readout="quantiles", ffn_channels=216
    ),
    "attn, quantile readout": _peptides(readout="quantiles", ffn_channels=216),
    "quantile_attn": _peptides(mixer="quantile_attn", ffn_channels=226),
    "quantile_attn, quantile readout": _peptides(
        mixer="quantile_attn", readout="quantiles", ffn_channels=213
    ),
    "quantile": _peptides(mixer="quantile", ffn_channels=227),
    "quantile, quantile readout": _peptides(
        mixer="quantile", readout="quantiles", ffn_channels=214
    ),
    "sort_attn": _peptides(mixer="sort_attn", ffn_channels=228),
    "qkv": _peptides(mixer="qkv", ffn_channels=152),
}

_SPEED: dict[str, Row] = {  # as many parameters as `rings`, for `--time`
    "GPS (PyG), 6 layers": (_size(6, 64, heads=4) | _PYG | {"walk_length": 21}, _FIELD),
}

STUDIES: dict[str, dict[str, dict[str, Row]]] = {
    "sort": {"zinc": _SORT_STUDY, "peptides-func": _LONG_SORT_STUDY},
    "speed": {"zinc": _SPEED},
}
"""Rows that answer one question, by study and data set. `sort`: what sorting is worth, in a model
that differs in nothing else and has about as many parameters; `speed`: what a step costs."""


def rows_of(data: str) -> dict[str, Row]:
    """Return all rows of a data set, those of the studies last."""
    rows = dict(ROWS[data])
    for study in STUDIES.values():
        rows |= study.get(data, {})
    return rows


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
    "peptides-func": {
        "GCN": "0.593",
        "Transformer+LapPE": "0.6326",
        "SAN+RWSE": "0.6439",
        "GPS": "0.6535",
        "GCN, tuned again": "0.686",
        "GRIT": "0.699",
        "DRew": "0.715",
    },
    "molhiv": {
        "GCN": "0.7606",
        "GIN-VN": "0.7707",
        "GPS": "0.788",
        "PNA": "0.7905",
        "Graphormer, pre-trained": "0.8051",
    },
    "qm9-gap": {},
}
"""The test scores that papers report, worst first; on ZINC-12k and Peptides-func with models of
about 500,000 parameters at most."""
