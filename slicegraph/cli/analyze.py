"""Look into the mixing layers of a model, and write a page about them.

The page has the singular spectrum and the effective rank of the mixed rows of every layer, heat
maps of the sorted rows, the permutation of a channel, and how a softmax smooths as the number of
rows grows. With --twin it shows a second model, such as one with attention, on the same samples,
and prints in how many layers the spectrum of the model decays more slowly than that of its twin.
Without --data the samples are those of the run that made the model.
analysis.html, analysis.json and figures/ are written; existing ones are replaced.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli import options_of_run

if TYPE_CHECKING:
    from slicegraph.analysis import Findings, Samples

EPILOG = """\
examples:
  slicegraph analyze runs/mini
  slicegraph analyze runs/mini --data "CCO" "c1ccccc1" --sample 1
  slicegraph analyze runs/sort --twin runs/qkv --layer 2 --channel 7 --out look
  slicegraph analyze saved --task images --data pictures --split test
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the models, the samples, and what to draw."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="folder of a run or of a saved model, or a checkpoint")
    add("--twin", metavar="MODEL", help="second model, for comparison")
    add(
        "--data",
        nargs="+",
        metavar="NAME",
        help="data set or task by name, csv:PATH, SMILES, or a folder (default: that of the run)",
    )
    add("--task", help="task that the files in the folder belong to (default: that of the run)")
    add("--split", default="valid", help="split to take samples from (default: %(default)s)")
    add("--root", help="folder of the data sets (default: that of the run, or dataset)")
    numbers = {
        "samples": ("number of samples", 32),
        "sample": ("sample to draw, from 0", 0),
        "layer": ("layer of the drawn permutation, from 1", 1),
        "channel": ("channel of the drawn permutation, from 0", 0),
    }
    for name, (text, default) in numbers.items():
        given = default if name.startswith("sample") else None
        text = f"{text} (default: {default})"
        add(f"--{name}", type=int, default=given, metavar="N", help=text)
    add("--out", metavar="DIR", help="folder to write to (default: MODEL/analysis)")


def run(args: argparse.Namespace) -> None:
    """Print tables of the ranks and of the spectra, and the path of the page."""
    from slicegraph import analysis
    from slicegraph.predict import load_predictor
    from slicegraph.tasks.domain import check_twins
    from slicegraph.train.run_folder import root_of_run

    args.root = args.root or root_of_run(args.model)
    loaded = {path: load_predictor(path) for path in (args.model, args.twin) if path is not None}
    check_twins(loaded)
    names = _names(loaded, args)
    samples = _samples(loaded, args)
    analysis.check_sample(args.sample, len(samples.sizes))
    models = []
    for name, model in zip(names, loaded.values(), strict=True):
        parts = (analysis.trace(model, *inputs) for inputs in samples.batches())
        try:
            towers = getattr(model.config, "towers", 1)
            models.append(analysis.measure(name, parts, args.sample, towers))
        except (IndexError, ValueError) as error:
            raise ValueError(f"{name} cannot be analysed on {samples.name}: {error}") from error
    asked = [option for option in ("layer", "channel") if getattr(args, option) is not None]
    if asked and all(layer.ordered is None for layer in models[0].traces):
        raise ValueError(
            f"--{asked[0]}: {names[0]} has no layers that sort (its mixer is {models[0].mixer}), "
            "and so no permutation; give a sorting model first, and this one as --twin"
        )
    choice = analysis.Choice(1 if args.layer is None else args.layer, args.channel or 0)
    saved = Path(args.model)
    folder = args.out or (saved.parent if saved.is_file() else saved) / "analysis"
    facts = _facts(list(loaded.values()), models, samples)
    smoothing = analysis.softmax_smoothing()
    place = analysis.write_analysis(folder, models, smoothing, choice, facts=facts)
    if samples.note:
        print(f"note    {samples.note}")
    print("\n".join(analysis.table_lines(models)))
    print(f"page    {place}\nnumbers {place.with_suffix('.json')}")


def _names(models: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    """Name the models after their folders; if those are equal, with their mixers."""
    names = [_name(Path(path)) for path in models]
    if len(set(names)) < len(names):
        mixers = [model.config.mixer for model in models.values()]
        names = [f"{name} {mixer}" for name, mixer in zip(names, mixers, strict=True)]
    if len(set(names)) < len(names) or args.twin == args.model:
        raise ValueError(f"--twin {args.twin} has the name and the mixer of {args.model}")
    return names


def _name(path: Path) -> str:
    """Return the name of the run, for any path inside of it."""
    path = path.resolve().parent if path.is_file() else path.resolve()
    return path.parent.name if path.name in ("model", "checkpoints") else path.name


def _samples(models: Mapping[str, Any], args: argparse.Namespace) -> "Samples":
    """At most ``args.samples`` samples of ``args.data``, or of the run, as the models take them."""
    from slicegraph.predict import MoleculePredictor
    from slicegraph.tasks import TASKS, check_task
    from slicegraph.tasks.domain import analysis_samples

    if args.samples < 1:
        raise ValueError(f"--samples {args.samples}, expected at least 1")
    if args.task is not None:
        check_task(args.task)
    if not isinstance(models[args.model], MoleculePredictor):
        if args.data is not None and len(args.data) > 1:
            raise ValueError(f"--data {args.data[1]}: only SMILES can be several")
        return analysis_samples(models, args)
    asked = args.task or (args.data[0] if args.data else None)
    if args.task is not None or asked in TASKS:
        task = f"{asked} is a task of sequences or images"
        raise ValueError(f"{args.model} is a model of molecules, and {task}")
    return _molecules(models, args)


def _molecules(models: Mapping[str, Any], args: argparse.Namespace) -> "Samples":
    from slicegraph.analysis import Samples, spaced_positions
    from slicegraph.data.batch import collate
    from slicegraph.data.datasets import load_dataset, names
    from slicegraph.train.run_folder import settings_of_run

    texts = args.data
    if texts is None:
        settings = settings_of_run(Path(args.model))
        if settings is None:
            where = f"{args.model} is not in the folder of a run"
            raise ValueError(f"--data is missing: {where}; name a data set")
        texts = [settings.data]
    name = texts[0]
    own = name.startswith("csv:")
    if name not in names() and not own:
        return _smiles(models, texts)
    options = options_of_run(args.model, name, models[args.model].config) if own else {}
    data = load_dataset(name, args.root, **options)
    chosen = spaced_positions(data.splits, args.split, name, args.samples)
    meta = data.store.meta
    _check_features(models, meta["atom_vocabulary"], meta["bond_vocabulary"])
    return Samples(
        lambda numbers: (
            _without_numbers(models, collate(data.store, chosen[numbers], encode=None)),
        ),
        data.store.num_atoms[chosen],
        f"{name}, {args.split}",
    )


def _smiles(models: Mapping[str, Any], texts: Sequence[str]) -> "Samples":
    import numpy as np

    from slicegraph.analysis import Samples
    from slicegraph.data.batch import collate_graphs
    from slicegraph.data.smiles import OGB_ATOM_CODE, OGB_BOND_CODE
    from slicegraph.predict.predictor import read_graph

    _check_features(models, OGB_ATOM_CODE.vocabulary, OGB_BOND_CODE.vocabulary)
    graphs, config = [], next(iter(models.values())).config
    for text in texts:
        graph = read_graph(text, config.standardize, config.molecule_columns)
        if isinstance(graph, str):
            listed = "neither a data set (`slicegraph datasets` lists them) nor a SMILES"
            raise ValueError(f"--data {text!r} is {listed}: {graph}")
        graphs.append(graph)
    return Samples(
        lambda numbers: (_without_numbers(models, collate_graphs([graphs[n] for n in numbers])),),
        np.array([len(graph.atoms) for graph in graphs]),
        "SMILES",
    )


def _without_numbers(models: Mapping[str, Any], batch: Any) -> Any:
    """Give models with features the mean of each number: their layers do not read them."""
    import torch

    if size := max(model.config.num_features for model in models.values()):
        in_a_row = max(model.config.molecules for model in models.values())
        batch.features = torch.full(((len(batch.ptr) - 1) // in_a_row, size), torch.nan)
    return batch


def _check_features(models: Mapping[str, Any], atoms: Sequence[int], bonds: Sequence[int]) -> None:
    for path, model in models.items():
        try:
            model.check_features(atoms, bonds)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _facts(
    models: Sequence[Any], findings: Sequence["Findings"], samples: "Samples"
) -> dict[str, Any]:
    from slicegraph.models.base import model_name

    first = findings[0]
    sizes = [sum(value.numel() for value in model.parameters()) for model in models]
    rows = " to ".join(map(str, dict.fromkeys((min(first.sizes), max(first.sizes)))))
    pair = {"pairs": "both texts are measured, the first is drawn", "rows of a text": rows}
    return {
        "data": samples.name,
        "samples": len(samples.sizes),
        **({"rows of a sample": rows} if first.towers == 1 else pair),
        "channels": first.traces[0].mixed.shape[1],
        "model": model_name(models[0]),
        "layers": len(first.layers),
        "parameters": " / ".join(f"{size:,}" for size in sizes),
        "mixer": " / ".join(model.mixer for model in findings),
    }
