"""Trains a model on a data set and evaluates it.

With no arguments: the preset `mini` on the data set `mini`, in a minute or two.
"""

import argparse
import shlex
import sys
from dataclasses import MISSING, Field, fields
from typing import Any, NoReturn

from slicegraph.train.config import TrainConfig, read_yaml

_EXAMPLES = """\
examples:
  slicegraph train
  slicegraph train --data csv:my.csv --target solubility --split scaffold
  slicegraph train --task digits --model.mixer qkv
  slicegraph train --task listops --data lra_release --preset lra-listops
  slicegraph train --data pcqm4m-v2 --preset sliceformer-base --devices 4
  slicegraph train --init runs/one --data csv:my.csv --lr 1e-4 --epochs 30
  slicegraph train --config runs/one/config.yaml --out runs/two --model.mixer qkv
  slicegraph train --resume runs/one
"""
_TITLES = {
    "data": "data",
    "model": "model",
    "training": "training (what is not given is chosen by the preset)",
    "run": "run",
    "machine": "machine",
}
_SETTING = "setting "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for every field of `TrainConfig`, and for every field of the model."""
    parser.formatter_class = _Formatter
    parser.epilog = _EXAMPLES
    parser.usage = "slicegraph train [--data NAME] [--preset NAME] [--out DIR] [settings]"
    groups = {name: parser.add_argument_group(title) for name, title in _TITLES.items()}
    run_group = groups["run"]
    run_group.add_argument(
        "--config", metavar="FILE", help="settings in YAML, which flags override"
    )
    run_group.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="go on with a run: this one, --out, or the newest",
    )
    for field in fields(TrainConfig):
        if field.name != "model":
            _add_flag(groups[field.metadata["group"]], field)
    _add_model_flags(groups["model"])


def _add_flag(group: Any, field: Field) -> None:
    flag, dest = f"--{field.name.replace('_', '-')}", _SETTING + field.name
    text = field.metadata["help"].replace("%", "%%")
    if field.default not in (None, MISSING, False, True):
        text += f" ({field.default})"
    options: dict[str, Any] = {"dest": dest, "default": argparse.SUPPRESS}
    if isinstance(field.default, bool):
        kind: dict[str, Any] = {"action": _Switch}
    else:
        kind = {"metavar": _metavar(field)}
    group.add_argument(flag, help=text, **options, **kind)
    aliases = {f"--{field.name}"} - {flag} | ({"--target"} if field.name == "targets" else set())
    for alias in sorted(aliases):
        group.add_argument(alias, help=argparse.SUPPRESS, **options, **kind)


class _Switch(argparse.BooleanOptionalAction):
    """--flag and --no-flag; and, as in YAML, --flag true and --flag false."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.nargs = "?"

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        said = {None: True, "true": True, "false": False}.get(values)
        negated = (option_string or "").startswith("--no-")
        if said is None or (negated and values is not None):
            parser.error(f"{option_string} {values}: expected true or false, or nothing")
        setattr(namespace, self.dest, said != negated)


def _metavar(field: Field) -> str:
    kind = str(field.type)
    if kind.startswith("tuple"):
        return "A,B"
    return "N" if "int" in kind or "float" in kind else "X"


def _add_model_flags(group: Any) -> None:
    from slicegraph.models import MODELS

    names = {field.name for _, config in MODELS.values() for field in fields(config)}
    for name in sorted(names):
        group.add_argument(
            f"--model.{name}",
            dest=f"{_SETTING}model.{name}",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    group.add_argument(
        "--model.FIELD",
        dest="model_field",
        metavar="X",
        default=argparse.SUPPRESS,
        help="num_layers, channels, mixer, order, align, readout, ...",
    )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, max_help_position=28, width=100, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if isinstance(action, _Switch):
            return ", ".join(action.option_strings)
        return super()._format_action_invocation(action)


def run(args: argparse.Namespace) -> None:
    """Trains; prints the result, the model's and the report's place."""
    given = _settings(args)
    config, resume = None, None
    if args.resume is not None:
        resume = _run_to_resume(args.resume, given, args.config)
    else:
        config = TrainConfig.from_dict(
            _merged(read_yaml(args.config) if args.config else {}, given)
        )
    _train(config, resume)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line, the model's settings in a dict of their own."""
    if hasattr(args, "model_field"):
        raise ValueError("train: --model.FIELD stands for the fields of a model, as --model.mixer")
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
    for mine, other in (("epochs", "max_steps"), ("max_steps", "epochs")):
        if mine in given and other not in given:
            merged[other] = None
            merged["min_steps"] = given.get("min_steps")
    return merged


def _run_to_resume(named: str, given: dict[str, Any], config: str | None) -> Any:
    from slicegraph.train.run_folder import newest_unfinished

    out = given.pop("out", None)
    if given or config:
        setting = next(iter(given), "config")
        raise ValueError(f"train: a run is resumed with its own settings; leave out {setting!r}")
    return named or out or newest_unfinished()


def _train(config: TrainConfig | None, resume: Any) -> None:
    from slicegraph.train.bad_batch import TrainingError
    from slicegraph.train.initial_model import say
    from slicegraph.train.run import train
    from slicegraph.train.stop import Stopped

    command = shlex.join(["slicegraph", *sys.argv[1:]])
    try:
        result = train(config, resume=resume, command=command)
    except Stopped as stopped:
        _end_after(stopped)
    except TrainingError as error:
        print(f"slicegraph: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    say(str(result))
    say(f"model   {result.model}")
    _report(result.folder)


def _end_after(stopped: Any) -> NoReturn:
    """Ends with the status of the signal on the first rank, and with 0 on the others.

    A rank that ends with another status is taken for a failure, for which the first rank is killed.
    """
    from lightning.pytorch.utilities import rank_zero_only

    if getattr(rank_zero_only, "rank", 0):
        raise SystemExit(0) from None
    print(f"slicegraph: {stopped}; go on with --resume", file=sys.stderr)
    raise SystemExit(128 + stopped.signum) from None


def _report(folder: Any) -> None:
    from lightning.pytorch.utilities import rank_zero_only

    from slicegraph.report import write_report

    rank_zero_only(lambda: print(f"report  {write_report(folder)}"))()
