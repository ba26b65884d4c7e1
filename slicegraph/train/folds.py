"""Several models of one table: folds, repeats and ensembles, in one run folder.

Every model is a run of its own in `members/`, which can be resumed, evaluated and reported like any
other. When all have ended, their results, their held-out predictions and the ensemble of all of
them are written to the folder above.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from slicegraph.data.pool import cores
from slicegraph.data.splits import SPLIT_NAMES
from slicegraph.metrics import counted
from slicegraph.predict.explain import ATOM_COLUMNS
from slicegraph.predict.predictor import MoleculePredictor, load_predictor
from slicegraph.predict.table import labelled_table
from slicegraph.predict.uncertainty import (
    Calibration,
    assess,
    assess_folds,
    deviation,
    in_logarithms,
    shrinkage,
)
from slicegraph.train import results
from slicegraph.train.callbacks import Stopped, changed_settings
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import MoleculeRunData
from slicegraph.train.machine import say
from slicegraph.train.module import TrainingError
from slicegraph.train.run_folder import RunFolder, RunResult, molecules_of_run

MEMBERS = "members"  # the folder of the runs
_PAUSE = 0.2  # seconds between two looks at the processes
_LINES = 3  # of the output of a process that failed
_CHILD = "import sys; from slicegraph.train.run import train_member; train_member(*sys.argv[1:])"


@dataclass(frozen=True)
class Member:
    """One model: its name, the number of its split, and the settings of its run."""

    name: str
    group: int
    config: TrainConfig

    @property
    def path(self) -> Path:
        return Path(str(self.config.out))

    @property
    def finished(self) -> bool:
        done = (self.path / "metrics.json").is_file()
        return done and RunFolder(self.path).state == "finished"


def plan(config: TrainConfig, folder: Path) -> list[Member]:
    """Return the models to train, those of a split one after the other.

    A repeat has the next seed of the split; a model has the next seed of the training.
    """
    folds = [None] if config.folds is None else list(range(1, config.folds + 1))
    folds = folds if config.fold is None else [config.fold]
    repeats, models = config.repeats or 1, config.ensemble or 1
    members = []
    splits = list(product(range(repeats), folds))
    for group, (repeat, fold) in enumerate(splits):
        for model in range(models):
            words = [f"repeat-{repeat + 1}"] * (repeats > 1) + [f"fold-{fold}"] * (len(folds) > 1)
            words += [f"model-{model + 1}"] * (models > 1)
            own: dict[str, Any] = {"fold": fold, "repeats": None, "ensemble": None, "jobs": None}
            own |= {"seed": config.seed + repeat * models + model, "threads": config.threads or 1}
            own |= {"out": str(folder / MEMBERS / "-".join(words)), "devices": "1"}
            if repeat:
                own["split_seed"] = (config.split_seed or 0) + repeat
            members.append(Member("-".join(words), group, replace(config, **own)))
    return members


def check_several(config: TrainConfig) -> None:
    """Raise if these settings do not allow several models."""
    name = (config.split or "random").partition(":")[0]
    drawn = "random, stratified, scaffold, cluster or group:NAME"
    for setting in ("folds", "repeats"):
        if (getattr(config, setting) or 1) > 1 and name in ("column", "time"):
            raise ValueError(
                f"train: {setting} draw splits, and split = {config.split!r} is given by a column; "
                f"choose {drawn}, or train an ensemble"
            )
    if config.nodes > 1 or config.devices not in ("auto", "1") or "LOCAL_WORLD_SIZE" in os.environ:
        raise ValueError(
            "train: each model of folds, repeats or an ensemble is trained on one device; leave "
            "out devices, nodes and torchrun"
        )


def train_several(
    config: TrainConfig,
    folder: RunFolder,
    command: str | None,
    progress: bool,
    train_one: Callable[[TrainConfig | None, Path | None], Any],
) -> RunResult:
    """Train what is not trained yet, and write the results of all; see `slicegraph.train`.

    Args:
        config: the settings, resolved.
        folder: of the run; it has a path if the run is resumed.
        train_one: trains a model from its settings, or goes on with the run in a folder.
    """
    check_several(config)
    first = plan(config, Path("."))[0].config
    data = MoleculeRunData(replace(first, out=config.out))
    data.prepare_data(progress)  # once; mistakes in the table leave no folder
    if folder.path is None:
        folder.claim(config, command)
        folder.write_data_card(data.dataset, data.unit)
    else:
        folder.set_state("running")
    members = plan(config, folder.path)
    jobs = _jobs(config, len(members))
    if progress:
        _describe(config, data, members, folder.path, jobs)
    try:
        with _sigterm_stops(folder.path):
            run = _one_by_one if jobs == 1 else _side_by_side
            failed = run(members, jobs, progress, train_one)
    except (Stopped, KeyboardInterrupt) as stopped:
        signum = getattr(stopped, "signum", signal.SIGINT)
        folder.set_state("stopped", str(Stopped(signum)))
        raise Stopped(signum, folder.path) from None
    done = [member for member in members if member.finished]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    if not done:
        folder.set_state("failed", reasons)
        raise TrainingError(f"train: none of {len(members)} models was trained; {reasons}")
    result = _write_results(config, folder, data, done, failed)
    folder.set_state("failed" if failed else "finished", reasons)
    for text in result.metrics["warnings"] if progress else ():
        say(f"WARNING {text}")
    return result


def _jobs(config: TrainConfig, count: int) -> int:
    """How many models are trained at the same time: one on a GPU, else one a core."""
    if config.jobs is not None:
        return min(config.jobs, count)
    if config.accelerator != "cpu" and torch.cuda.is_available():
        return 1
    return max(1, min(count, cores() // (config.threads or 1)))


def _describe(
    config: TrainConfig, data: MoleculeRunData, members: list[Member], path: Path, jobs: int
) -> None:
    dataset = data.dataset
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in dataset.splits.items())
    several = members[-1].group > 0
    say(f"settings  {changed_settings(config)}\ndata    {dataset.name}: {sizes}")
    if several:
        say(f"note    the sizes, labels and similarity are those of {members[0].name}")
    if dataset.summary is not None:
        from slicegraph.data.summary import summary_lines

        say("\n".join(summary_lines(dataset.summary)))
    task, unit = dataset.task, f" in {data.unit}" if data.unit else ""
    say(
        f"task    {task.kind} of {', '.join(task.target_names)}{unit}, scored by "
        f"{dataset.evaluator.name}\n"
        f"run     {path}: {counted(len(members), 'models')} of preset {config.preset}, {jobs} at a "
        "time"
    )


@contextmanager
def _sigterm_stops(path: Path) -> Iterator[None]:
    """Raise `Stopped` on SIGTERM while no model is trained in this process."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped(number, path)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


Failed = dict[str, str]  # the reason by the name of the model


def _one_by_one(
    members: list[Member], jobs: int, progress: bool, train_one: Callable[..., Any]
) -> Failed:
    """Train in this process; a model that fails does not cost the others."""
    failed: Failed = {}
    for place, member in enumerate(members, start=1):
        if not member.finished:
            began = (member.path / "config.yaml").is_file()
            try:
                train_one(None if began else member.config, member.path if began else None)
            except Exception as error:
                if isinstance(error, Stopped):
                    raise
                failed[member.name] = " ".join(str(error).split()) or type(error).__name__
        if progress:
            say(_line(member, place, len(members), failed.get(member.name)))
    return failed


def _side_by_side(
    members: list[Member], jobs: int, progress: bool, train_one: Callable[..., Any]
) -> Failed:
    """Train in processes of their own, whose output goes to `members/NAME.log`."""
    waiting = [member for member in members if not member.finished]
    running: list[tuple[Member, subprocess.Popen]] = []
    ended, failed = len(members) - len(waiting), Failed()
    bar = tqdm(total=len(members), initial=ended, disable=not (progress and sys.stderr.isatty()))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append((waiting[0], _start(waiting.pop(0))))
            time.sleep(_PAUSE)
            for member, process in [own for own in running if own[1].poll() is not None]:
                running.remove((member, process))
                ended += 1
                if not member.finished:
                    failed[member.name] = _reason(member, process.returncode)
                if progress:
                    bar.write(_line(member, ended, len(members), failed.get(member.name)))
                    sys.stdout.flush()
                bar.update()
            bar.set_description_str(", ".join(map(_epoch, (member for member, _ in running))))
    finally:
        for _, process in running:  # they save their state
            process.send_signal(signal.SIGTERM)
        for _, process in running:
            process.wait()
        bar.close()
    return failed


def _start(member: Member) -> subprocess.Popen:
    member.path.parent.mkdir(exist_ok=True)
    above = str(Path(__file__).parents[2])
    paths = [above, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = str(member.config.threads)
    own = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads}
    settings = json.dumps(asdict(member.config))
    words = [sys.executable, "-c", _CHILD, settings, str(os.getpid())]
    with open(f"{member.path}.log", "ab") as output:
        return subprocess.Popen(
            words, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )


def _reason(member: Member, status: int) -> str:
    """Why a process ended without a result."""
    run = RunFolder(member.path)
    with suppress(OSError, ValueError):
        content = json.loads((run.path / "status.json").read_text("utf-8"))
        if content["state"] == "failed" and content["reason"]:
            return str(content["reason"])
    log = Path(f"{member.path}.log")
    last = " ".join(log.read_text("utf-8", "replace").split("\n")[-_LINES:]).strip()
    if status < 0:
        name = signal.Signals(-status).name
        return f"its process was ended by {name}" + " (memory?)" * (name == "SIGKILL")
    return f"its process ended with status {status}: {last or 'no output'} ({log})"


def _epoch(member: Member) -> str:
    """How far a model is."""
    with suppress(OSError):
        lines = (member.path / "log.csv").read_text().splitlines()
        return f"{member.name} epoch {len(lines) - 1}"
    return member.name


def _line(member: Member, place: int, count: int, failed: str | None) -> str:
    """What is printed when a model has ended."""
    start = f"{member.name} ({place} of {count})"
    if failed is not None:
        return f"{start}  FAILED: {failed}"
    metrics = json.loads((member.path / "metrics.json").read_text("utf-8"))
    seconds = f"{metrics['train_seconds']:.0f} s"
    epoch = f"epoch {metrics['best_epoch'] + 1} of {metrics['epochs']}"
    text = results.headline(metrics).replace("\n", ", ")
    return f"{start}  {text}; {epoch}, {seconds}"


# The results of all models.


@dataclass(frozen=True)
class _Part:
    """The predictions of the models of one split for one of its parts."""

    table: pd.DataFrame  # index, row, smiles, num_atoms
    labels: np.ndarray  # [n, targets]
    members: np.ndarray  # [n, models, targets], or with classes
    std: np.ndarray | None = None  # [n, models, targets], what each model predicts

    @property
    def values(self) -> np.ndarray:
        """The mean of the models."""
        return self.members.mean(1)

    @property
    def index(self) -> np.ndarray:
        return self.table["index"].to_numpy(np.int64)

    @property
    def deviation(self) -> np.ndarray | None:
        """The deviation of the prediction, ``[n, targets]``; None of a single network."""
        known = self.std is not None or self.members.shape[1] > 1
        return deviation(self.members, self.std) if known else None

    def target(self, number: int) -> "_Part":
        """The predictions of one target."""
        std = None if self.std is None else self.std[:, :, [number]]
        return _Part(self.table, self.labels[:, [number]], self.members[:, :, [number]], std)


def _read_part(members: Sequence[Member], split: str, task: Any) -> _Part | None:
    """Read the predictions of the models of one split; None if there are none."""
    tables = []
    for member in members:
        path = member.path / "predictions" / f"{split}.csv"
        if not path.is_file():
            return None
        tables.append(pd.read_csv(path, keep_default_na=False, na_values=[""]))
    several = task.kind == "multiclass"
    kinds = [f"p{number}" for number in range(task.num_classes)] if several else ["pred"]

    def columns(table: pd.DataFrame, kinds: list[str]) -> np.ndarray:
        names = [f"{name}_{kind}" for name in task.target_names for kind in kinds]
        return table[names].to_numpy(np.float64).reshape(len(table), task.num_targets, -1)

    labels = columns(tables[0], ["true"])[:, :, 0]
    values = np.stack([columns(table, kinds) for table in tables], 1)
    std = None
    if all(f"{name}_std" in tables[0] for name in task.target_names):
        std = np.stack([columns(table, ["std"])[..., 0] for table in tables], 1)
    return _Part(tables[0], labels, values if several else values[..., 0], std)


def _write_results(
    config: TrainConfig,
    folder: RunFolder,
    data: MoleculeRunData,
    done: list[Member],
    failed: Failed,
) -> RunResult:
    """Write the ensemble, the metrics and the held-out predictions of the models that are done."""
    dataset = data.dataset
    numbers = sorted({member.group for member in done})
    groups = [[member for member in done if member.group == number] for number in numbers]
    parts = {
        split: [_read_part(own, split, dataset.task) for own in groups] for split in SPLIT_NAMES[1:]
    }
    each = {m.name: json.loads((m.path / "metrics.json").read_text("utf-8")) for m in done}
    metrics = _metrics(dataset, groups, parts, each, failed)
    models: list[MoleculePredictor] = [load_predictor(member.path) for member in done]
    scaled = parts
    if config.log_target:
        scaled = {name: list(map(_in_logarithms, own)) for name, own in parts.items()}
    calibration = _calibration(groups, scaled, models, dataset.task.kind)
    metrics["uncertainty"] = _uncertainty(dataset, calibration, scaled)
    ensemble = models[0].attach(models[1:], calibration)
    ensemble.save(folder.path / "model")
    _write_card(folder, dataset, config, metrics, len(models))
    for split, found in parts.items():
        known = [(part, own) for part, own in zip(found, groups, strict=True) if part is not None]
        if known:
            _write_predictions(folder, dataset, split, known, len(groups) > 1)
    _write_molecules(folder, done)
    _write_contributions(folder, dataset, groups, parts["test"], models)
    folder.write("metrics.json", metrics)
    chosen = {name: metrics[name] for name in ("metric", "unit", "test", "valid")}
    return RunResult(folder.path, folder.path / "model", **chosen, metrics=metrics)


def _in_logarithms(part: _Part | None) -> _Part | None:
    if part is None:
        return None
    scaled = in_logarithms(part.members, part.std)
    return _Part(part.table, np.log10(part.labels), *scaled)


def _design(groups: list[list[Member]]) -> str:
    """The splits and models in words, such as "5 folds, 2 repeats"."""
    names = [member.name.split("-") for own in groups for member in own]
    counts = {
        word: len({words[words.index(word) + 1] for words in names if word in words})
        for word in ("fold", "repeat", "model")
    }
    models = counts.pop("model")
    listed = [counted(count, f"{word}s") for word, count in counts.items() if count]
    return ", ".join(
        [*listed, *([f"{models} models each" if listed else f"{models} models"] * (models > 0))]
    )


def mean_and_deviation(values: Sequence[float | None]) -> dict[str, float | None]:
    """Return "value", the mean of the known numbers, and "std", their standard deviation."""
    known = [value for value in values if value is not None]
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return {"value": float(np.mean(known)) if known else None, "std": std}


def _metrics(
    dataset: Any,
    groups: list[list[Member]],
    parts: dict[str, list[_Part | None]],
    each: dict[str, dict[str, Any]],
    failed: Failed,
) -> dict[str, Any]:
    """Return the content of metrics.json; `each` are those of the models."""
    first = next(iter(each.values()))
    runs = [_run_line(member, each[member.name]) for own in groups for member in own]
    splits = []
    for place, own in enumerate(groups):
        name = own[0].name.partition("-model-")[0] if len(groups) > 1 else "ensemble"
        line: dict[str, Any] = {"name": name, "models": len(own)}
        for split, found in parts.items():
            line[split] = _score(dataset, found[place])
        line["forest"] = runs_forest(each[own[0].name])
        splits.append(line)
    scores: dict[str, Any] = {}
    for split, found in parts.items():
        known = [part for part in found if part is not None]
        if known and (split == "test" or len(groups) == 1):
            labels = np.concatenate([part.labels for part in known])
            values = np.concatenate([part.values for part in known])
            scores[split] = results.Scored(labels, values)
    pooled = results.score_splits(dataset, scores)
    targets = _target_lines(dataset, parts["test"], each, groups, pooled.get("test", {}))
    test, valid = (
        mean_and_deviation([line[name] for line in splits]) for name in ("test", "valid")
    )
    forest = mean_and_deviation([line["forest"] for line in splits])
    named = {"metric": first["metric"], "unit": first["unit"], "noun": first["noun"]}
    warnings = [
        f"{name} failed: {reason}; the results are those of the others, and slicegraph train "
        "--resume tries again"
        for name, reason in failed.items()
    ]
    found_in: dict[str, list[str]] = {}
    for name, metrics in each.items():
        for text in metrics["warnings"]:
            found_in.setdefault(text, []).append(name)
    for text, names in found_in.items():
        all_of_them = "" if len(each) == 1 else f" ({results.listed(names)})"
        warnings.append(f"{text}{all_of_them}")
    reason = next((m["test_reason"] for m in each.values() if "test_reason" in m), None)
    return {
        **named,
        "higher_is_better": first["higher_is_better"],
        "test": test["value"],
        "test_std": test["std"],
        "valid": valid["value"],
        "valid_std": valid["std"],
        **({"test_reason": reason} if test["value"] is None and reason else {}),
        "design": _design(groups),
        "runs": runs,
        "groups": splits,
        "failed": failed,
        "forest": {**first.get("forest", {}), "test": forest["value"], "test_std": forest["std"]},
        "train_seconds": round(sum(own["train_seconds"] for own in each.values()), 3),
        "parameters": sum(own["parameters"] for own in each.values()),
        "epochs": None,
        "best_epoch": None,
        "chosen_by": f"{first['chosen_by'].partition(';')[0]} of each model",
        "stopped": "",
        "device": first["device"],
        "versions": first["versions"],
        "warnings": warnings,
        "targets": targets,
        "splits": pooled,
    }


def _run_line(member: Member, metrics: dict[str, Any]) -> dict[str, Any]:
    """The line of a model in metrics.json."""
    names = ("test", "valid", "best_epoch", "epochs", "train_seconds")
    line = {"name": member.name, "seed": member.config.seed, "fold": member.config.fold}
    line["split_seed"] = member.config.split_seed or 0
    return line | {name: metrics[name] for name in names} | {"forest": runs_forest(metrics)}


def runs_forest(metrics: dict[str, Any]) -> float | None:
    """The test score of the forest of a run, if it has one."""
    return metrics.get("forest", {}).get("test")


def _score(dataset: Any, part: _Part | None, evaluator: Any = None) -> float | None:
    """The metric of the mean of the models; None if it is not defined."""
    with suppress(ValueError):
        return None if part is None else results.score(dataset, part.labels, part.values, evaluator)
    return None


def _target_lines(
    dataset: Any,
    parts: list[_Part | None],
    each: dict[str, dict[str, Any]],
    groups: list[list[Member]],
    pooled: dict[str, Any],
) -> dict[str, Any]:
    """The test score of each target: its mean and deviation over the splits."""
    task, known = dataset.task, [part for part in parts if part is not None]
    if not known:
        return {}
    baselines = {
        name: mean_and_deviation(
            [each[own[0].name]["targets"].get(name, {}).get("baseline") for own in groups]
        )["value"]
        for name in task.target_names
    }
    given = {name: value for name, value in baselines.items() if value is not None}
    found = results.target_scores(task.metric, pooled, given)
    if len(groups) == 1:
        return found
    for target, name in enumerate(task.target_names):
        own = replace(task, target_names=(name,)).evaluator()
        scores = [_score(dataset, part.target(target), own) for part in known]
        found[name] |= mean_and_deviation(scores) | {"low": None, "high": None}
        found[name]["reason"] = f"mean of {len(known)} splits"
    return found


def _calibration(
    groups: list[list[Member]],
    parts: dict[str, list[_Part | None]],
    models: list[MoleculePredictor],
    kind: str,
) -> Calibration:
    """Collect the held-out predictions of all splits: test, or valid if there is one split."""
    held = parts["valid"] if len(groups) == 1 else parts["test"]
    own = [model.calibration for model in models]
    smiles, bits = results.joined_training([one for one in own if one is not None])
    numbers = [place for place, members in enumerate(groups) for _ in members]
    known = [(place, part) for place, part in enumerate(held) if part is not None]
    similarity = []
    for place, part in known:
        training = own[numbers.index(place)]
        texts = part.table["smiles"].astype(str).tolist()
        similarity.append(results.similarities(training, texts))
    joined: dict[str, Any] = {"labels": [p.labels for _, p in known], "similarity": similarity}
    joined["values"] = [part.values for _, part in known]
    joined["index"] = [part.index for _, part in known]
    joined["group"] = [np.full(len(part.index), place) for place, part in known]
    stds = [part.deviation for _, part in known]
    joined["std"] = [] if any(std is None for std in stds) else stds
    arrays = {name: np.concatenate(own) for name, own in joined.items() if own}
    arrays["predicted"] = np.array([any(part.std is not None for _, part in known)])
    if len(groups) > 1 and kind == "regression":
        arrays["shrink"] = _shrink(parts)
    return results.calibration(
        kind, arrays, np.array(numbers), smiles, bits, models[0].config.num_targets
    )


def _shrink(parts: dict[str, list[_Part | None]]) -> np.ndarray:
    """Return the factor of `shrinkage` for each target.

    The valid part of a fold is in the test part of another: neither was trained on it. Repeats have
    such molecules, too.
    """
    seen: dict[int, tuple[int, np.ndarray]] = {}
    errors, differences = list[np.ndarray](), list[np.ndarray]()
    for split in ("test", "valid"):
        for group, part in enumerate(parts[split]):
            if part is None:
                continue
            rows = zip(part.index.tolist(), part.labels, part.values, strict=True)
            for index, label, value in rows:
                other, before = seen.setdefault(index, (group, value))
                if other != group:
                    errors.append(before - label)
                    differences.append(before - value)
    groups = len(parts["test"])
    found = []
    for target in range(len(next(iter(seen.values()))[1])):
        pairs = [np.array([row[target] for row in own]) for own in (errors, differences)]
        known = ~np.isnan(pairs[0])
        found.append(shrinkage(pairs[0][known], pairs[1][known], groups))
    return np.array(found)


def _uncertainty(
    dataset: Any, calibration: Calibration, parts: dict[str, list[_Part | None]]
) -> dict[str, Any]:
    """Assess what the calibration gives, on molecules that it is not fitted to."""
    if not len(calibration.labels):
        return {}
    test = parts["test"][0]
    if calibration.member_groups.max() > 0:
        found = assess_folds(calibration)
    elif test is None:
        return {}
    else:
        found = assess(calibration, test.labels, test.members, test.std)
    each = zip(dataset.task.target_names, found, strict=True)
    return {name: own for name, own in each if own is not None}


def _write_predictions(
    folder: RunFolder,
    dataset: Any,
    split: str,
    parts: list[tuple[_Part, list[Member]]],
    named: bool,
) -> None:
    """Write predictions/<split>.csv: a row for each molecule and split in which it is held out."""
    names = [own[0].name.partition("-model-")[0] for part, own in parts for _ in part.index]
    index = np.concatenate([part.index for part, _ in parts])
    values, std = np.concatenate([part.values for part, _ in parts]), None
    stds = [part.deviation for part, _ in parts]
    if any(one is not None for one in stds):
        std = np.concatenate([deviation(part.members, part.std) for part, _ in parts])
    text = labelled_table(dataset, index, values, std=std, parts=names if named else None)
    folder.write(f"predictions/{split}.csv", text.decode())


def _write_contributions(
    folder: RunFolder,
    dataset: Any,
    groups: list[list[Member]],
    parts: list[_Part | None],
    models: list[MoleculePredictor],
) -> None:
    """Write contributions.csv, by the models of the split that a molecule was held out in."""
    each, own = [], iter(models)
    for members in groups:
        first, *others = [next(own) for _ in members]
        each.append(first.first().attach(others, None))
    known = [(model, part) for model, part in zip(each, parts, strict=True) if part is not None]
    if not known:
        return
    chosen = [model for model, part in known for _ in part.index]
    index, labels, values = (
        np.concatenate([getattr(part, name) for _, part in known])
        for name in ("index", "labels", "values")
    )
    scored = results.Scored(labels, values)
    rows = results.contributions(chosen, dataset, index, scored)
    folder.write_rows("contributions.csv", ATOM_COLUMNS, rows)


def _write_card(
    folder: RunFolder, dataset: Any, config: TrainConfig, metrics: dict[str, Any], models: int
) -> None:
    """Write the facts of the training to the model folder, for people."""
    record = results.training_record(dataset, config, metrics)
    record["split"] = ", ".join(filter(None, [record["split"], metrics["design"]]))
    content = json.loads((folder.path / "model/config.json").read_text("utf-8"))
    folder.write("model/config.json", {**content, "training": record})
    folder.write("model/README.md", results.model_card(record, dataset.noun))


def _write_molecules(folder: RunFolder, done: list[Member]) -> None:
    """Write the keys of what some model was trained on, and of what none of them was."""
    found = [molecules_of_run(member.path) for member in done]
    known = [own for own in found if own is not None]
    if not known:
        return
    parts: dict[str, np.ndarray] = {}
    seen = np.empty(0, np.uint64)
    for split in SPLIT_NAMES:
        keys = np.concatenate([own.get(split, seen[:0]) for own in known])
        parts[split] = np.setdiff1d(keys, seen)
        seen = np.union1d(seen, keys)
    folder.write_keys(parts)
