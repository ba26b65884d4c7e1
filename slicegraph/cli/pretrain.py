"""Pre-train an encoder on molecules without labels, for `slicegraph train --init` and `embed`.

The encoder learns to predict what RDKit computes: 2D descriptors, functional groups, Morgan counts,
masked atoms and bonds, ring sizes and partial charges. A molecule that cannot be read is left out
and counted. After an interruption the same command goes on from there.
"""

import argparse
import shlex
import sys
from dataclasses import fields

from slicegraph.cli.train import Formatter, add_flag, add_model_flags, settings
from slicegraph.train.config import PRETRAIN_SETTINGS, TrainConfig

EPILOG = """\
examples:
  slicegraph pretrain molecules.csv more.smi.gz --out runs/pretrained --epochs 3
  slicegraph pretrain molecules.csv --out runs/small --limit 20000 --exclude test.csv
  slicegraph train --data csv:my.csv --init runs/pretrained --lr 3e-4
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `slicegraph.train.pretrain.pretrain`."""
    parser.formatter_class = Formatter
    parser.usage = "slicegraph pretrain SOURCE [SOURCE ...] --out DIR [settings]"
    add = parser.add_argument
    add("sources", nargs="+", metavar="SOURCE", help="a file of molecules, or a prepared store")
    add("--out", required=True, metavar="DIR", help="folder: new, or of an interrupted run")
    add("--data", metavar="DIR", help="folder of corpus and descriptors (default: DIR/data)")
    add("--smiles", metavar="COLUMN", help="column of the SMILES (default: guessed)")
    add("--exclude", nargs="+", default=[], metavar="FILE", help="files of molecules to leave out")
    add(
        "--limit", type=int, metavar="N", help="largest number of training molecules (default: all)"
    )
    add("--licence", default="", metavar="TEXT", help="licence of the sources, for the model card")
    add("--half", action="store_true", help="save the weights in half precision")
    add("--workers", type=int, metavar="N", help="processes (default: one a core, at most 8)")
    add("--device", default="cpu", help="cpu, cuda, ... (default: %(default)s)")
    group = parser.add_argument_group("training (defaults: 5 epochs, and those of the preset)")
    for field in fields(TrainConfig):
        if field.name in PRETRAIN_SETTINGS and field.name != "model":
            add_flag(group, field)
    add_model_flags(group)


def run(args: argparse.Namespace) -> None:
    """Pre-train; print where the model is. Ctrl-C ends with status 130."""
    from slicegraph.train.callbacks import Stopped
    from slicegraph.train.pretrain import pretrain

    names = ("data", "smiles", "exclude", "limit", "licence", "half", "workers", "device")
    options = {name: getattr(args, name) for name in names}
    options["command"] = shlex.join(["slicegraph", *sys.argv[1:]])
    try:
        config = TrainConfig.from_dict(settings(args))
        result = pretrain(args.sources, args.out, config, **options)
    except (Stopped, KeyboardInterrupt) as stopped:
        kept = f"finished work is kept in {args.out!r}; the same command goes on from there"
        print(f"slicegraph: stopped; {kept}", file=sys.stderr)
        raise SystemExit(128 + getattr(stopped, "signum", 2)) from None
    print(f"model   {result.model}")
