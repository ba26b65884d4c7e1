"""A model that was trained before, wherever it is below a path."""

from pathlib import Path
from typing import Any

from slicegraph.models import load
from slicegraph.models.checkpoint import CONFIG_FILE, read_config
from slicegraph.models.run_checkpoint import load_checkpoint, read_checkpoint


def load_saved(path: Path) -> Any:
    """The model of a folder, of a run or of a checkpoint."""
    place = _place(path)
    return load(place) if place.is_dir() else load_checkpoint(place)


def saved_config(path: Path) -> dict[str, Any]:
    """The fields of the configuration of such a model."""
    place = _place(path)
    return read_config(place) if place.is_dir() else read_checkpoint(place)[0]


def _place(path: Path) -> Path:
    """The folder of the model, or the checkpoint."""
    if path.is_file():
        return path
    for folder in (path, path / "model"):
        if (folder / CONFIG_FILE).is_file():
            return folder
    if (best := path / "checkpoints" / "best.ckpt").is_file():
        return best
    raise FileNotFoundError(
        f"train: there is no model in {path}; init is a saved model, a run folder, a checkpoint, "
        "or a Graphormer folder of transformers"
    )
