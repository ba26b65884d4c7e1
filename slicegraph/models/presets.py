"""The sizes of the models by name: for graphs, for sequences and for images.

The name of a sequence or image preset is that of its data set; ``mixer`` chooses between the two
models of that size, ``"sort"`` for the Sliceformer and ``"qkv"`` for the Transformer or ViT. The
presets called mini train within minutes on a CPU.
"""

from typing import Any

from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

Fields = dict[str, Any]


def _size(layers: int, channels: int, ffn_channels: int, heads: int, **others: Any) -> Fields:
    sizes = {"num_layers": layers, "channels": channels, "ffn_channels": ffn_channels}
    return {**sizes, "heads": heads, **others}


_BASE = _size(12, 768, 768, 32, dropout=0.1, attention_dropout=0.1, recompute="mix")
_SMALL = _BASE | _size(6, 512, 512, 32)
_SLIM = _BASE | _size(12, 80, 80, 8, recompute="none")
_OURS = {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"}
_RINGS = {"mixer": "quantile", "local": "gine", "rings": 8, "readout": "sum_quantiles"}
_RINGS |= {"head_layers": 2, "norm": "batch", "init": "torch"}
_SORT = {"mixer": "sort_attn", "order": "ascending"}
_QKV = {"mixer": "qkv"}

PRESETS: dict[str, Fields] = {
    "slicegraph-base": _BASE | _OURS,
    "slicegraph-small": _SMALL | _OURS,
    "slicegraph-slim": _SLIM | _OURS,
    "mini": _size(5, 96, 96, 8) | _OURS,
    "chem": _size(5, 128, 128, 8) | _OURS,
    "rings": _size(5, 96, 96, 8) | _RINGS,
    "sliceformer-base": _BASE | _SORT,
    "sliceformer-base-interleave": _BASE | _SORT | {"order": "interleave"},
    "graphormer-base": _BASE | _QKV,
    "sliceformer-small": _SMALL | _SORT,
    "graphormer-small": _SMALL | _QKV,
    "sliceformer-slim": _SLIM | _SORT,
    "graphormer-slim": _SLIM | _QKV,
}
"""The size and the mixer of each graph model: ours, one that has rings in place of pairs
(docs/published.md), the paper's, and Graphormer."""

VOCABULARIES: dict[str, Fields] = {
    "ogb": {"node_vocabulary": "ogb", "edge_vocabulary": "ogb"},
    "graphormer": {
        "node_vocabulary": (512,) * len(OGB_ATOMS),
        "edge_vocabulary": (512,) * len(OGB_BONDS),
        "max_distance": 509,
        "max_degree": 510,
        "padding_row": True,
        "hop_blocks": 128,
    },
}
"""The sizes of the feature tables: those of OGB's features, or those of Graphormer v1."""

_PATCHES = {"hidden_channels": 512, "qkv_bias": False}
_SMALL_IMAGES = _size(6, 512, 512, 8, patch_size=2, **_PATCHES)
_MINI = _size(4, 64, 128, 4, num_classes=10, dropout=0.1)

VISION_PRESETS: dict[str, Fields] = {
    "vit-dogs": _size(6, 128, 128, 8, image_size=224, patch_size=16, num_classes=2, **_PATCHES),
    "vit-cifar10": _SMALL_IMAGES | {"image_size": 32, "num_classes": 10},
    "vit-cifar100": _SMALL_IMAGES | {"image_size": 32, "num_classes": 100},
    "vit-mnist": _SMALL_IMAGES | {"image_size": 28, "image_channels": 1, "num_classes": 10},
    "vit-tiny-imagenet": _size(12, 384, 1536, 6, image_size=224, patch_size=16, num_classes=1000),
    "mini-digits": _MINI | {"image_size": 8, "patch_size": 2, "image_channels": 1},
    "mini-mnist": _MINI | {"image_size": 28, "patch_size": 4, "image_channels": 1},
    "mini-images": _MINI | {"image_size": 32, "patch_size": 4, "image_channels": 3},
}
"""The size of each model of images."""


def _long_range(layers: int, channels: int, ffn_channels: int, heads: int, **others: Any) -> Fields:
    fields = {"hidden_channels": channels, "readout": "cls", "head_channels": ffn_channels}
    return _size(layers, channels, ffn_channels, heads, **fields | others)


_BINARY = _MINI | {"num_classes": 2}
_TEXT = _BINARY | {"num_layers": 2, "max_length": 1000}
_WORDS = {"vocabulary": 16_000, "max_length": 512, "positions": "sinusoidal"}

SEQUENCE_PRESETS: dict[str, Fields] = {
    "text-imdb": _size(6, 256, 1024, 8, post_norm=True, **_WORDS),
    "lra-listops": _long_range(4, 512, 1024, 8, max_length=2000, vocabulary=16, num_classes=10),
    "lra-text": _long_range(4, 256, 1024, 4, max_length=4000),
    "lra-retrieval": _long_range(4, 128, 512, 4, max_length=4000, towers=2),
    "lra-image": _long_range(6, 96, 128, 8, hidden_channels=48, max_length=1024, num_classes=10),
    "lra-pathfinder": _long_range(4, 320, 320, 8, max_length=1024),
    "lra-pathx": _long_range(4, 320, 320, 8, max_length=16_384),
    "mini-listops": _MINI | {"vocabulary": 16, "max_length": 2000, "readout": "cls"},
    "mini-text": _TEXT,
    "mini-retrieval": _TEXT | {"towers": 2},
    "mini-pixels": _MINI | {"max_length": 1024},
    "mini-pathfinder": _BINARY | {"max_length": 1024},
    "mini-pathx": _BINARY | {"max_length": 16_384},
    "mini-reviews": _TEXT | _WORDS,
    "mini-series": _MINI | {"vocabulary": None, "in_channels": 1, "max_length": 1460},
}
"""The size of each model of sequences. Those of the Long Range Arena read bytes, the 256 shades of
a pixel, or the 16 tokens of ListOps."""


def find_preset(name: str, table: dict[str, Fields], kind: str = "preset") -> Fields:
    """Looks up the fields of a preset; an unknown name is an error that lists the known ones."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}, expected one of {', '.join(table)}")
    return table[name]
