"""Looks into the mixing layers of a model, and writes a page of what they do.

The page has the singular spectrum and the effective rank of what every layer mixes, heat maps of
the sorted rows, the permutation of a channel, and how a softmax smooths as there is more to attend
to. With --twin it shows another model, such as one with attention, on the same samples, and prints
in how many layers the spectrum of the model decays more slowly than its twin's.
Without --data the samples are from the data of the run that made the model.
analysis.html, analysis.json and figures/ are written; those that are there are replaced.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.analysis_data import samples_for
from slicegraph.cli.analysis_kinds import check_twins
from slicegraph.cli.analysis_samples import Samples
from slicegraph.cli.analysis_tables import decay_lines, rank_lines
from slicegraph.cli.run_data import root_of_run

if TYPE_CHECKING:
    from slicegraph.analysis import Findings

EPILOG = """\
examples:
  slicegraph analyze runs/mini
  slicegraph analyze runs/mini --data "CCO" "c1ccccc1" --sample 1
  slicegraph analyze runs/sort --twin runs/qkv --layer 2 --channel 7 --out look
  slicegraph analyze saved --task images --data pictures --split test
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The models, the samples, and what of them is drawn."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="the folder of a run or of a saved model, or a checkpoint")
    add("--twin", metavar="MODEL", help="another model, to be shown beside it")
    add(
        "--data",
        nargs="+",
        metavar="NAME",
        help="a data set or task by name, csv:PATH, SMILES, a folder; if not given, the run's",
    )
    add("--task", help="whose files are in the folder; if not given, the run's")
    add("--split", default="valid", help="a split of it (%(default)s)")
    add("--samples", type=int, default=32, metavar="N", help="how many (%(default)s)")
    add("--root", help="the folder of the data sets (that of the run, or dataset)")
    add("--sample", type=int, default=0, metavar="N", help="the one that is drawn, from 0")
    add("--layer", type=int, metavar="N", help="whose permutation is drawn, from 1")
    add("--channel", type=int, metavar="N", help="whose permutation is drawn, from 0")
    add("--out", metavar="DIR", help="where to write; analysis in the folder of the model")


def run(args: argparse.Namespace) -> None:
    """Prints tables of the ranks and of the spectra, and where the page is."""
    from slicegraph.analysis import Choice, check_sample, softmax_smoothing, write_analysis

    args.root = args.root or root_of_run(args.model)
    loaded = _models(args)
    named = dict(zip(_names(loaded, args), loaded.values(), strict=True))
    samples = samples_for(loaded, args)
    check_sample(args.sample, samples.count)
    models = [_look(name, model, samples, args.sample) for name, model in named.items()]
    _check_sorts(models[0], args)
    choice = Choice(1 if args.layer is None else args.layer, args.channel or 0)
    facts = _facts(list(loaded.values()), models, samples)
    place = write_analysis(_folder(args), models, softmax_smoothing(), choice, facts)
    lines = [f"note    {samples.note}"] if samples.note else []
    lines += rank_lines(models)
    if args.twin is not None:
        lines += ["", *decay_lines(*models)]
    print("\n".join(lines))
    print(f"page    {place}\nnumbers {place.with_suffix('.json')}")


def _models(args: argparse.Namespace) -> dict[str, Any]:
    """By their paths, the twin last."""
    from slicegraph.predictor import load

    paths = [path for path in (args.model, args.twin) if path is not None]
    models = {path: load(Path(path)) for path in paths}
    check_twins(models)
    return models


def _names(models: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    """Those of their folders; with their mixers, if they have the same."""
    names = [_name(Path(path)) for path in models]
    if len(set(names)) < len(names):
        mixers = [model.config.mixer for model in models.values()]
        names = [f"{name} {mixer}" for name, mixer in zip(names, mixers, strict=True)]
    if len(set(names)) < len(names) or args.twin == args.model:
        raise ValueError(f"--twin {args.twin} has the name and the mixer of {args.model}")
    return names


def _name(path: Path) -> str:
    """That of the run, whichever part of it was given."""
    path = path.resolve()
    if path.is_file():
        path = path.parent
    return path.parent.name if path.name in ("model", "checkpoints") else path.name


def _look(name: str, model: Any, samples: Samples, sample: int) -> "Findings":
    from slicegraph.analysis import measure, trace

    parts = (trace(model, *inputs) for inputs in samples.batches())
    try:
        return measure(name, parts, sample, towers=getattr(model.config, "towers", 1))
    except (IndexError, ValueError) as error:
        raise ValueError(f"{name} cannot be analysed on {samples.name}: {error}") from error


def _check_sorts(model: "Findings", args: argparse.Namespace) -> None:
    asked = [name for name in ("layer", "channel") if getattr(args, name) is not None]
    if asked and not model.sorts:
        raise ValueError(
            f"--{asked[0]}: {model.name} has no layers that sort (its mixer is {model.mixer}), and "
            "so no permutation; give a sorting model first, and this one as --twin"
        )


def _folder(args: argparse.Namespace) -> Path:
    if args.out is not None:
        return Path(args.out)
    model = Path(args.model)
    return (model.parent if model.is_file() else model) / "analysis"


def _facts(
    models: Sequence[Any], findings: Sequence["Findings"], samples: Samples
) -> dict[str, Any]:
    from slicegraph.models.checkpoint import model_name

    first = findings[0]
    sizes = [sum(value.numel() for value in model.parameters()) for model in models]
    return {
        "data": samples.name,
        "samples": samples.count,
        **_rows(first),
        "channels": first.traces[0].mixed.shape[1],
        "model": model_name(models[0]),
        "layers": len(first.layers),
        "parameters": " / ".join(f"{size:,}" for size in sizes),
        "mixer": " / ".join(model.mixer for model in findings),
    }


def _rows(model: "Findings") -> dict[str, str]:
    low, high = min(model.sizes), max(model.sizes)
    rows = f"{low}" if low == high else f"{low} to {high}"
    if model.towers == 1:
        return {"rows of a sample": rows}
    return {"pairs": "both texts are measured, the first is drawn", "rows of a text": rows}
