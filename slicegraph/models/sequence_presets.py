"""The models of sequences and images of the paper, by name.

A name says the data set, and with it the size; ``mixer`` says which of the two models of that size
is meant: ``"sort"`` the Sliceformer, ``"qkv"`` the Transformer or ViT beside it. The order of the
sort, like every other field, can be given too.
"""

from typing import Any

from slicegraph.models.sequence_config import SequenceSliceformerConfig
from slicegraph.models.vision_config import VisionSliceformerConfig

_PATCHES = {"num_layers": 6, "heads": 8, "hidden_channels": 512, "qkv_bias": False}
_SMALL_IMAGES = _PATCHES | {"channels": 512, "ffn_channels": 512, "patch_size": 2}

_MINI = {
    "num_layers": 4,
    "channels": 64,
    "ffn_channels": 128,
    "heads": 4,
    "num_classes": 10,
    "dropout": 0.1,
}

VISION_PRESETS: dict[str, dict[str, Any]] = {
    "vit-dogs": _PATCHES
    | {"channels": 128, "ffn_channels": 128, "image_size": 224, "patch_size": 16, "num_classes": 2},
    "vit-cifar10": _SMALL_IMAGES | {"image_size": 32, "num_classes": 10},
    "vit-cifar100": _SMALL_IMAGES | {"image_size": 32, "num_classes": 100},
    "vit-mnist": _SMALL_IMAGES | {"image_size": 28, "image_channels": 1, "num_classes": 10},
    "vit-tiny-imagenet": {
        "num_layers": 12,
        "channels": 384,
        "ffn_channels": 1536,
        "heads": 6,
        "image_size": 224,
        "patch_size": 16,
        "num_classes": 1000,
    },
    "mini-digits": _MINI | {"image_size": 8, "patch_size": 2, "image_channels": 1},
    "mini-mnist": _MINI | {"image_size": 28, "patch_size": 4, "image_channels": 1},
    "mini-images": _MINI | {"image_size": 32, "patch_size": 4, "image_channels": 3},
}
"""The size of each model of images; those called mini are for minutes on a CPU."""


def _long_range(
    sizes: tuple[int, int, int], layers: int, heads: int, length: int, **others: Any
) -> dict[str, Any]:
    channels, hidden, ffn = sizes
    return {
        "num_layers": layers,
        "channels": channels,
        "hidden_channels": hidden,
        "ffn_channels": ffn,
        "heads": heads,
        "max_length": length,
        "readout": "cls",
        "head_channels": ffn,
        **others,
    }


_PATHFINDER = ((320, 320, 320), 4, 8)

SEQUENCE_PRESETS: dict[str, dict[str, Any]] = {
    "text-imdb": {
        "num_layers": 6,
        "channels": 256,
        "ffn_channels": 1024,
        "heads": 8,
        "vocabulary": 16_000,
        "max_length": 512,
        "positions": "sinusoidal",
        "post_norm": True,
    },
    "lra-listops": _long_range((512, 512, 1024), 4, 8, 2000, vocabulary=16, num_classes=10),
    "lra-text": _long_range((256, 256, 1024), 4, 4, 4000),
    "lra-retrieval": _long_range((128, 128, 512), 4, 4, 4000, towers=2),
    "lra-image": _long_range((96, 48, 128), 6, 8, 1024, num_classes=10),
    "lra-pathfinder": _long_range(*_PATHFINDER, 1024),
    "lra-pathx": _long_range(*_PATHFINDER, 16_384),
    "mini-listops": _MINI | {"vocabulary": 16, "max_length": 2000, "readout": "cls"},
    "mini-text": _MINI | {"num_classes": 2, "num_layers": 2, "max_length": 1000},
    "mini-retrieval": _MINI | {"num_classes": 2, "num_layers": 2, "max_length": 1000, "towers": 2},
    "mini-pixels": _MINI | {"max_length": 1024},
    "mini-pathfinder": _MINI | {"num_classes": 2, "max_length": 1024},
    "mini-pathx": _MINI | {"num_classes": 2, "max_length": 16_384},
    "mini-reviews": _MINI
    | {
        "num_classes": 2,
        "num_layers": 2,
        "vocabulary": 16_000,
        "max_length": 512,
        "positions": "sinusoidal",
    },
    "mini-series": _MINI | {"vocabulary": None, "in_channels": 1, "max_length": 1460},
}
"""The size of each model of sequences. Those of the Long Range Arena read bytes, or the 256 shades
of a pixel, or the 16 tokens of ListOps; those called mini are for minutes on a CPU."""


def sequence_preset(name: str, mixer: str = "sort", **overrides: Any) -> SequenceSliceformerConfig:
    """The configuration of a preset of sequences.

    Args:
        name: a name from :obj:`SEQUENCE_PRESETS`.
        mixer: ``"sort"``, or ``"qkv"`` for the Transformer of the same size.
        **overrides: fields of the configuration that shall differ, such as ``order``.

    Example:
        >>> sequence_preset("lra-text", order="interleave", max_length=1000).channels
        256
    """
    fields = _find(name, SEQUENCE_PRESETS)
    return SequenceSliceformerConfig.from_dict(fields | {"mixer": mixer} | overrides)


def vision_preset(name: str, mixer: str = "sort", **overrides: Any) -> VisionSliceformerConfig:
    """The configuration of a preset of images.

    Args:
        name: a name from :obj:`VISION_PRESETS`.
        mixer: ``"sort"``, or ``"qkv"`` for the ViT of the same size.
        **overrides: fields of the configuration that shall differ, such as ``order``.

    Example:
        >>> vision_preset("vit-cifar10", "qkv").num_patches
        256
    """
    fields = _find(name, VISION_PRESETS)
    return VisionSliceformerConfig.from_dict(fields | {"mixer": mixer} | overrides)


def _find(name: str, presets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}, expected one of {', '.join(presets)}")
    return presets[name]
