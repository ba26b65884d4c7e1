"""The Lightning module: loss, optimizer, schedule and evaluation of a model."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models import GraphSliceformer
from slicegraph.models.base import CONFIG_FILE, load, read_config
from slicegraph.ops.operator import multiply_each
from slicegraph.train import data as molecules
from slicegraph.train.config import TrainConfig
from slicegraph.train.data import RunData
from slicegraph.train.head import solve_head
from slicegraph.train.machine import gather_from_ranks, say, sum_over_ranks
from slicegraph.train.optimizer import make_optimizer, warmup_and_decay
from slicegraph.train.results import score

# Fields that may differ from those of the model that a run starts from.
_NOT_ENCODER = (
    *("num_targets", "num_classes", "task", "target_names", "class_names", "unit", "target_mean"),
    *("target_std", "standardize", "words", "dropout", "attention_dropout", "input_dropout"),
    *("task_level", "log_target", "head_layers", "feature_columns", "descriptors", "fingerprint"),
    *("feature_mean", "feature_std", "molecule_columns", "kernel_rows"),
)


class TrainingError(RuntimeError):
    """A run that cannot go on; the message gives the reason and the remedy."""


class BadLoss(TrainingError):
    """A loss or a score that is NaN or infinite, for samples at these positions in the store."""

    def __init__(self, loss: float, positions: list[int], step: int) -> None:
        super().__init__(f"the loss is {loss} after {step} updates")
        self.loss, self.positions, self.step = loss, positions, step


class TrainingModule(pl.LightningModule):
    """Trains a model of :mod:`slicegraph.models`, which it makes for the data.

    The loss of an update is the mean over its known labels on *all* ranks and in all parts of the
    batch, by :class:`LabelMean`, so that it is the update of one process with the whole batch.
    `domain` is the module with `model_fields` and `new_model`: :mod:`slicegraph.train.data` for
    molecules, :mod:`slicegraph.tasks.domain` for sequences and images.
    """

    model: Any

    def __init__(self, config: TrainConfig, domain: Any = molecules) -> None:
        super().__init__()
        self.config, self.domain = config, domain
        self.batch: Any = None
        self.losses = StepLosses()
        self.evaluations: dict[str, Evaluation] = {}
        self._scores: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        self._ready = False

    @property
    def data(self) -> RunData:
        return self.trainer.datamodule  # type: ignore[attr-defined]

    def setup(self, stage: str) -> None:
        if self._ready:
            self.data.count_updates()
            return
        dataset, config = self.data.dataset, self.config
        labels, bounds = labels_of(dataset, "valid")
        labels = labels if bounds is None else np.where(bounds == 0, labels, np.nan)
        try:
            score(dataset, labels, np.zeros(labels.shape))
        except ValueError as error:
            raise ValueError(
                f"train: split 'valid' of {dataset.name} cannot be scored: {error}; choose another "
                "split, split_seed, fractions or metric"
            ) from None
        pl.seed_everything(config.seed, verbose=False)
        fields: dict[str, Any] = self.domain.model_fields(config, self.data)
        for name, value in config.model.items():
            if name in fields and value != fields[name]:
                raise ValueError(f"train: model.{name} is decided by the data, not by a setting")
        for name in ("dropout", "attention_dropout"):
            if (rate := getattr(config, name)) is not None:
                fields[name] = rate
        fields |= config.model
        if config.start is None:
            self.model = self.domain.new_model(config, fields)
        else:
            self.model = model_from(config.start, fields, config.model)
        self._weights = LabelWeights(dataset, config.class_balance)
        if config.is_solved:
            how = solve_head(self.model, self.data.all_batches("train"), config.seed)
            say(f"head: solved on the training molecules ({how})")
        self.data.count_updates()
        self._mean = LabelMean(self.trainer.world_size, config.accumulate)
        self._score = self.model.score
        if compiles(config, self.trainer.strategy.root_device):
            self._score = torch.compile(self._score, dynamic=True)
        self._ready = True

    def configure_optimizers(self) -> Any:
        config, total = self.config, self.data.total_steps
        lr, end_lr, warmup = config.lr or 0.0, config.end_lr or 0.0, config.warmup_steps
        warmup = math.ceil(0.06 * total) if warmup is None else warmup
        # Scaled gradients of float16 are unscaled before they are clipped, and not in the update.
        fused = config.precision != "16-mixed" and self.device.type in ("cpu", "cuda")
        options: Any = {"lr": lr, "weight_decay": config.weight_decay or 0.0, "fused": fused}
        optimizer = make_optimizer(self.model, config.optimizer or "adamw", **options)
        factor = warmup_and_decay(lr, warmup, total, end_lr)
        if config.is_solved:  # its only update changes nothing
            factor = lambda step: 0.0  # noqa: E731
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "lr"},
        }

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        self.batch, config = batch, self.config

        def loss() -> tuple[Tensor, Tensor]:
            bounds, weights = getattr(batch, "bound", None), self._weights.of(batch)
            scores, task = self._score(batch), self.data.dataset.task
            return loss_of(task, self.model, scores, batch.y, bounds, weights)

        if config.flag_steps:
            loss = partial(adversarial_loss, self.model, loss, config.flag_steps, config.flag_size)
        total, count = loss()
        own = torch.stack([total.detach().double(), count.double()])
        sums = sum_over_ranks(own)
        self.losses.add(torch.cat([sums, own[:1]]), batch.index, self.trainer.global_step)
        return {"loss": total * self._mean.weight(sums[1]).to(total.dtype)}

    def on_train_epoch_end(self) -> None:
        self.losses.read()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._mean.finish(self.model.parameters())

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the norm on the device; Lightning does not for a fused optimizer in bf16-mixed."""
        if gradient_clip_val:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), gradient_clip_val)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        # They stay on the device until the end; a copy of the index, which is part of a buffer.
        own = batch.index.clone(), self._score(batch).detach().float()
        self._scores[dataloader_idx].append(own)

    validation_step = test_step

    def on_validation_epoch_end(self) -> None:
        self._evaluate("valid", 0)
        found: Any = self.evaluations["valid"]
        if found.score is None:
            raise ValueError(f"train: valid cannot be scored: {found.reason}")
        if self.trainer.loggers:
            self.log("valid_loss", found.loss)
            self.log(f"valid_{self.data.dataset.task.metric}", found.score)

    def on_test_epoch_end(self) -> None:
        for number, split in enumerate(self.data.evaluated):
            self._evaluate(split, number)

    @torch.no_grad()
    def _evaluate(self, split: str, number: int) -> None:
        """Evaluate the scores of a split, those of the data loader with this number."""
        model, dataset, task = self.model, self.data.dataset, self.data.dataset.task
        labels, bounds = labels_of(dataset, split)
        found = [(i.cpu().numpy(), own.cpu().numpy()) for i, own in self._scores.pop(number)]
        for index, own in found:
            if not np.isfinite(own).all():
                raise BadLoss(math.nan, index.tolist(), self.trainer.global_step)
        scores = scores_in_order(found, dataset.splits[split]).to(self.device)
        limits = None if bounds is None else torch.from_numpy(bounds).to(self.device)
        known = torch.from_numpy(labels).to(self.device)
        total, count = loss_of(task, model, scores, known, limits)
        mean = float(total / count) if count else math.nan
        labels = labels if bounds is None else np.where(bounds == 0, labels, np.nan)
        if task.kind == "regression":
            scores = model.rescale(scores)
        elif task.kind == "binary":
            scores = scores.double().sigmoid()
        else:
            scores = scores.double().softmax(-1)
        values, reason, result = scores.cpu().numpy(), "", None
        try:
            result = score(dataset, labels, values)
        except ValueError as error:
            reason = str(error)
        reason = reason.removeprefix("Evaluator: ")
        self.evaluations[split] = Evaluation(values, mean, result, reason, labels)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["hyper_parameters"] = {
            "model": {"model": type(self.model).__name__, **asdict(self.model.config)},
            "train": asdict(self.config),
        }


def compiles(config: TrainConfig, device: torch.device) -> bool:
    """Return whether to compile the model: as asked for, or where a launch costs most.

    Adversarial noise is added by a hook, with which it would be compiled again at each step.
    """
    if config.compile is not None or config.is_solved:
        return bool(config.compile)
    has_backend = find_spec("triton") is not None
    return device.type == "cuda" and has_backend and not config.flag_steps


def model_from(path: Path, fields: dict[str, Any], given: dict[str, Any]) -> Any:
    """Make a model with the weights of a saved one, or of a Graphormer folder of transformers.

    `fields` are the fields of the configuration that the data and the user decide, `given` those of
    the user.
    """
    if (path / CONFIG_FILE).is_file() and read_config(path).get("model_type") == "graphormer":
        return GraphSliceformer.from_huggingface(path, **fields).train()
    old = load(path)
    before = asdict(old.config)
    if not set(fields) <= set(before):
        raise ValueError(f"train: {path} is a {type(old).__name__}, a model for other data")
    model = type(old)(type(old.config)(**(before | fields)))
    weights, drawn = old.state_dict(), []
    for name, tensor in model.state_dict().items():
        if name in weights and weights[name].shape == tensor.shape:
            tensor.copy_(weights[name])
        else:
            drawn.append(name)
    if not all("head." in name or "head_hidden." in name for name in drawn):
        differ = {
            name: f"{name}: {before[name]!r:.40} in it, {now!r:.40} here"
            for name, now in asdict(model.config).items()
            if now != before[name] and name not in _NOT_ENCODER
        }
        what, remedy = "task", "start from a model of such data, or leave out init"
        if set(differ) <= set(given):
            what, remedy = "settings", "leave out the settings of the model that differ"
        text = ", ".join(differ.values())
        raise ValueError(f"train: the model of {path} does not fit the {what} ({text}); {remedy}")
    new = f"; random: {', '.join(drawn)}, as the head has another size" if drawn else ""
    new = "" if fields.get("kernel_rows") else new
    count = len(model.state_dict())
    say(f"init: {count - len(drawn)} of {count} weights are those of {path}{new}")
    if fields.get("words") and not old.config.words:
        say(
            f"init: {path} was saved without its words; its word embeddings are of use only if the "
            "words were found in the same texts"
        )
    return model


def labels_of(dataset: Any, split: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels of a split and, if some of them are only limits, their bounds."""
    positions = dataset.splits[split]
    if getattr(dataset.store, "bounds", None) is None:
        return dataset.labels(positions), None
    store = dataset.store[positions]
    return np.array(store.labels), store.bounds


def loss_of(
    task: Any,
    model: Any,
    scores: Tensor,
    labels: Tensor,
    bounds: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss of a task, summed over the labels that are not NaN, and their number.

    It is the cross entropy, the absolute error, or the squared error if the metric is RMSE, of
    scores ``[B, targets]`` (``[B, targets, classes]`` for several classes) and labels
    ``[B, targets]``, which a regression standardises. Where `bounds` of a regression are 1 (-1),
    the true value is at least (at most) the label, and only a score below (above) it has a loss.
    `weights`, which can be expanded to the shape of the labels, multiply the loss of each.
    """
    known = ~labels.isnan()
    if task.kind == "multiclass":
        scores, classes = scores.flatten(0, 1).float(), torch.where(known, labels, -1).long()
        options: Any = {"ignore_index": -1, "reduction": "none"}
        each = functional.cross_entropy(scores, classes.flatten(), **options).view_as(labels)
        return (each if weights is None else weights * each).sum(), known.sum()
    loss: Any = functional.mse_loss if task.metric == "rmse" else functional.l1_loss
    if task.kind == "binary":
        loss = functional.binary_cross_entropy_with_logits
    if task.kind == "regression":
        labels = model.standardise(labels)
    if bounds is not None and task.kind == "regression":
        reached = torch.where(bounds > 0, scores > labels, scores < labels) & (bounds != 0)
        labels = torch.where(reached & known, scores.detach().to(labels.dtype), labels)
    each = loss(scores.float(), torch.where(known, labels, 0).float(), reduction="none")
    each = torch.where(known, each, 0)
    return (each if weights is None else weights * each).sum(), known.sum()


class LabelWeights:
    """The weights of labels in the training loss, of rows and of classes, with a mean of 1.

    With `balance`, all classes of a target have the same sum of weights over the training labels.
    """

    def __init__(self, dataset: Any, balance: bool) -> None:
        task, positions = dataset.task, dataset.splits["train"]
        self.scale, self.classes = 1.0, None
        weights = getattr(dataset.store, "weights", None)
        own = np.ones(len(positions)) if weights is None else weights[positions].astype(np.float64)
        if not own.sum() > 0:
            raise ValueError("train: every training row has the weight 0; mend the weight column")
        self.scale = len(own) / own.sum()
        if not balance:
            return
        if task.kind == "regression":
            names = ", ".join(task.target_names)
            remedy = "leave it out, or choose --task binary or multiclass"
            raise ValueError(
                f"train: class_balance is for classes, {names} is a regression; {remedy}"
            )
        labels = dataset.labels(positions)
        count = task.num_classes if task.kind == "multiclass" else 2
        sums = np.stack([np.where(labels == k, own[:, None], 0).sum(0) for k in range(count)], 1)
        known = (~np.isnan(labels)).sum(0)[:, None] / np.maximum(1, (sums > 0).sum(1))[:, None]
        factors = np.divide(known, sums, out=np.zeros(sums.shape), where=sums > 0)
        self.scale, self.classes = 1.0, torch.from_numpy(factors).float()

    def of(self, batch: Any) -> Tensor | None:
        """The weights of the labels of a batch, ``[B, 1]`` or ``[B, targets]``, if any."""
        weights = None
        if (own := getattr(batch, "weight", None)) is not None:
            weights = self.scale * own[:, None]
        if self.classes is None:
            return weights
        self.classes = self.classes.to(batch.y.device)
        each = self.classes.expand(len(batch.y), -1, -1)
        each = each.gather(2, batch.y.nan_to_num().long()[..., None]).squeeze(2)
        return each if weights is None else weights * each


class StepLosses:
    """The loss sums of training steps, each read while the step after it is computed.

    To read a number from a GPU is to wait for it, and then the GPU waits for its next work. So
    `add` starts a copy to the host, and reads that of the step before. `read` waits for the last
    step, before its results are used: at a checkpoint, and at the end of an epoch.
    """

    def __init__(self) -> None:
        self.step, self.mean = -1, math.nan  # updates before the last step read, and its loss
        self._sums = (0.0, 0.0)
        self._last: tuple[Tensor, torch.cuda.Event | None, Tensor, int] | None = None

    def add(self, values: Tensor, index: Tensor, step: int) -> None:
        """Add the values of a step: ``[3]``, loss and labels on all ranks, and the loss on this.

        `index` are the samples of this rank, and `step` the updates before. A loss of the step
        before that is not finite raises :class:`BadLoss`.
        """
        self.read()
        event = None
        if values.is_cuda:
            values = values.to("cpu", non_blocking=True)  # which is pinned
            event = torch.cuda.Event()
            event.record()
        self._last = values, event, index, step

    def read(self) -> None:
        """Wait for the step that was added last; raise :class:`BadLoss` if it is not finite."""
        if self._last is None:
            return
        values, event, index, self.step = self._last
        self._last = None
        if event is not None:
            event.synchronize()
        loss, count, own = values.tolist()
        if not math.isfinite(loss):
            raise BadLoss(own, index.tolist(), self.step)
        self.mean = loss / max(1, count)
        self._sums = (self._sums[0] + loss, self._sums[1] + count)

    def take(self) -> tuple[float, float]:
        """Return loss and labels of the steps that were read since the last call."""
        found, self._sums = self._sums, (0.0, 0.0)
        return found


class LabelMean:
    r"""Weights that turn the loss sums of ranks and parts into the mean of an update.

    With sums :math:`s_{rk}` and :math:`c_k` labels on all ranks :math:`r` in part :math:`k`, the
    gradient is that of :math:`\sum_{rk} s_{rk} / \sum_k c_k`. DDP averages the ranks and Lightning
    the parts, and the labels of later parts are not known yet. So all parts are divided by
    :math:`c_1`, and the gradient by :math:`\sum_k c_k / c_1` before the update.
    """

    def __init__(self, world: int, parts: int) -> None:
        self.world, self.parts = world, parts
        self._first: Tensor | None = None
        self._total: Any = 0.0

    def weight(self, count: Tensor) -> Tensor:
        """The factor of a rank's loss sum in a part with `count` labels on all ranks."""
        if self._first is None:
            self._first = count.clamp(min=1)
        self._total = self._total + count
        return self.world * self.parts / self._first

    @torch.no_grad()
    def finish(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Scale the gradient to that of the mean; the next part starts a new update."""
        first, total = self._first, self._total
        self._first, self._total = None, 0.0
        if self.parts == 1 or first is None:
            return
        factor = first / total.clamp(min=1)
        gradients = [p.grad for p in parameters if p.grad is not None]
        if multiply_each is not None:  # one launch, not one for each
            multiply_each(gradients, factor)
            return
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.dtype))


def adversarial_loss(
    model: Any, loss: Callable[[], tuple[Tensor, Tensor]], steps: int, size: float
) -> tuple[Tensor, Tensor]:
    """The loss and the number of labels, with adversarial noise on the embedding of the atoms.

    The noise starts uniform in ``-size..size``, and each step adds ``size`` with the sign of its
    gradient, as in `"Robust Optimization as Data Augmentation for Large-scale Graphs"
    <https://arxiv.org/abs/2010.09891>`_ (FLAG); the weights learn from the last step alone.
    """
    noise: Any = None

    def add(module: torch.nn.Module, inputs: Any, x: Tensor) -> Tensor:
        nonlocal noise
        if noise is None:
            noise = torch.empty_like(x).uniform_(-size, size).detach().requires_grad_()
        return x + noise

    handle = model.embedding.register_forward_hook(add)
    try:
        for _ in range(steps):
            (slope,) = torch.autograd.grad(loss()[0], noise)
            noise = (noise.detach() + size * slope.sign()).requires_grad_()
        noise = noise.detach()
        return loss()
    finally:
        handle.remove()


class Evaluation(NamedTuple):
    """The predictions of a split and their score."""

    values: np.ndarray  # [n, targets] or [n, targets, classes]: in their unit, or probabilities
    loss: float  # the mean over the known labels; NaN if there are none
    score: float | None  # None if the metric is not defined
    reason: str  # why it is not defined
    labels: np.ndarray  # [n, targets]: NaN for a gap, or a label that is only a limit


def scores_in_order(found: list[tuple[np.ndarray, np.ndarray]], positions: np.ndarray) -> Tensor:
    """The scores of all ranks in the order of `positions`; raise unless each occurs once.

    `found` are the batches of this rank: positions in the store ``[B]`` and scores ``[B, ...]``.
    """
    own = tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
    ranks = zip(*gather_from_ranks(own), strict=True)
    index, scores = (np.concatenate(parts) for parts in ranks)
    order, wanted = np.argsort(index, kind="stable"), np.argsort(positions, kind="stable")
    if not np.array_equal(index[order], positions[wanted]):
        raise RuntimeError(f"evaluation: {len(index)} predictions for {len(positions)} samples")
    result = np.empty_like(scores)
    result[wanted] = scores[order]
    return torch.from_numpy(result)
