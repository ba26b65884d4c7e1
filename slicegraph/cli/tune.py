"""Search for better settings of `slicegraph train` on a table, with Optuna.

The command takes every setting of `slicegraph train`. Of lr, dropout, weight_decay, ema, batch_size
and, for a new model, num_layers and channels, it searches those that are not given. The first trial
has the defaults. Trials are compared by their best valid score, and those below the median of
the others at the same part of their training end early. The test split is scored once, for the best
trial. All trials use one prepared table.

Everything is in one folder: the study (study.log), a run for each trial (trials/), and the table of
trials (trials.csv). An interrupted search goes on with the same command and --out.
"""

import argparse
import csv
import io
import json
import math
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from slicegraph.cli.train import Formatter, add_flag, add_model_flags, settings
from slicegraph.extras import needs
from slicegraph.train.config import TrainConfig, read_yaml

EPILOG = """\
examples:
  slicegraph tune --data csv:my.csv --targets logD --trials 30 --out runs/tuned
  slicegraph tune --data csv:my.csv --targets logD --trials 60 --out runs/tuned
  slicegraph tune --data csv:my.csv --trials 20 --epochs 50 --preset slicegraph-slim
"""
_SHOWN = ("data", "targets", "split", "features", "preset", "epochs", "seed", "out")
_REFUSED = ("folds", "repeats", "ensemble", "fold", "train_splits")
_STEPS = 20  # parts of a training after which trials are compared
_WARMUP, _STARTUP = 4, 4  # of these parts, and of the trials, that none is stopped in
_MOST_DROPOUT = 0.4


class _Hidden:
    """Adds flags that the help does not list."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser

    def add_argument(self, *flags: str, **options: Any) -> None:
        self.parser.add_argument(*flags, **(options | {"help": argparse.SUPPRESS}))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of trials and every flag of `train`, most of them not listed."""
    parser.formatter_class = Formatter
    parser.usage = "slicegraph tune --data csv:FILE [--trials N] [--out DIR] [settings of train]"
    text = "trials in all, those before an interruption included (default: %(default)s)"
    parser.add_argument("--trials", type=int, default=30, metavar="N", help=text)
    parser.add_argument("--config", metavar="FILE", help="settings in YAML; flags override them")
    for field in fields(TrainConfig):
        if field.name != "model":
            add_flag(parser if field.name in _SHOWN else _Hidden(parser), field)
    add_model_flags(_Hidden(parser))


def run(args: argparse.Namespace) -> None:
    """Search, score the best trial on test, and print the command that trains it again."""
    with needs("slicegraph tune", "tune"):
        import optuna

    from slicegraph.train.callbacks import Stopped

    base = read_yaml(args.config) if args.config else {}
    given = base | settings(args)
    given["model"] = dict(base.get("model") or {}) | dict(given.get("model") or {})
    if args.trials < 1:
        raise ValueError(f"--trials {args.trials}, expected at least 1")
    for name in _REFUSED:
        if given.get(name):
            remedy = "search without it, and train the best settings with it"
            raise ValueError(f"tune: {name} is for a training, not for a search; {remedy}")
    folder = Path(given.pop("out", None) or f"runs/tune-{time.strftime('%Y%m%d-%H%M%S')}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = _Search(folder, given, optuna)
    try:
        search.run(args.trials)
    except (Stopped, KeyboardInterrupt) as stopped:
        again = shlex.join(["slicegraph", *sys.argv[1:]])
        more = "" if "--out" in again else f" --out {shlex.quote(str(folder))}"
        print(f"slicegraph: stopped; go on with: {again}{more}", file=sys.stderr)
        raise SystemExit(128 + getattr(stopped, "signum", 2)) from None
    search.finish()


class _Search:
    """A study of Optuna in a folder, whose trials are runs in its folder `trials`."""

    def __init__(self, folder: Path, given: dict[str, Any], optuna: Any) -> None:
        self.folder, self.optuna, config = folder, optuna, TrainConfig.from_dict(given)
        self.given = {name: getattr(config, name) for name in given}  # of their types
        self.config = config.resolved()
        self._check_data()
        self._claim()
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.log"))
        self.study = optuna.create_study(
            study_name="slicegraph",
            storage=optuna.storages.JournalStorage(backend),
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(_STARTUP, _WARMUP),
        )
        # A search that goes on must not draw the numbers of its beginning again.
        seed = self.config.seed + len(self.study.trials)
        self.study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)

    def _check_data(self) -> None:
        """Prepare the data once; what is wrong with it or with the settings is an error here."""
        from slicegraph.registry import task_domain
        from slicegraph.train import data as molecules

        domain = task_domain() if self.config.is_task else molecules
        domain.check(self.config)
        self.data = domain.run_data(self.config)
        self.data.prepare_data()

    def _claim(self) -> None:
        """Make the folder, or raise if it has something else or another search."""
        from slicegraph.files import write_atomically
        from slicegraph.train.run_folder import refuse_used

        record = json.dumps(json.loads(json.dumps(self.given)), indent=1, sort_keys=True)
        path = self.folder / "settings.json"
        if not path.is_file():
            refuse_used(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [record.encode()])
        elif path.read_text("utf-8") != record:
            before, now = json.loads(path.read_text("utf-8")), json.loads(record)
            names = {**before, **now}
            name = next(n for n in names if before.get(n) != now.get(n))
            change = f"{name} was {before.get(name)!r}, is {now.get(name)!r}"
            raise ValueError(f"tune: {self.folder} was begun with other settings ({change})")

    def run(self, count: int) -> None:
        """Run trials until there are so many; one that was interrupted goes on first."""
        states = self.optuna.trial.TrialState
        interrupted = [one for one in self.study.trials if one.state == states.RUNNING]
        for trial in interrupted:
            self.study.enqueue_trial(trial.params, {"folder": trial.user_attrs.get("folder")})
            self.study.set_user_attr(f"interrupted {trial.number}", True)
            self.study.tell(trial.number, state=states.FAIL)
        if not self.study.trials:
            self.study.enqueue_trial(self._defaults())
        gone = sum(name.startswith("interrupted") for name in self.study.user_attrs)
        waiting = sum(one.state == states.WAITING for one in self.study.trials)
        done = len(self.study.trials) - gone - waiting
        if done:
            print(f"study   {self.folder}: {done} of {count} trials are done")
        for number in range(done + 1, count + 1):
            self._trial(f"trial {number:{len(str(count))}}/{count}")

    def _trial(self, title: str) -> None:
        from slicegraph.train.module import TrainingError
        from slicegraph.train.run import train
        from slicegraph.train.run_folder import RunFolder

        states, trial = self.optuna.trial.TrialState, self.study.ask()
        chosen = self._suggest(trial)
        path = Path(trial.user_attrs.get("folder") or self.folder / "trials" / f"{trial.number:04}")
        trial.set_user_attr("folder", str(path))
        begun = (path / "config.yaml").is_file()
        best, told = math.inf, set[int]()

        def watch(value: float, share: float) -> None:
            nonlocal best
            best, step = value, math.ceil(share * _STEPS)
            if step not in told:
                told.add(step)
                trial.report(best, step)
                if trial.should_prune():
                    raise self.optuna.TrialPruned

        options: dict[str, Any] = {"progress": False, "test": False, "watch": watch}
        try:
            config = None if begun else self._config(chosen, path)
            result = train(config, resume=path if begun else None, **options)
            if best == math.inf:  # it was interrupted after its last epoch
                best = self._value_of(result)
        except self.optuna.TrialPruned:
            RunFolder(path).set_state("stopped", "pruned by tune")
            self.study.tell(trial, state=states.PRUNED)
            print(f"{title}  {self._text(best)}, ended early  {_listed(chosen)}", flush=True)
        except (TrainingError, ValueError, RuntimeError, MemoryError) as error:
            self.study.tell(trial, state=states.FAIL)
            reason = " ".join(str(error).split()) or type(error).__name__
            print(f"{title}  failed: {reason}  {_listed(chosen)}", file=sys.stderr, flush=True)
        else:
            self.study.tell(trial, best)
            print(f"{title}  {self._text(best)}  {_listed(chosen)}", flush=True)
        self._write_table()

    def finish(self) -> None:
        """Score the best trial on test; print it, and the command that trains it again."""
        from slicegraph.metrics import number
        from slicegraph.report import write_report
        from slicegraph.train.run import train

        states = self.optuna.trial.TrialState
        done = [one for one in self.study.trials if one.state == states.COMPLETE]
        if not done:
            raise ValueError(f"tune: no trial of {self.folder} has finished; see its reasons above")
        best = self.study.best_trial
        path = Path(best.user_attrs["folder"])
        metrics = _read(path / "metrics.json")
        if metrics.get("test") is None:
            print(f"best    {path}: its test split is scored now, once", flush=True)
            result = train(resume=path, progress=False)
            write_report(path)
            print(result)
        else:
            print(f"test {metrics['metric']} {number(metrics['test'], metrics['unit'])}")
        chosen = self.given | {"model": dict(self.given["model"])}
        for name, value in best.params.items():
            _set(chosen, name, value)
        self._fit_model(chosen["model"])
        command = shlex.join(["slicegraph", "train", *_flags(chosen)])
        print(f"{self._text(best.value)}, the best of {len(done)} finished trials")
        print(f"model   {path / 'model'}\nreport  {path / 'report.html'}\nagain   {command}")

    def _defaults(self) -> dict[str, Any]:
        """The settings of `slicegraph train` within the ranges of the search."""
        return {name: default for name, (default, _) in self._space().items()}

    def _space(self) -> dict[str, tuple[Any, tuple[str, dict[str, Any]]]]:
        """The default, the kind and the range of every setting that is searched."""
        config, given = self.config, self.given
        lr, size = config.lr or 1e-3, config.batch_size or 100
        sizes = sorted({max(8, size // part) for part in (1, 2, 4)})
        space: dict[str, Any] = {
            "lr": (lr, ("float", {"low": lr / 8, "high": lr * 4, "log": True})),
            "weight_decay": (
                config.weight_decay or 0.01,
                ("float", {"low": 1e-4, "high": 0.3, "log": True}),
            ),
            "ema": (0.0, ("categorical", {"choices": [0.0, 0.99, 0.999]})),
            "batch_size": (max(8, size), ("categorical", {"choices": sizes})),
        }
        if not config.is_task:
            model = self._preset()
            whole = {"low": 0.0, "high": _MOST_DROPOUT, "step": 0.05}
            space["dropout"] = (min(_MOST_DROPOUT, model.dropout), ("float", whole))
            if config.init is None:
                layers, heads = model.num_layers, model.heads
                wide = {round(model.channels * s / heads) * heads for s in (0.5, 0.75, 1, 1.5)}
                low, high = max(1, layers // 2), layers + max(1, layers // 2)
                space["model.num_layers"] = (layers, ("int", {"low": low, "high": high}))
                choices = sorted(each for each in wide if each)
                space["model.channels"] = (model.channels, ("categorical", {"choices": choices}))
        if config.device_batch_size is not None:
            del space["batch_size"]
        fixed = {*given, *(f"model.{name}" for name in given["model"])} - {"model"}
        return {name: entry for name, entry in space.items() if name not in fixed}

    def _preset(self) -> Any:
        from slicegraph.models import preset

        return preset(self.config.preset or "mini", **self.given["model"])

    def _suggest(self, trial: Any) -> dict[str, Any]:
        return {
            name: getattr(trial, f"suggest_{kind}")(name, **limits)
            for name, (_, (kind, limits)) in self._space().items()
        }

    def _fit_model(self, model: dict[str, Any]) -> None:
        """Keep the ratio of the hidden channels of the preset to its channels."""
        if "channels" in model and "ffn_channels" not in self.given["model"]:
            usual = self._preset()
            model["ffn_channels"] = max(1, model["channels"] * usual.ffn_channels // usual.channels)

    def _config(self, chosen: Mapping[str, Any], path: Path) -> TrainConfig:
        values = self.given | {"model": dict(self.given["model"]), "out": str(path)}
        for name, value in chosen.items():
            _set(values, name, value)
        self._fit_model(values["model"])
        return TrainConfig.from_dict(values)

    def _value_of(self, result: Any) -> float:
        from slicegraph.train.callbacks import chosen_by_loss

        dataset = self.data.dataset
        if chosen_by_loss(dataset.task) or result.valid is None:
            raise ValueError("interrupted after its last epoch, its valid loss is not known")
        return -result.valid if dataset.evaluator.higher_is_better else result.valid

    def _text(self, value: float) -> str:
        """Write the value of a trial as the score that it was made of."""
        from slicegraph.metrics import number
        from slicegraph.train.callbacks import chosen_by_loss

        dataset = self.data.dataset
        if not math.isfinite(value):
            return "no score"
        if chosen_by_loss(dataset.task):
            return f"valid loss {number(value)}"
        sign = -1 if dataset.evaluator.higher_is_better else 1
        return f"valid {dataset.evaluator.name} {number(sign * value, self.data.unit)}"

    def _write_table(self) -> None:
        """Write trials.csv, a row for each trial."""
        from slicegraph.files import write_atomically

        names, text = [*self._space()], io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(["trial", "state", "value", *names, "folder"])
        for one in self.study.trials:
            cells = [one.params.get(name, "") for name in names]
            value = one.value if one.value is not None else ""
            folder = one.user_attrs.get("folder", "")
            table.writerow([one.number, one.state.name.lower(), value, *cells, folder])
        write_atomically(self.folder / "trials.csv", [text.getvalue().encode()])


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    if name.startswith("model."):
        values["model"][name.removeprefix("model.")] = value
    else:
        values[name] = value


def _listed(chosen: Mapping[str, Any]) -> str:
    texts = ((name.removeprefix("model."), value) for name, value in chosen.items())
    return ", ".join(f"{name} {value:.3g}" for name, value in texts)


def _flags(values: Mapping[str, Any]) -> list[str]:
    """Write settings as flags of `slicegraph train`."""
    from slicegraph.data.columns import join_names

    usual, words = asdict(TrainConfig()), list[str]()
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "model":
            for field, own in value.items():
                words += [f"--model.{field}", json.dumps(own) if not isinstance(own, str) else own]
        elif isinstance(value, bool):
            words += [flag if value else f"--no-{flag[2:]}"]
        elif value is not None and value != usual.get(name):
            several = isinstance(value, list | tuple)
            words += [flag, join_names(map(str, value)) if several else str(value)]
    return words


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
