"""The model of a task of sequences or images."""

from typing import TYPE_CHECKING, Any

from slicegraph.models import (
    SEQUENCE_PRESETS,
    VISION_PRESETS,
    SequenceSliceformer,
    VisionSliceformer,
    sequence_preset,
    vision_preset,
)
from slicegraph.train.config import TrainConfig

if TYPE_CHECKING:
    from slicegraph.data.sequences.sequence_set import SequenceSet

TaskModel = SequenceSliceformer | VisionSliceformer


def preset_model(name: str | None, fields: dict[str, Any]) -> TaskModel:
    """A new model of a preset of sequences or images, with some fields changed."""
    if name in VISION_PRESETS:
        return VisionSliceformer(vision_preset(name, **fields))
    if name in SEQUENCE_PRESETS:
        return SequenceSliceformer(sequence_preset(name, **fields))
    known = ", ".join([*SEQUENCE_PRESETS, *VISION_PRESETS])
    raise ValueError(f"train: there is no preset {name!r} for a task; there are {known}")


def preset_image_size(config: TrainConfig) -> int | None:
    """The height and width of the images that the preset takes, if it takes images."""
    return VISION_PRESETS.get(config.preset or "", {}).get("image_size")


def fields_of_task(config: TrainConfig, dataset: "SequenceSet") -> dict[str, Any]:
    """What the data decides about the model; raises if the preset is for other data."""
    store, vision = dataset.store, config.preset in VISION_PRESETS
    if vision != (store.shape is not None):
        takes, has = ("images", "sequences") if vision else ("sequences", "images")
        fitting = ", ".join(SEQUENCE_PRESETS if vision else VISION_PRESETS)
        raise ValueError(
            f"train: preset {config.preset!r} takes {takes}, and task {dataset.name!r} has {has}; "
            f"presets for it are {fitting}"
        )
    fields: dict[str, Any] = {
        "num_classes": dataset.task.num_classes,
        "class_names": dataset.class_names,
    }
    if store.shape is not None:
        channels, height, _ = store.shape
        return fields | {"image_channels": channels, "image_size": height}
    if store.meta["vocabulary"] is None:
        return fields | {"vocabulary": None, "in_channels": 1, "towers": 1}
    return fields | {
        "vocabulary": store.meta["vocabulary"],
        "in_channels": None,
        "towers": store.towers,
        "words": dataset.words,
    }
