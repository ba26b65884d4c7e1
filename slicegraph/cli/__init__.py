"""The `slicegraph` command: one file a subcommand.

The file of a subcommand has `add_arguments(parser)` and `run(args)`; its docstring is the
description, and its `EPILOG`, if there is one, has examples. Only the file of the subcommand that
is asked for is imported.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from slicegraph import __version__

COMMANDS = {
    "info": "show versions, backends and devices",
    "datasets": "list the data sets that are known by name",
    "prepare": "make a store of the molecules in a file",
    "train": "train a model and evaluate it",
    "evaluate": "score a model on a split of a data set",
    "predict": "predict for SMILES, or for the molecules in a file",
    "submit": "write the file for OGB's leaderboard",
    "report": "make the page of a run again",
    "analyze": "look into the mixing layers of a model",
}

_EXAMPLES = """\
examples:
  slicegraph train                          train a small model on the data that come along
  slicegraph predict runs/one "CCO"         predict with it
  slicegraph train --data csv:my.csv        train on a file of your own
  slicegraph predict --help                 the options of a command
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status, 2 for a mistake of the user."""
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = _parser(asked=next((word for word in argv if not word.startswith("-")), None))
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        args.run(args)
    except (ValueError, OSError) as error:
        print(f"slicegraph: error: {_told(error)}", file=sys.stderr)
        return 2
    return 0


def _told(error: ValueError | OSError) -> str:
    """The message; that of the system in words, without its number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        place = str(error.filename)
        return f"cannot use {place!r}: {error.strerror}; choose another file or folder"
    return str(error)


def _parser(asked: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slicegraph",
        description="Graph learning that sorts instead of attending.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slicegraph {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="<command>")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == asked:
            module = import_module(f"slicegraph.cli.{name}")
            subparser.description = module.__doc__
            subparser.epilog = getattr(module, "EPILOG", None)
            subparser.set_defaults(run=module.run)
            module.add_arguments(subparser)
    return parser
