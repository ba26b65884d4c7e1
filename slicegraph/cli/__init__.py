"""The `slicegraph` command: one file a subcommand.

The file of a subcommand has `add_arguments(parser)` and `run(args)`, and its docstring is the
description. Only the file of the subcommand that is asked for is imported.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from slicegraph import __version__

COMMANDS = {
    "info": "show versions, backends and devices",
}

_EXAMPLES = """\
examples:
  slicegraph info          what is installed here, and which kernels run
  slicegraph info --help   the options of a command
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
        print(f"slicegraph: error: {error}", file=sys.stderr)
        return 2
    return 0


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
        subparser = commands.add_parser(name, help=summary)
        if name == asked:
            module = import_module(f"slicegraph.cli.{name}")
            subparser.description = module.__doc__
            subparser.set_defaults(run=module.run)
            module.add_arguments(subparser)
    return parser
