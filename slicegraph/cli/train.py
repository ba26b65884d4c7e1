"""Train a model on a data set and evaluate it.

With no arguments: the preset `mini` on the data set `mini`, in a minute or two.
"""

import argparse
import re
import shlex
import sys
from dataclasses import MISSING, Field, fields
from typing import Any

from slicegraph.train.config import TrainConfig, read_yaml

EPILOG = """\
examples:
  slicegraph train
  slicegraph train --data csv:my.csv --targets solubility --split scaffold
  slicegraph train --task digits --model.mixer qkv
  slicegraph train --task listops --data lra_release --preset lra-listops
  slicegraph train --data pcqm4m-v2 --preset sliceformer-base --devices 8
  slicegraph train --data csv:my.csv --folds 5 --split scaffold --out runs/folds
  slicegraph train --init runs/one --data csv:my.csv --lr 1e-4 --epochs 30
  slicegraph train --config runs/one/config.yaml --out runs/two --model.mixer qkv
  slicegraph train --resume runs/one
"""
_TITLES = {
    "data": "data",
    "model": "model",
    "training": "training (defaults come from the preset)",
    "run": "run",
    "machine": "machine",
}
_SETTING = "setting "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every field of `TrainConfig` and for every field of the model."""
    parser.formatter_class = Formatter
    parser.usage = "slicegraph train [--data NAME] [--preset NAME] [--out DIR] [settings]"
    groups = {name: parser.add_argument_group(title) for name, title in _TITLES.items()}
    run_group = groups["run"]
    run_group.add_argument("--config", metavar="FILE", help="settings in YAML; flags override them")
    run_group.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="resume a run: RUN, --out, or the newest unfinished one",
    )
    for field in fields(TrainConfig):
        if field.name != "model":
            add_flag(groups[field.metadata["group"]], field)
    add_model_flags(groups["model"])


def add_flag(group: Any, field: Field, text: str | None = None) -> None:
    """Add the flag of a field of `TrainConfig`, with another help text than that of the field."""
    flag, dest = f"--{field.name.replace('_', '-')}", _SETTING + field.name
    text = (text or field.metadata["help"]).replace("%", "%%")
    if field.default not in (None, MISSING) and not isinstance(field.default, bool):
        text += f" (default: {field.default})"
    options: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS}
    if "bool" in str(field.type):
        options["action"] = _Switch
    elif str(field.type).startswith("tuple"):
        options["metavar"] = "A,B,C" if field.name == "fractions" else "A,B"
        if field.name == "standardize":
            options |= {"nargs": "?", "const": "all"}
    else:
        options["metavar"] = "N" if re.search("int|float", str(field.type)) else "X"
    group.add_argument(flag, help=text, **options)
    aliases = {f"--{field.name}"} - {flag} | ({"--target"} if field.name == "targets" else set())
    for alias in sorted(aliases):
        group.add_argument(alias, help=argparse.SUPPRESS, **options)


class _Switch(argparse.BooleanOptionalAction):
    """--flag and --no-flag; and, as in YAML, --flag true and --flag false."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nargs = "?"

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        value = {None: True, "true": True, "false": False}.get(values)
        negated = (option_string or "").startswith("--no-")
        if value is None or (negated and values is not None):
            parser.error(f"{option_string} {values}: expected true or false, or nothing")
        setattr(namespace, self.dest, value != negated)


def add_model_flags(group: Any) -> None:
    """Add --model.FIELD for every field of a model."""
    from slicegraph.models import MODELS

    hidden: Any = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for name in sorted({field.name for _, config in MODELS.values() for field in fields(config)}):
        group.add_argument(f"--model.{name}", dest=f"{_SETTING}model.{name}", **hidden)
    shown = hidden | {"help": "num_layers, channels, mixer, order, align, readout, ..."}
    group.add_argument("--model.FIELD", dest="model_field", metavar="X", **shown)


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description and of the examples."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, width=100, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, _Switch):
            return ", ".join(action.option_strings)
        return super()._format_action_invocation(action)


def run(args: argparse.Namespace) -> None:
    """Train; print the result and the paths of the model and the report."""
    given = settings(args)
    config, resume = None, None
    if args.resume is not None:
        resume = _run_to_resume(args.resume, given, args.config)
    else:
        base = read_yaml(args.config) if args.config else {}
        config = TrainConfig.from_dict(_merged(base, given))
    from lightning.pytorch.utilities import rank_zero_only

    from slicegraph.data.columns import AmbiguousTargets
    from slicegraph.train.callbacks import Stopped
    from slicegraph.train.machine import say
    from slicegraph.train.module import TrainingError
    from slicegraph.train.run import train

    command = shlex.join(["slicegraph", *sys.argv[1:]])
    try:
        result = train(config, resume=resume, command=command)
    except AmbiguousTargets as error:
        short = shlex.join(["slicegraph", "train", "--data", str(config and config.data)])
        raise ValueError(str(error).replace(short, command)) from None
    except Stopped as stopped:
        # The launcher takes a status other than 0 of a rank for a failure and kills the first rank.
        if getattr(rank_zero_only, "rank", 0):
            raise SystemExit(0) from None
        again = shlex.join(["slicegraph", "train", "--resume", str(stopped.folder or resume)])
        print(f"slicegraph: {stopped}; resume with: {again}", file=sys.stderr)
        raise SystemExit(128 + stopped.signum) from None
    except TrainingError as error:
        print(f"slicegraph: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    from slicegraph.train.results import forest_line

    say("\n".join(filter(None, [str(result), forest_line(result.metrics)])))
    say(f"model   {result.model}")
    from slicegraph.report import write_report

    rank_zero_only(lambda: print(f"report  {write_report(result.folder)}"))()
    if result.metrics.get("failed"):
        again = shlex.join(["slicegraph", "train", "--resume", str(result.folder)])
        print(f"slicegraph: error: some models failed; try again with: {again}", file=sys.stderr)
        raise SystemExit(1)


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the command line, those of the model in a dict of their own."""
    if hasattr(args, "model_field"):
        raise ValueError("train: --model.FIELD stands for a field, such as --model.mixer")
    given: dict[str, Any] = {}
    for dest, value in vars(args).items():
        name = dest.removeprefix(_SETTING)
        if name == dest:
            continue
        if name.startswith("model."):
            given.setdefault("model", {})[name.removeprefix("model.")] = _value(name, value)
        else:
            given[name] = value
    return given


def _value(name: str, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(f"train: {name} = {text!r}, expected a number, a word or a list") from None


def _merged(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    merged = base | given
    if "model" in given:
        merged["model"] = (base.get("model") or {}) | given["model"]
    for pair in (("epochs", "max_steps"), ("batch_size", "device_batch_size")):
        for mine, other in (pair, pair[::-1]):
            if mine in given and other not in given:
                merged[other] = None
                if mine in ("epochs", "max_steps"):
                    merged["min_steps"] = given.get("min_steps")
    return merged


def _run_to_resume(named: str, given: dict[str, Any], config: str | None) -> Any:
    from slicegraph.train.run_folder import newest_unfinished

    out = given.pop("out", None)
    if given or config:
        setting = next(iter(given), "config")
        raise ValueError(f"train: a run is resumed with its own settings; leave out {setting!r}")
    return named or out or newest_unfinished()
