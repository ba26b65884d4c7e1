"""`slicegraph evaluate` for a model of sequences or images."""

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.run_data import set_of_run, settings_of_run

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.sequences.sequence_set import SequenceSet

_OF_MOLECULES = ("smiles", "target", "metric", "split_by", "split_seed", "fractions")


def evaluate_task(model: Any, args: argparse.Namespace) -> None:
    """Prints the accuracy on a split of the task that the model was trained for."""
    import numpy as np

    from slicegraph.data.store.atomic_file import write_atomically

    dataset = _dataset(model, args)
    _check_fit(model, dataset)
    if args.split not in (*dataset.splits, "all"):
        known = ", ".join([*dataset.splits, "all"])
        raise ValueError(f"{dataset.name} has no split {args.split!r}, expected {known}")
    everything = np.arange(len(dataset.store))
    positions = everything if args.split == "all" else dataset.splits[args.split]
    classes = model.predict_set(dataset, positions, args.batch_size).argmax(-1)
    dataset.evaluator.update(dataset.labels(positions), classes)
    print(f"{args.split} {dataset.evaluator.name} {dataset.evaluator.compute():.4g}")
    max_length = getattr(model.config, "max_length", None)
    if note := dataset.store.cut_note(positions, max_length):
        print(f"note {note}")
    if args.out:
        write_atomically(Path(args.out), _table(dataset, positions, classes))
        print(f"{len(positions):,} {dataset.noun} in {args.out}")


def _dataset(model: Any, args: argparse.Namespace) -> "SequenceSet":
    from slicegraph.train.task_presets import TASK_PRESETS

    for name in _OF_MOLECULES:
        if getattr(args, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for a model of molecules")
    settings = settings_of_run(Path(args.model))
    if settings is None or settings.task not in TASK_PRESETS:
        raise ValueError(
            f"{args.model} is not in the folder of a run, which says what it was trained for"
        )
    words = getattr(model.config, "words", ())
    dataset = set_of_run(settings, args.root, args.data, words)
    if dataset.words and not words and dataset.words != _trained_words(settings, args.root):
        raise ValueError(
            f"{args.model} was saved without its words, and those of "
            f"{args.data or settings.task} are not those of {settings.data or settings.task}, "
            "which it was trained on: its numbers would mean other words; train it again"
        )
    return dataset


def _trained_words(settings: Any, root: str) -> tuple[str, ...]:
    """The words of the data of a run; none if it is not there any more."""
    try:
        return set_of_run(settings, root).words
    except (ValueError, OSError):
        return ()


def _check_fit(model: Any, dataset: "SequenceSet") -> None:
    """Raises if the classes are others; a model may not know their names."""
    own, theirs = model.config.class_names, dataset.class_names
    if model.config.num_classes != len(theirs) or (own and own != theirs):
        raise ValueError(
            f"the model does not fit {dataset.name}: it knows {model.config.num_classes} classes"
            f"{_listed(own)}, the data have {len(theirs)}{_listed(theirs)}"
        )


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _table(
    dataset: "SequenceSet", positions: "np.ndarray", classes: "np.ndarray"
) -> Iterator[bytes]:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    (name,) = dataset.task.target_names
    table.writerow([*dataset.columns, f"{name}_true", f"{name}_pred"])
    for row, (label,), found in zip(
        dataset.rows(positions), dataset.labels(positions), classes, strict=True
    ):
        table.writerow([*row, int(label), found])
    yield text.getvalue().encode()
