"""Check a table before training: what is read, rejected and repeated, and how it is split.

The command prints a summary with warnings, writes it as a page with figures, and ends with the
command that trains on the table. Nothing is trained. The options are those of `slicegraph train`.
"""

import argparse
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from slicegraph.cli import check_new_file
from slicegraph.cli.train import add_flag, settings
from slicegraph.train.config import FILE_PREFIX, TABLE_ONLY, TrainConfig

EPILOG = """\
examples:
  slicegraph check my.csv
  slicegraph check my.csv --targets logD --split scaffold
  slicegraph check my.csv --targets active --out check.html --force
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file, the page, and every option of `train` that is for a table."""
    add = parser.add_argument
    parser.usage = "slicegraph check FILE [--targets A,B] [--split X] [--out PAGE] [options]"
    add(
        "file", metavar="FILE", help="a table of molecules, as for slicegraph train --data csv:FILE"
    )
    add("--out", metavar="PAGE", help="page to write (default: the name of FILE and -check.html)")
    add("--force", action="store_true", help="replace the page if it exists")
    group = parser.add_argument_group("data, as in `slicegraph train`")
    for field in fields(TrainConfig):
        if field.name in TABLE_ONLY:
            add_flag(group, field, field.metadata["help"].rpartition("csv: ")[2])


def run(args: argparse.Namespace) -> None:
    """Print the summary, the path of the page and the command to go on with."""
    file = args.file.removeprefix(FILE_PREFIX)
    found = settings(args)
    given = {name: found[name] for name in TABLE_ONLY if name in found}
    page = Path(args.out or f"{page_stem(file)}-check.html")
    check_new_file(page, args.force or _is_check(page))
    config = TrainConfig.from_dict({"data": f"{FILE_PREFIX}{file}", **given})

    from slicegraph.data.summary import summary_lines
    from slicegraph.report import write_check

    options = [word for name, value in given.items() for word in (_flag(name), value)]
    train = shlex.join(["slicegraph", "train", "--data", f"{FILE_PREFIX}{file}", *options])
    summary = _summary(config, file)
    print("\n".join(summary_lines(summary)))
    write_check(page, summary, train)
    print(f"page    {page}\nnext    {train}")


def _is_check(page: Path) -> bool:
    """Return whether the file is a page that this command has written."""
    try:
        return '<meta name="generator" content="slicegraph">' in page.read_text("utf-8", "replace")
    except OSError:
        return False


def page_stem(file: str) -> str:
    """Return the name of a table without its folder and its endings."""
    path = Path(file)
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _summary(config: TrainConfig, file: str) -> dict[str, Any]:
    """Load the table as `train` does; an error that gives a command gives that of the check."""
    from slicegraph.train.data import MoleculeRunData

    data = MoleculeRunData(config)
    try:
        data.prepare_data()
    except ValueError as error:
        train = shlex.join(["slicegraph", "train", "--data", f"{FILE_PREFIX}{file}"])
        text = str(error).replace(train, shlex.join(["slicegraph", "check", file]))
        if text == str(error):
            raise
        raise ValueError(text) from None
    return data.dataset.summary
