"""The `slicegraph` command: one file a subcommand, and the arguments and checks that several share.

The file of a subcommand has `add_arguments(parser)` and `run(args)`; its docstring is the
description of the command, its `EPILOG` has examples. Only the file of the command that runs is
imported.
"""

import argparse
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph import __version__
from slicegraph.extras import MissingPackage, needs

if TYPE_CHECKING:
    from slicegraph.data.datasets import MoleculeDataset
    from slicegraph.models import GraphSliceformerConfig
    from slicegraph.predict import MoleculePredictor

COMMANDS = {
    "info": "show versions, backends and devices",
    "datasets": "list the data sets that are known by name",
    "prepare": "make a store of the molecules in a file",
    "check": "check a table before training, and show what is in it",
    "pretrain": "pre-train an encoder on molecules without labels",
    "train": "train a model and evaluate it",
    "tune": "search for better settings of a training",
    "evaluate": "score a model on a split of a data set",
    "predict": "predict for SMILES, or for the molecules in a file",
    "explain": "show what each atom contributes to a prediction",
    "embed": "write a vector for each molecule in a file",
    "serve": "show a page on this machine to try a model",
    "submit": "write the file for OGB's leaderboard",
    "report": "make the page of a run again",
    "analyze": "look into the mixing layers of a model",
}

_EXAMPLES = """\
examples:
  slicegraph train                          train a small model on the shipped data
  slicegraph predict runs/one "CCO"         predict with it
  slicegraph check my.csv                   look at a file of your own
  slicegraph train --data csv:my.csv        train on it
  slicegraph predict --help                 the options of a command
"""


_MOLECULES_ONLY = (
    "datasets",
    "prepare",
    "predict",
    "explain",
    "embed",
    "serve",
    "submit",
)  # these need no training
SOME_BAD, STOPPED, CLOSED = 3, 130, 141
"""The exit status if rows have errors instead, after Ctrl-C, and if nothing reads the output."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status, 2 for bad input and 130 after Ctrl-C."""
    try:
        return _main(argv)
    except KeyboardInterrupt:  # also while modules are imported
        print("slicegraph: stopped", file=sys.stderr)
        return STOPPED


def _main(argv: Sequence[str] | None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    command = next((word for word in argv if not word.startswith("-")), None)
    parser = _parser(command)
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    extras = ("mol",) if command in _MOLECULES_ONLY else ("mol", "train")
    try:
        with needs(f"slicegraph {command}", *extras):
            args.run(args)
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except (ValueError, OSError, MissingPackage) as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            place = str(error.filename)
            text = f"cannot use {place!r}: {error.strerror}; choose another file or folder"
        print(f"slicegraph: error: {text}", file=sys.stderr)
        return 2
    return 0


def _parser(command: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slicegraph",
        description="Sliceformer models for molecules, sequences and images.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slicegraph {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="<command>")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == command:
            module = import_module(f"slicegraph.cli.{name}")
            subparser.description = module.__doc__
            subparser.epilog = getattr(module, "EPILOG", None)
            subparser.set_defaults(run=module.run)
            module.add_arguments(subparser)
    return parser


def add_model(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add the model (or several), its device and its batch size."""
    add = parser.add_argument
    text = "folder of a run or of a saved model, or a checkpoint"
    if several:
        add("models", nargs="+", metavar="MODEL", help=f"{text}; several: their mean")
    else:
        add("model", metavar="MODEL", help=text)
    add(
        "--batch-size",
        type=int,
        default=256,
        metavar="N",
        help="samples at once (default: 256)",
    )
    add("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")


def add_smiles(parser: argparse.ArgumentParser) -> None:
    """Add the column, or the columns, of the molecules of a file."""
    text = "column of the SMILES (default: guessed), or columns A,B of a model of several molecules"
    parser.add_argument("--smiles", metavar="COLUMN", help=f"{text} (default: as in training)")


def add_features(parser: argparse.ArgumentParser) -> None:
    """Add the numbers of feature columns that are not in a file."""
    text = "numbers of the model's feature columns, for all rows (default: those of the file)"
    parser.add_argument("--features", metavar="A=X,B=Y", help=text)


def feature_numbers(text: str | None) -> dict[str, float]:
    """Read the numbers of --features."""
    found = {}
    for part in columns(text or ""):
        name, _, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(f"--features {part!r}, expected NAME=NUMBER") from None
    return found


def check_feature_numbers(config: "GraphSliceformerConfig", given: dict[str, float]) -> None:
    """Raise if SMILES of the command line lack a feature of the model, or have another."""
    names = config.feature_columns
    for name in (name for name in names if name not in given):
        raise ValueError(f"the model needs a number of the feature {name!r}: --features {name}=X")
    for name in (name for name in given if name not in names):
        listed = ", ".join(map(repr, names)) or "none"
        raise ValueError(f"the model has no feature {name!r}: {listed}")


def load_molecule_model(args: argparse.Namespace) -> "MoleculePredictor":
    """Load the model; raise if its input is not molecules."""
    from slicegraph.predict import MoleculePredictor

    model = load_model(args)
    if not isinstance(model, MoleculePredictor):
        raise ValueError(
            f"{args.model} is a model of {model.takes}, not of molecules; in Python, "
            f"slicegraph.load({args.model!r}).predict takes them, and `slicegraph evaluate` "
            "scores it on its task"
        )
    return model


def load_model(args: argparse.Namespace) -> Any:
    """Load the model, of any kind."""
    import torch

    from slicegraph.predict import load_predictor
    from slicegraph.predict.table import default_device

    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}, expected at least 1")
    name = default_device() if args.device == "auto" else args.device
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"--device {name} cannot be used: {reason}") from None
    return load_predictor(args.model, name)


def file_among(inputs: Sequence[str]) -> Path | None:
    """Return the file of molecules that the inputs of a command name, or None for SMILES."""
    from slicegraph.data.table import SUFFIXES

    endings = (*SUFFIXES, *(f"{suffix}.gz" for suffix in SUFFIXES))
    files = [text for text in inputs if text.lower().endswith(endings)]
    for text in () if files else inputs:
        if os.path.exists(text):
            kind = "a folder" if os.path.isdir(text) else "a file of an unknown kind"
            raise ValueError(f"{text!r} is {kind}, expected SMILES or {', '.join(SUFFIXES)}")
    if not files:
        return None
    if len(inputs) > 1:
        raise ValueError(f"{files[0]!r} is a file, expected no other input")
    if Path(files[0]).is_dir():
        raise ValueError(f"{files[0]!r} is a folder, expected a file, or .parquet files in it")
    if not Path(files[0]).is_file():
        raise FileNotFoundError(f"there is no file {files[0]!r}")
    return Path(files[0])


@contextmanager
def when_stopped(kept: str) -> Iterator[None]:
    """End with status 130 after Ctrl-C, and print what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"slicegraph: stopped; {kept}", file=sys.stderr)
        raise SystemExit(STOPPED) from None


def check_new_file(path: Path, force: bool) -> None:
    """Raise if a result would replace a file without --force, or cannot be written."""
    if path.exists() and not path.is_file():
        raise ValueError(f"--out {path} is not a regular file")
    if path.exists() and not force:
        raise ValueError(f"--out {path} exists already; --force replaces it")
    if not path.parent.is_dir():
        raise ValueError(f"--out {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ValueError(f"--out {path}: the folder {path.parent} may not be written to")


def options_of_run(model: str, data: str, config: "GraphSliceformerConfig") -> dict[str, Any]:
    """How a file of the user's own is read: the labels of the model, and the split of its run."""
    from slicegraph.train.run_folder import data_of_run

    found: dict[str, Any] = {"targets": config.target_names or None, "task": config.task}
    found |= {"class_names": config.class_names or None, "standardize": config.standardize}
    found |= {"features": config.feature_columns or None}
    found |= {"smiles": config.molecule_columns or None}
    found |= data_of_run(model, data)
    return {name: value for name, value in found.items() if value is not None}


def check_fit(config: "GraphSliceformerConfig", data: "MoleculeDataset") -> None:
    """Raise if the model predicts something else than the data set has labels for."""
    task, names = data.task, ", ".join(data.task.target_names)
    problems = [
        f"{what} {own!r} of the model, {theirs!r} of the data ({names})"
        for what, own, theirs in (
            ("kind of task", config.task, task.kind),
            ("number of targets", config.num_targets, task.num_targets),
        )
        if own != theirs
    ]
    if task.kind == "multiclass" and task.num_classes > config.num_classes:
        problems += [f"it has {config.num_classes} classes, the data have {task.num_classes}"]
    if problems:
        raise ValueError(f"the model does not fit {data.name}: {problems[0]}")


def columns(text: str) -> tuple[str, ...]:
    """Split column names at commas, as in a CSV: a name with a comma is quoted."""
    from slicegraph.data.columns import split_names

    return split_names(text)


def print_aligned(rows: list[list[str]], right: Collection[int] = ()) -> None:
    """Print a table with these columns aligned to the right and the others to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
