"""Samples for a model of any kind, from what `slicegraph analyze --data` names."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.analysis_examples import examples_for
from slicegraph.cli.run_data import PREFIX, data_of_run, settings_of_run

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.predictor import MoleculePredictor


@dataclass(frozen=True)
class Samples:
    """What a model is called with, what it is, how many there are, and what to say of them."""

    inputs: tuple[Any, ...]
    name: str
    count: int
    note: str = ""


def samples_for(model: Any, args: argparse.Namespace) -> Samples:
    """At most ``args.samples`` samples of ``args.data``, or of the run, as the model takes them."""
    from slicegraph.data.sequences.contents import Request
    from slicegraph.data.sequences.tasks import check_request
    from slicegraph.predictor import MoleculePredictor

    if args.samples < 1:
        raise ValueError(f"--samples {args.samples}, expected at least 1")
    if args.task is not None:
        check_request(Request(args.task))
    if isinstance(model, MoleculePredictor):
        return _molecules(model, args)
    if args.data is not None and len(args.data) > 1:
        raise ValueError(f"--data {args.data[1]}: only SMILES can be several, for a graph model")
    return _examples(model, args)


def _molecules(model: "MoleculePredictor", args: argparse.Namespace) -> Samples:
    from slicegraph.data.batch.collate import collate
    from slicegraph.data.sets.datasets import load, names

    texts = _named_molecules(args)
    name = texts[0]
    if name not in names() and not name.startswith(PREFIX):
        return _smiles(model, texts)
    options: dict[str, Any] = {}
    if name.startswith(PREFIX):
        asked = {"targets": model.config.target_names or None, "task": model.config.task}
        options = asked | data_of_run(args.model, name)
        options = {key: value for key, value in options.items() if value is not None}
    data = load(name, args.root, **options)
    chosen = _some(_split(data.splits, args.split, name), args.samples)
    meta = data.store.meta
    model.check_features(meta["atom_vocabulary"], meta["bond_vocabulary"])
    return Samples(
        (collate(data.store, chosen, encode=None),), f"{name}, {args.split}", len(chosen)
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


def _smiles(model: "MoleculePredictor", texts: Sequence[str]) -> Samples:
    from slicegraph.data.batch.collate_graphs import collate_graphs
    from slicegraph.data.molecule.feature_code import OGB_ATOM_CODE, OGB_BOND_CODE
    from slicegraph.predictor import read_graph

    model.check_features(OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
    graphs = []
    for text in texts:
        graph = read_graph(text)
        if isinstance(graph, str):
            raise ValueError(
                f"--data {text!r} is neither a data set (`slicegraph datasets` lists them) nor a "
                f"SMILES: {graph}"
            )
        graphs.append(graph)
    return Samples((collate_graphs(graphs),), "SMILES", len(graphs))


def _examples(model: Any, args: argparse.Namespace) -> Samples:
    """Sequences or images; the longer ones are cut after what the model reads."""
    from slicegraph.data.sequences.example_batch import example_batch

    store, name = examples_for(model, args)
    chosen = _some(_split(store.splits, args.split, name), args.samples)
    most = getattr(model.config, "max_length", None)
    batch = example_batch(store, chosen, most)
    inputs = (batch.x,) if batch.mask is None else (batch.x, batch.mask)
    note = store.cut_note(chosen, most)
    return Samples(inputs, f"{name}, {args.split}", len(chosen), note)


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
