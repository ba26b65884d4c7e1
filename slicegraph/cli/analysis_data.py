"""Samples for a model of any kind, from what `slicegraph analyze --data` names."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.analysis_examples import examples_for
from slicegraph.cli.analysis_samples import Samples
from slicegraph.cli.run_data import PREFIX, data_of_run, settings_of_run

if TYPE_CHECKING:
    import numpy as np


def samples_for(models: Mapping[str, Any], args: argparse.Namespace) -> Samples:
    """At most ``args.samples`` samples of ``args.data``, or of the run, as the models take them.

    These are by their paths, that of ``args.model`` first.
    """
    from slicegraph.data.sequences.contents import Request
    from slicegraph.data.sequences.tasks import check_request
    from slicegraph.predictor import MoleculePredictor

    if args.samples < 1:
        raise ValueError(f"--samples {args.samples}, expected at least 1")
    if args.task is not None:
        check_request(Request(args.task))
    if isinstance(models[args.model], MoleculePredictor):
        return _molecules(models, args)
    if args.data is not None and len(args.data) > 1:
        raise ValueError(f"--data {args.data[1]}: only SMILES can be several, for a graph model")
    return _examples(models, args)


def _molecules(models: Mapping[str, Any], args: argparse.Namespace) -> Samples:
    from slicegraph.data.batch.collate import collate
    from slicegraph.data.sets.datasets import load, names

    texts = _named_molecules(args)
    name = texts[0]
    if name not in names() and not name.startswith(PREFIX):
        return _smiles(models, texts)
    options: dict[str, Any] = {}
    if name.startswith(PREFIX):
        config = models[args.model].config
        asked = {"targets": config.target_names or None, "task": config.task}
        options = asked | data_of_run(args.model, name)
        options = {key: value for key, value in options.items() if value is not None}
    data = load(name, args.root, **options)
    chosen = _some(_split(data.splits, args.split, name), args.samples)
    meta = data.store.meta
    _check_features(models, meta["atom_vocabulary"], meta["bond_vocabulary"])
    return Samples(
        lambda numbers: (collate(data.store, chosen[numbers], encode=None),),
        data.store.num_atoms[chosen],
        f"{name}, {args.split}",
    )


def _named_molecules(args: argparse.Namespace) -> Sequence[str]:
    """What was asked for, or the data of the run."""
    from slicegraph.data.sequences.tasks import TASKS

    asked = args.task or (args.data[0] if args.data else None)
    if args.task is not None or asked in TASKS:
        raise ValueError(
            f"{args.model} is a model of molecules, and {asked} is a task of sequences or images"
        )
    if args.data is not None:
        return args.data
    settings = settings_of_run(Path(args.model))
    if settings is None:
        raise ValueError(
            f"--data is missing: {args.model} is not in the folder of a run, which says what it "
            "was trained on"
        )
    return [settings.data]


def _check_features(models: Mapping[str, Any], atoms: Sequence[int], bonds: Sequence[int]) -> None:
    for path, model in models.items():
        try:
            model.check_features(atoms, bonds)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _smiles(models: Mapping[str, Any], texts: Sequence[str]) -> Samples:
    import numpy as np

    from slicegraph.data.batch.collate_graphs import collate_graphs
    from slicegraph.data.molecule.feature_code import OGB_ATOM_CODE, OGB_BOND_CODE
    from slicegraph.predictor import read_graph

    _check_features(models, OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
    graphs = []
    for text in texts:
        graph = read_graph(text)
        if isinstance(graph, str):
            raise ValueError(
                f"--data {text!r} is neither a data set (`slicegraph datasets` lists them) nor a "
                f"SMILES: {graph}"
            )
        graphs.append(graph)
    return Samples(
        lambda numbers: (collate_graphs([graphs[number] for number in numbers]),),
        np.array([len(graph.atoms) for graph in graphs]),
        "SMILES",
    )


def _examples(models: Mapping[str, Any], args: argparse.Namespace) -> Samples:
    """Sequences or images; the longer ones are cut after what all of the models read."""
    from slicegraph.data.sequences.example_batch import example_batch

    store, name = examples_for(models, args)
    chosen = _some(_split(store.splits, args.split, name), args.samples)
    most = None if store.shape else min(model.config.max_length for model in models.values())

    def read(numbers: "np.ndarray") -> tuple[Any, ...]:
        batch = example_batch(store, chosen[numbers], most)
        return (batch.x,) if batch.mask is None else (batch.x, batch.mask)

    note = store.cut_note(chosen, most)
    if note:
        note += _whose_length(models)
    return Samples(read, store.lengths_read(chosen, most), f"{name}, {args.split}", note)


def _whose_length(models: Mapping[str, Any]) -> str:
    """Which of two models reads less, for the end of a note on what is cut."""
    (length, path), *others = sorted((m.config.max_length, path) for path, m in models.items())
    if all(other[0] == length for other in others):
        return ""
    return f"; it is that of {path}, the smaller of the two models'"


def _split(splits: dict[str, "np.ndarray"], name: str, data: str) -> "np.ndarray":
    if name not in splits:
        raise ValueError(f"{data} has no split {name!r}, expected {', '.join(splits)}")
    if not len(splits[name]):
        raise ValueError(f"split {name!r} of {data} has no samples")
    return splits[name]


def _some(positions: "np.ndarray", most: int) -> "np.ndarray":
    """From the whole of a split, at equal distances: files are often in the order of the labels."""
    import numpy as np

    count = min(most, len(positions))
    return positions[np.arange(count) * len(positions) // count]
