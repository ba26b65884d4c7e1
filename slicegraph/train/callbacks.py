"""The callbacks of a run: start, random state, average of the weights, log, checkpoints, stop.

A checkpoint holds the state of a callback under the name of its class, so these names are part of
the file format.
"""

import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn
from tqdm import tqdm

from slicegraph.metrics import counted
from slicegraph.train.config import TrainConfig
from slicegraph.train.machine import (
    gather_from_ranks,
    in_notebook,
    largest_on_ranks,
    make_loggers,
    say,
)
from slicegraph.train.results import class_names
from slicegraph.train.run_folder import BEST, EPOCH, LAST, RunFolder

_MOST_CLASSES = 10  # whose names are printed
_FEW_SAMPLES = 64  # of a rank at a time, which do not fill a GPU
_MOST_UPDATES = 100  # between two exchanges of several ranks about signals
_RAW = "raw_weights"
_PARTS_OF_MODEL = ("epoch", "global_step", "hyper_parameters", "state_dict")
_BAR = "{desc}{percentage:3.0f}% {bar} {n_fmt}/{total_fmt} updates, {remaining} left{postfix}"


class RunStart(Callback):
    """Creates the folder of a new run, and prints what is trained."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, command: str | None, show: bool
    ) -> None:
        self.config, self.folder, self.command, self.show = config, folder, command, show

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        # The model exists by now: mistakes in the settings were found and left no folder.
        dataset = pl_module.data.dataset
        resumed = self.folder.path is not None and self.folder.check_same_data(dataset)
        if self.folder.path is None:  # all ranks get the path of the first, or its error
            found: Any = None
            try:
                if trainer.is_global_zero:
                    # A run that is resumed with other ranks has the same batches.
                    sizes: Any = {"batch_size": pl_module.data.batch_size}
                    own = replace(self.config, **sizes, device_batch_size=None)
                    found = self.folder.claim(own, self.command)
            except OSError as error:
                found = error
            found = trainer.strategy.broadcast(found)
            if isinstance(found, OSError):
                raise found
            self.folder.path = found
        trainer.loggers = make_loggers(self.config.logger, self.folder.path)
        if trainer.is_global_zero:
            data = pl_module.data
            if not resumed:
                self.folder.write_data_card(data.dataset, data.unit)
                self.folder.write_molecules(data.dataset)
            if self.show:
                self._describe(trainer, data, pl_module.model)

    def _describe(self, trainer: pl.Trainer, data: Any, model: Any) -> None:
        config, dataset, task = self.config, data.dataset, data.dataset.task
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in dataset.splits.items())
        unit, classes = f" in {data.unit}" if data.unit else "", ""
        if names := class_names(dataset):
            more = ", ..." if len(names) > _MOST_CLASSES else ""
            classes = f" ({len(names)}: {', '.join(names[:_MOST_CLASSES])}{more})"
        parameters = sum(p.numel() for p in model.parameters())
        say(f"settings  {changed_settings(config)}\ndata    {dataset.name}: {sizes}")
        if config.is_table and config.start is None:
            say("init    random weights")
        if config.head == "kernel":
            say(
                f"head    kernel on {model.config.kernel_rows:,} molecules: {config.init}, "
                f"{', '.join(config.features or ())}; --head network trains a network instead"
            )
        if (summary := getattr(dataset, "summary", None)) is not None:
            from slicegraph.data.summary import summary_lines

            say("\n".join(summary_lines(summary)))
        if data.remark:
            say(f"note    {data.remark}")
        if config.trains_on_valid:
            say("note    valid is trained on: the last epoch is kept, and valid has no score")
        say(
            f"task    {task.kind} of {', '.join(task.target_names)}{unit}{classes}, scored by "
            f"{dataset.evaluator.name}\n"
            f"model   {config.preset}: {parameters:,} parameters, mixer {model.config.mixer}\n"
            f"run     {self.folder.path}: {counted(data.total_steps, 'updates')} of "
            f"{counted(data.batch_size, dataset.noun)} ({counted(data.epochs, 'epochs')}) "
            f"on {trainer.world_size} x {trainer.strategy.root_device.type}, {config.precision}"
        )
        if trainer.world_size > 1 and data.local_batch < _FEW_SAMPLES:
            few = f"{counted(data.local_batch, dataset.noun)} at a time, which does not fill a GPU"
            more = f"--device-batch-size {_FEW_SAMPLES} or more with a higher --lr"
            say(f"WARNING each of {trainer.world_size} devices has {few}; use fewer, or {more}")


def changed_settings(config: TrainConfig) -> str:
    """The settings that differ from the defaults, but for those that are printed elsewhere."""
    task = config.task if config.is_task else None
    default = TrainConfig(
        data=config.data, preset=config.preset, task=task, init=config.init, head=config.head
    ).resolved()
    values = asdict(config) | {f"model.{name}": value for name, value in config.model.items()}
    usual = asdict(default) | {name: values[name] for name in ("model", "out", "precision")}
    found = [
        f"{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in values.items()
        if value is not None and value != usual.get(name)
    ]
    return ", ".join(found) or "all default"


class RandomState(Callback):
    """Saves the state of torch's generators with each checkpoint, and restores it.

    Dropout and adversarial noise draw from them, on each rank different numbers; everything else
    has generators of its own. The state is restored just before the first batch. A rank without a
    saved state, because a run is resumed with more ranks, starts from the seed, rank and step.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._saved: list[dict[str, Any]] = []
        self._started = False

    def state_dict(self) -> dict[str, Any]:
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return {"ranks": gather_from_ranks({"torch": torch.get_rng_state(), "cuda": cuda})}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict["ranks"]

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._started:
            return
        self._started = True
        rank = trainer.global_rank
        if rank < len(self._saved):
            state = self._saved[rank]
            torch.set_rng_state(state["torch"].cpu())
            if state["cuda"] is not None and torch.cuda.is_available():
                torch.cuda.set_rng_state(state["cuda"].cpu())
        elif rank:
            torch.manual_seed(hash((self.seed, rank, trainer.global_step)))


class WeightAverage(Callback):
    r"""The exponential moving average of the weights, used in validation and saved as the model.

    After update ``n`` (from 1), :math:`a \leftarrow d a + (1 - d) w` with
    :math:`d = \min(\text{decay}, (1 + n) / (10 + n))`, so that the first weights are soon
    forgotten. Lightning's `WeightAveraging` copies the module before it has made its model, and
    names its entries of a checkpoint differently, so that older runs could not be resumed.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: dict[str, Tensor] = {}
        self._step = 0

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        average, device = self.average or _parameters(pl_module), pl_module.device
        self.average = {name: value.clone().to(device) for name, value in average.items()}

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        if trainer.global_step == self._step:
            return
        self._step = number = trainer.global_step
        decay = min(self.decay, (1 + number) / (10 + number))
        weights = _parameters(pl_module)
        averages = [self.average[name] for name in weights]
        get_ema_multi_avg_fn(decay)(averages, list(weights.values()), number)

    def _swap(self, trainer: pl.Trainer, pl_module: Any) -> None:
        for name, weight in _parameters(pl_module).items():
            kept = weight.clone()
            weight.copy_(self.average[name])
            self.average[name] = kept

    on_validation_start = on_validation_end = _swap

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        weights = checkpoint["state_dict"]
        checkpoint[_RAW] = {name: weights[f"model.{name}"] for name in self.average}
        average = {f"model.{name}": value for name, value in self.average.items()}
        checkpoint["state_dict"] = weights | average

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        for name, weight in _parameters(pl_module).items():
            self.average[name] = weight.clone()
            weight.copy_(checkpoint[_RAW][name])


def _parameters(pl_module: Any) -> dict[str, Tensor]:
    """The weights of the model by name, without gradients."""
    return {name: weight.detach() for name, weight in pl_module.model.named_parameters()}


class LogTable(Callback):
    """Writes loss, score, learning rate and speed of each epoch to log.csv, and shows them.

    The table and the sums of an interrupted epoch are part of the checkpoints. With `show`, epochs
    are printed, and a bar is on standard error if that is a terminal; its loss is that of the step
    before, as it is for Lightning's loggers. In a notebook the bar has the epoch, and epochs are
    not printed: hundreds of lines would be kept with it. No checkpoint is written, and no epoch
    evaluated, after a loss that is not finite.
    """

    def __init__(self, folder: RunFolder, show: bool = False) -> None:
        self.folder, self.show = folder, show
        self.rows: list[dict[str, Any]] = []
        self.seconds, self.samples = 0.0, 0  # of all updates, without the validations
        self._epoch = [0.0, 0.0, 0.0, 0]  # loss, labels, seconds and samples
        self._mark = 0.0
        self._bar: Any = None
        self._notebook = in_notebook()
        self._losses: Any = None

    def state_dict(self) -> dict[str, Any]:
        self._read_losses()
        return {"rows": self.rows, "run": [self.seconds, self.samples], "epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self._epoch = list(state_dict["rows"]), list(state_dict["epoch"])
        self.seconds, self.samples = state_dict["run"]

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds if self.seconds else 0.0

    def _read_losses(self) -> None:
        """Add the losses of all steps, also of the last."""
        if self._losses is not None:
            self._losses.read()
            self._add(*self._losses.take(), 0.0, 0)

    def _add(self, *values: float) -> None:
        self._epoch = [old + new for old, new in zip(self._epoch, values, strict=True)]

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._mark, self._losses = time.perf_counter(), pl_module.losses
        if self.show and trainer.is_global_zero:
            self._bar = tqdm(
                total=pl_module.data.total_steps,
                initial=trainer.global_step,
                bar_format=_BAR,
                dynamic_ncols=True,
                disable=not (self._notebook or sys.stderr.isatty()),
                mininterval=1.0 if self._notebook else 0.1,  # a notebook keeps every state
            )

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._mark = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now = time.perf_counter()
        seconds, self._mark = now - self._mark, now
        samples, losses = batch.num_graphs * trainer.world_size, self._losses
        self._add(*losses.take(), seconds, samples)
        self.seconds, self.samples = self.seconds + seconds, self.samples + samples
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if losses.step >= 0 and (losses.step + 1) % every == 0:
            for logger in trainer.loggers:  # Lightning's `log` would wait for the device
                logger.log_metrics({"train_loss": losses.mean}, losses.step)
        if self._bar is not None and not self._bar.disable:
            speed = f"{self.samples_per_second:,.0f} {pl_module.data.dataset.noun}/s"
            self._bar.set_postfix_str(f"loss {losses.mean:.3f}, {speed}", refresh=False)
            self._bar.update(trainer.global_step - self._bar.n)

    def on_validation_start(self, *_: Any) -> None:
        self._read_losses()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        valid, data = pl_module.evaluations["valid"], pl_module.data
        dataset, epochs, number = data.dataset, data.epochs, trainer.current_epoch
        self._read_losses()
        loss, count, seconds, samples = self._epoch
        self._epoch = [0.0, 0.0, 0.0, 0]
        loss, speed = loss / max(1.0, count), round(samples / seconds, 1)
        self.rows.append(
            {
                "epoch": number,
                "step": trainer.global_step,
                "train_loss": loss,
                "valid_loss": valid.loss,
                f"valid_{dataset.task.metric}": valid.score,
                "lr": trainer.optimizers[0].param_groups[0]["lr"],
                f"{dataset.noun}_per_second": speed,
                "seconds": round(self.seconds, 3),
            }
        )
        if trainer.is_global_zero:
            self.folder.write_rows("log.csv", self.rows[0], map(dict.values, self.rows))
        if self._bar is not None:
            score = f"{dataset.evaluator.name} {valid.score:.4f} {data.unit}".rstrip()
            if chosen_by_loss(dataset.task):  # the mean error of several units means nothing
                score = f"loss {valid.loss:.4f}"
            line = f"epoch {number + 1:{len(str(epochs))}}/{epochs}  loss {loss:.4f}  valid {score}"
            if self._notebook:
                self._bar.set_description_str(f"{line}  ", refresh=False)
                return
            self._bar.write(f"{line}  {speed:,.0f} {dataset.noun}/s", file=sys.stdout)
            sys.stdout.flush()

    def teardown(self, *_: Any, **options: Any) -> None:
        if self._bar is not None:
            self._bar.close()

    def on_exception(self, *_: Any) -> None:
        self.teardown()


class StepLimit(Callback):
    """Ends the run after its last update, also in the middle of an epoch, with a validation."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._limit = pl_module.data.total_steps
        self.on_train_batch_end(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *arguments: Any) -> None:
        if trainer.global_step >= self._limit:
            trainer.should_stop = True


class Stopped(Exception):
    """The run was stopped by a signal, has saved its state and can be resumed."""

    def __init__(self, signum: int, folder: Path | None = None) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum, self.folder = signum, folder


def chosen_by_loss(task: Any) -> bool:
    """Whether the epoch is chosen by the loss: a score would mix targets of different scales."""
    return task.kind == "regression" and task.num_targets > 1


class RunCheckpoint(Checkpoint):
    """Saves the last state by time and after each epoch, and the best states; may stop the run.

    A checkpoint is only made where a run can be resumed exactly: after an update that is not the
    last of its epoch, and after an epoch with its validation. The best epoch is that of the best
    valid score, or of the lowest valid loss, see `chosen_by_loss`; it is the last epoch with
    ``keep="last"``, or if valid is trained on. With ``top_k`` the weights of so many best epochs
    are kept as well. With ``patience`` the run stops after so many epochs without a better one;
    `stopped` is then the reason. On SIGTERM and Ctrl-C of any rank, it finishes the
    batch, saves the state and raises `Stopped`; a second Ctrl-C interrupts at once. Several ranks
    exchange signals and times about once a second, after a number of updates that is the same on
    all of them.

    Lightning's `ModelCheckpoint` forgets the best score when the folder of the run was moved, and
    its `EarlyStopping` lets a stopped run train another epoch when it is resumed.
    """

    def __init__(self, folder: RunFolder, config: TrainConfig) -> None:
        self.folder, self.config, self.patience = folder, config, config.patience or 0
        self.best: float | None = None
        self.best_epoch = -1
        self.kept: list[list[float]] = []  # value (lower is better) and epoch of the best epochs
        self.by_loss = False
        self.stopped = ""
        self._saved_step = self._signal = 0
        self._saved_time = 0.0
        self._looked_step, self._looked_time, self._next_look = 0, 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            **{"best": self.best, "best_epoch": self.best_epoch},
            **{"by_loss": self.by_loss, "kept": self.kept},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_epoch = state_dict["best"], state_dict["best_epoch"]
        self.by_loss = state_dict.get("by_loss", False)  # older runs go on with the score
        self.kept = state_dict.get("kept", [])

    @property
    def epochs(self) -> list[int]:
        """The epochs whose weights are averaged for the model of the run."""
        return sorted(int(epoch) for _, epoch in self.kept) or [self.best_epoch]

    @property
    def files(self) -> list[Path]:
        """The checkpoints of `epochs`."""
        names = [EPOCH.format(epoch + 1) for epoch in self.epochs] if self.kept else [BEST]
        return [self.folder.path / name for name in names]

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        self._saved_step, self._saved_time = trainer.global_step, time.monotonic()
        if self.best is None:
            self.by_loss = chosen_by_loss(pl_module.data.dataset.task)
        self._stop_if_stuck(trainer, trainer.current_epoch - 1)
        # Lightning has installed its own handlers by now, and removes them and these at the end.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self._signal = number
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if largest_on_ranks([self._signal != 0], pl_module.device)[0]:
            raise Stopped(self._signal or signal.SIGTERM, self.folder.path)
        self._looked_step, self._looked_time = trainer.global_step, time.monotonic()
        self._next_look = trainer.global_step + 1

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches or trainer.is_last_batch:
            return
        steps, stopped, due = trainer.global_step - self._saved_step, 0.0, 0.0
        if trainer.global_step >= self._next_look:
            stopped, due = self._look(trainer, pl_module.device)
        if stopped or due or steps >= (self.config.checkpoint_steps or math.inf):
            self._save_last(trainer)
        if stopped:
            raise Stopped(self._signal or signal.SIGTERM, self.folder.path)

    def _look(self, trainer: pl.Trainer, device: torch.device) -> list[float]:
        """Whether any rank has a signal, and whether a checkpoint is due; plan the next look."""
        now, step, updates = time.monotonic(), trainer.global_step, 1
        due = now >= self._saved_time + 60 * self.config.checkpoint_minutes
        own = [self._signal != 0, due, now - self._looked_time]
        *flags, seconds = largest_on_ranks(own, device)
        if trainer.world_size > 1:
            a_second = (step - self._looked_step) / max(seconds, 1e-6)
            updates = max(1, min(_MOST_UPDATES, int(a_second)))
        self._looked_step, self._looked_time, self._next_look = step, now, step + updates
        return flags

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        valid, evaluator = pl_module.evaluations["valid"], pl_module.data.dataset.evaluator
        score, epoch = valid.loss if self.by_loss else valid.score, trainer.current_epoch
        sign = -1 if evaluator.higher_is_better and not self.by_loss else 1
        last = self.config.trains_on_valid or self.config.keep == "last"
        if last or self.best is None or sign * score < sign * self.best:
            self.best, self.best_epoch = score, epoch
            trainer.save_checkpoint(self.folder.path / BEST)
        if self.config.top_k > 1:
            self._keep(trainer, -epoch if last else sign * score)
        self._save_last(trainer)
        if self.kept and trainer.is_global_zero:
            for path in self.folder.path.glob(EPOCH.format("*")):
                if path not in self.files:
                    path.unlink()
        self._stop_if_stuck(trainer, epoch)

    def _keep(self, trainer: pl.Trainer, value: float) -> None:
        """Keep the weights of this epoch if it is one of the best."""
        own = [value, trainer.current_epoch]
        self.kept = sorted([*self.kept, own])[: self.config.top_k]
        if own not in self.kept:
            return
        path = self.folder.path / EPOCH.format(trainer.current_epoch + 1)
        trainer.save_checkpoint(path)
        if trainer.is_global_zero:  # without the state of the optimizer, a third of the size
            content = torch.load(path, map_location="cpu", weights_only=True)
            parts = {name: content[name] for name in _PARTS_OF_MODEL}
            trainer.strategy.checkpoint_io.save_checkpoint(parts, path)

    def _save_last(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.folder.path / LAST)
        self._saved_step, self._saved_time = trainer.global_step, time.monotonic()

    def _stop_if_stuck(self, trainer: pl.Trainer, epoch: int) -> None:
        if self.patience and self.best is not None and epoch - self.best_epoch >= self.patience:
            trainer.should_stop = True
            module: Any = trainer.lightning_module
            if epoch + 1 < module.data.epochs:
                kept = f"epoch {self.best_epoch + 1} kept"
                self.stopped = f"stopped: no gain for {counted(self.patience, 'epochs')}; {kept}"


class Watch(Callback):
    """Calls a function after each epoch, with the best value and the part of the training done.

    The value is that of `RunCheckpoint`, with its sign changed if higher is better.
    """

    def __init__(self, checkpoint: RunCheckpoint, watch: Callable[[float, float], None]) -> None:
        self.checkpoint, self.watch = checkpoint, watch

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        data, valid, best = pl_module.data, pl_module.evaluations["valid"], self.checkpoint.best
        by_loss = self.checkpoint.by_loss
        sign = -1 if data.dataset.evaluator.higher_is_better and not by_loss else 1
        # Lightning calls checkpoints last: theirs is the best value of the epochs before.
        value = sign * (valid.loss if by_loss else valid.score)
        value = float(value if best is None else min(value, sign * best))
        self.watch(value, min(1.0, trainer.global_step / data.total_steps))
