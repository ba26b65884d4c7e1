"""A run from its settings to its results."""

import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

from slicegraph import __version__
from slicegraph.data.datasets import MoleculeDataset
from slicegraph.data.datasets.csv import as_data
from slicegraph.predict import load_predictor
from slicegraph.predict.explain import ATOM_COLUMNS
from slicegraph.registry import task_domain
from slicegraph.train import callbacks, machine, results
from slicegraph.train import data as molecules
from slicegraph.train.config import TrainConfig
from slicegraph.train.folds import train_several
from slicegraph.train.module import BadLoss, TrainingError, TrainingModule
from slicegraph.train.run_folder import LAST, RunFolder, RunResult, refuse_used


def train(
    config: TrainConfig | dict[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    command: str | None = None,
    progress: bool = True,
    test: bool = True,
    watch: Callable[[float, float], None] | None = None,
    data: Any = None,
    target: str | Sequence[str] | None = None,
    **settings: Any,
) -> RunResult:
    """Train a model and evaluate it; all results are in the folder of the run.

    Args:
        config: the settings, or a dict of them; by default `mini` on `mini`.
        resume: the folder of an interrupted run to go on with instead, from its last checkpoint,
            or from the beginning if it has none. On one CPU process it ends with the same weights
            as without the interruption.
        command: the command that repeats the run, to be kept with it.
        progress: whether to show the progress.
        test: whether to score train and test at the end; without it only valid is scored. A
            finished run that is resumed with it is not trained again.
        watch: is called after each epoch with the best value so far of what chooses the epoch
            (lower is better) and the part of the training that is done; what it raises ends the
            run.
        data: the name of a data set, or a table: its path, or a `pandas.DataFrame` (or a dict of
            columns), which is written to the cache. Molecules of RDKit become SMILES.
        target: the column of a table to predict, or several.
        **settings: further settings of :class:`TrainConfig` by name; they override `config`.

    Example:
        >>> result = slicegraph.train(data=frame, target="logS", epochs=50)
        >>> result.test, result.model
    """
    if data is not None:
        settings["data"] = as_data(data)
    if target is not None:
        settings["targets"] = (target,) if isinstance(target, str) else tuple(target)
    if settings:
        given = config if isinstance(config, dict) else asdict(config) if config else {}
        config = given | settings
    if resume is not None and config is not None:
        raise ValueError("train: a run is resumed with its own settings; leave out config")
    folder = RunFolder(resume)
    if resume is not None:
        config = folder.config
    else:
        config = TrainConfig.from_dict(config) if isinstance(config, dict) else config
        config = config or TrainConfig()
        config = config.resolved(None if config.head else molecules.rows_of(config))
        config = replace(
            config, precision=config.precision or machine.default_precision(config.accelerator)
        )
    if config.several:
        molecules.check(config)
        if resume is None and config.out is not None:
            refuse_used(Path(config.out))

        def train_one(settings: TrainConfig | None, begun: Path | None) -> RunResult:
            return train(settings, resume=begun, progress=False)

        return train_several(config, folder, command, progress, train_one)
    domain = task_domain() if config.is_task else molecules
    if resume is None:  # what is wrong with the settings is found before the data is prepared
        domain.check(config)
        machine.check_logger(config.logger)
        if config.out is not None:
            rank_zero_only(refuse_used)(Path(config.out))

    data, module = domain.run_data(config), TrainingModule(config, domain)
    data.scores_test = test
    log = callbacks.LogTable(folder, progress)
    checkpoint = callbacks.RunCheckpoint(folder, config)
    steps = [
        callbacks.RunStart(config, folder, command, progress),
        callbacks.RandomState(config.seed),
        *([callbacks.WeightAverage(config.ema)] if config.ema else []),
        log,
        callbacks.StepLimit(),
        checkpoint,
        *([callbacks.Watch(checkpoint, watch)] if watch else []),
    ]
    with (
        machine.quiet_lightning(),
        machine.cpu_threads(config.threads),
        machine.freed_memory_kept(),
    ):
        trainer = machine.make_trainer(config, steps)
        device = trainer.strategy.root_device.type
        with (
            machine.fast_products(device, config.precision),
            _state_written(folder, module, data, checkpoint),
        ):
            # Before the other ranks start: they would wait for hours, and give up.
            rank_zero_only(data.prepare_data)(progress)
            saved = resume is not None and (folder.path / LAST).is_file()
            trainer.fit(module, datamodule=data, ckpt_path=folder.path / LAST if saved else None)
            if checkpoint.stopped and progress:
                machine.say(checkpoint.stopped)
            module.load_state_dict(mean_weights(checkpoint.files))
            trainer.test(module, datamodule=data, verbose=False)
            result = _write_results(module, log, checkpoint)
    for text in result.metrics["warnings"] if progress else ():
        machine.say(f"WARNING {text}")
    return result


def train_member(settings: str, parent: str) -> None:
    """Train one of several models in a process of its own, which ends with its parent.

    Args:
        settings: the settings as JSON; a run that is in their folder goes on.
        parent: the number of the process that started this one.
    """
    config = TrainConfig.from_dict(json.loads(settings))
    begun = RunFolder(config.out).path
    resume = begun if (begun / "config.yaml").is_file() else None

    def end_with_parent() -> None:
        while os.getppid() == int(parent):
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)  # the state is saved

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        train(None if resume else config, resume=resume, progress=False)
    except callbacks.Stopped as stopped:
        raise SystemExit(128 + stopped.signum) from None


def mean_weights(paths: list[Path]) -> dict[str, torch.Tensor]:
    """Return the mean of the weights in these checkpoints; whole numbers are those of the first."""
    total: dict[str, torch.Tensor] = {}
    for path in paths:
        weights = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        if len(paths) == 1:
            return weights
        for name, value in weights.items():
            if value.is_floating_point():
                share = value.double() / len(paths)
                total[name] = total[name] + share if name in total else share
            else:
                total.setdefault(name, value)
    return total


@contextmanager
def _state_written(
    folder: RunFolder, module: TrainingModule, data: Any, checkpoint: callbacks.RunCheckpoint
) -> Iterator[None]:
    """Write to the folder how the run ended; explain a bad loss and too little memory."""

    @rank_zero_only
    def set_state(state: str, reason: str = "") -> None:
        if folder.path is not None:
            folder.set_state(state, reason)

    try:
        yield
    except callbacks.Stopped as stopped:
        set_state("stopped", str(stopped))
        raise
    except BadLoss as error:
        path = folder.path
        if not isfinite(error.loss):
            path = folder.write_bad_batch(data.dataset, error.positions, error.loss, error.step)
        set_state("failed", str(error))
        raise TrainingError(f"train: {error}; its {data.dataset.noun} are in {path}") from None
    except BaseException as error:
        if machine.is_out_of_memory(error):
            reason = _describe_memory(module, data)
            set_state("failed", reason)
            raise TrainingError(f"train: {reason}") from error
        set_state("failed", f"{type(error).__name__}: {error}")
        raise
    set_state("finished", checkpoint.stopped)


def _describe_memory(module: TrainingModule, data: Any) -> str:
    """Name the batch that did not fit into memory, and the remedy."""
    batch = module.batch
    if batch is None:
        return "out of memory before the first batch; choose a smaller preset"
    noun, atoms = data.dataset.noun, hasattr(batch, "ptr")
    sizes = batch.ptr.diff() if atoms else batch.sizes
    return (
        f"out of memory at a batch of {len(sizes)} {noun} with {int(sizes.sum())} "
        f"{'atoms' if atoms else 'elements'}, {int(sizes.max())} in the largest (position "
        f"{int(batch.index[sizes.argmax()])} of the store); cut each batch into more parts with "
        f"accumulate = {2 * module.config.accumulate}, or choose a smaller batch_size or preset"
    )


def _deviations(module: TrainingModule, dataset: Any, model: Path) -> dict[str, Any]:
    """The deviations that a kernel head predicts for the molecules of valid and test."""
    if not getattr(module.model.config, "has_deviation", False):
        return {}
    own = load_predictor(model, module.trainer.strategy.root_device)
    splits = [name for name in module.data.evaluated if name != "train"]
    return {
        name: own.deviations_store(dataset.store[dataset.splits[name]])[:, 0] for name in splits
    }


def _write_results(
    module: TrainingModule, log: callbacks.LogTable, checkpoint: callbacks.RunCheckpoint
) -> RunResult:
    """Write the model, the metrics and the predictions on the first rank."""
    trainer, folder = module.trainer, log.folder
    dataset = module.data.dataset
    evaluations = {split: module.evaluations[split] for split in module.data.evaluated}
    splits = results.score_splits(dataset, evaluations)
    scores = {split: found.score for split, found in evaluations.items()}
    chosen_by = f"valid {dataset.evaluator.name}"
    if checkpoint.by_loss:
        chosen_by = "valid loss" + " of the standardised targets" * module.config.standardise
    if module.config.trains_on_valid or module.config.keep == "last":
        chosen_by = "the end of the training"
    if checkpoint.kept:
        epochs = ", ".join(str(epoch + 1) for epoch in checkpoint.epochs)
        chosen_by += f"; the model is the mean of the weights of epochs {epochs}"
    metrics: dict[str, Any] = {
        "metric": dataset.evaluator.name,
        "unit": module.data.unit,
        "higher_is_better": dataset.evaluator.higher_is_better,
        "test": scores.get("test"),
        "valid": scores.get("valid"),
        "noun": dataset.noun,
        "train_seconds": round(log.seconds, 3),
        f"{dataset.noun}_per_second": round(log.samples_per_second, 1),
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "epochs": len(log.rows),
        "best_epoch": checkpoint.best_epoch,
        "chosen_by": chosen_by,
        "stopped": checkpoint.stopped,
        "steps": log.rows[-1]["step"],
        "device": f"{trainer.world_size} x {machine.device_name(trainer.strategy.root_device)}",
        "versions": {
            "slicegraph": __version__,
            **{name: version(name) for name in ("torch", "lightning", "numpy")},
            "python": platform.python_version(),
        },
    }
    found, test = evaluations.get("test"), splits.get("test", {})
    if metrics["test"] is None:
        empty = "test" in dataset.splits and not len(dataset.splits["test"])
        missing = "the split is empty" if empty else "the data set has no split 'test'"
        missing = missing if module.data.scores_test else "it was not looked at"
        metrics["test_reason"] = found.reason if found else missing
    trained = not module.config.is_solved
    metrics["warnings"] = results.warnings_of(dataset, test, found, trained)
    if trainer.is_global_zero and isinstance(dataset, MoleculeDataset):
        metrics["forest"] = results.forest_of(dataset, found)
    baselines = results.baselines_of(dataset, found)
    metrics["targets"] = results.target_scores(dataset.task.metric, test, baselines)
    metrics["splits"] = splits
    if trainer.is_global_zero:
        module.model.save(folder.path / "model")
        stds = _deviations(module, dataset, folder.path / "model")
        if isinstance(dataset, MoleculeDataset):
            measured = {
                split: results.Scored(one.labels, one.values, stds.get(split))
                for split, one in evaluations.items()
            }
            if module.config.log_target:
                measured = {split: one.in_logarithms() for split, one in measured.items()}
            held = results.calibration_of(dataset, measured.get("valid"))
            if held is not None:
                held.write(folder.path / "model")
            metrics["uncertainty"] = results.uncertainty_of(dataset, held, measured.get("test"))
        record = results.training_record(dataset, module.config, metrics)
        config = json.loads((folder.path / "model/config.json").read_text("utf-8"))
        folder.write("model/config.json", {**config, "training": record})
        folder.write("model/README.md", results.model_card(record, dataset.noun))
        for split in (split for split in evaluations if split != "train"):
            values, std = evaluations[split].values, stds.get(split)
            folder.write_predictions(dataset, split, values, std)
        if isinstance(data := module.data, molecules.MoleculeRunData) and found is not None:
            device = trainer.strategy.root_device
            model = load_predictor(folder.path / "model", device)
            scored = results.Scored(found.labels, found.values)
            test = data.dataset.splits["test"]
            rows = results.contributions([model] * len(test), data.dataset, test, scored)
            folder.write_rows("contributions.csv", ATOM_COLUMNS, rows)
        folder.write("metrics.json", metrics)
    chosen = {name: metrics[name] for name in ("metric", "unit", "test", "valid")}
    return RunResult(folder.path, folder.path / "model", **chosen, metrics=metrics)
