"""The `slicegraph` command: one file a subcommand.

The file of a subcommand has `add_arguments(parser)` and `run(args)`; its docstring is the
description of the command, its `EPILOG` has examples. Only the file of the command that runs is
imported.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from slicegraph import __version__
from slicegraph.extras import MissingPackage, needs

COMMANDS = {
    "info": "show versions, backends and devices",
    "datasets": "list the data sets that are known by name",
    "prepare": "make a store of the molecules in a file",
    "check": "check a table before training, and show what is in it",
    "pretrain": "pre-train an encoder on molecules without labels",
    "train": "train a model and evaluate it",
    "evaluate": "score a model on a split of a data set",
    "predict": "predict for SMILES, or for the molecules in a file",
    "explain": "show what each atom contributes to a prediction",
    "embed": "write a vector for each molecule in a file",
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
    "submit",
)  # these need no training
STOPPED = 130  # the exit status after Ctrl-C


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
