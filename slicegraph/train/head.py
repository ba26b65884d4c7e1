"""The head of a model, solved on the vectors of its encoder: linear, or a sum of kernels.

It takes seconds, and its strength is chosen on the training molecules alone. `--head ridge` and
`--head kernel` train nothing else.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.readout import Closeness, KernelHead

STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-4, 11))  # of a ridge, for standardised vectors
_FEW_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # of a logistic regression, for each molecule
_FOLDS = 4
MOST_ROWS = 5_000  # training molecules of a kernel: its time grows with the cube
_SEARCH_ROWS = 1_000  # molecules that its settings are chosen on
_SEARCH_STEPS, _SEARCH_ENOUGH = 30, 1e-4  # and the loss of a molecule that ends the search
_LEAST_NOISE, _FARTHEST = 1e-4, 12.0  # a variance, for labels of variance 1; and of a logarithm
# Where the search begins, and how far the logarithms may go: the deviation of a normal prior.
_START = dict.fromkeys(KernelHead.SETTINGS, (1.0, 1.0)) | {"noise": (0.1, 1.5)}
_START |= dict.fromkeys(KernelHead.VARIANCES, (0.3, 2.0))


class _Known(NamedTuple):
    """What is known of the training molecules: the input of the head, labels and weights."""

    x: Tensor  # [N, F]
    y: Tensor  # [N, targets], standardised, or classes; NaN for no label
    share: Tensor  # [N], the weights


@torch.no_grad()
def solve_head(model: Any, batches: Iterable[Any], seed: int = 0) -> str:
    """Solve the last layer of a model, linear or a `KernelHead`, for the vectors of its encoder.

    A target without labels keeps its weights. Limits such as ``>10`` are no labels.

    Args:
        model: a :class:`~slicegraph.models.GraphSliceformer`, which standardises the labels.
        batches: all training molecules, with labels ``y`` and perhaps ``bound`` and ``weight``.
        seed: of what is drawn.

    Returns:
        How it was solved, as a text.
    """
    training, device = model.training, model.head.weight.device
    parts = []
    model.eval()
    try:
        for batch in batches:
            batch = batch.to(device)
            x = model.head_input(batch)
            y = model.standardise(batch.y) if model.config.task == "regression" else batch.y
            if "bound" in batch:  # a limit is not a label
                y = torch.where(batch.bound == 0, y, torch.nan)
            own = batch.weight if "weight" in batch else torch.ones(len(y))
            parts.append([one.double().cpu() for one in (x, y, own)])
    finally:
        model.train(training)
    known = _Known(*map(torch.cat, zip(*parts, strict=True)))
    return (_solve_kernel if model.config.kernel_rows else _solve_linear)(model, known, seed)


def _solve_linear(model: Any, found: _Known, seed: int) -> str:
    """Solve a ridge of the smallest leave-one-out error, or a cross-validated logistic one."""
    weight, (x, y, share) = model.head.weight, found
    mean, scale = x.mean(0), x.std(0, correction=0).clamp(min=1e-6)
    x = (x - mean) / scale
    size, chosen = len(weight) // y.shape[1], []
    for target in range(y.shape[1]):
        known = ~y[:, target].isnan() & (share > 0)
        if not bool(known.any()):
            continue
        part = x[known], y[known, target], share[known] / share[known].mean()
        if model.config.task == "regression":
            solution, bias, strength = ridge(*part)
        else:
            solution, bias, strength = logistic(*part, classes=size, seed=seed)
        rows = slice(target * size, (target + 1) * size)
        solution = solution / scale
        weight[rows] = solution.to(weight)
        model.head.bias[rows] = (bias - solution @ mean).to(weight)
        chosen.append(f"{strength:.3g}")
    return f"strength {', '.join(dict.fromkeys(chosen))}"


def _solve_kernel(model: Any, found: _Known, seed: int) -> str:
    """Solve a `KernelHead`: a Gaussian process on the labels, of classes on -1 and 1.

    The settings of a kernel have the largest leave-one-out probability of the labels (Rasmussen and
    Williams, "Gaussian Processes for Machine Learning", 5.4.2). Outputs for classes become logits
    by a logistic regression on the outputs of leave-one-out, Platt's.
    """
    head: KernelHead = model.head
    device, order = head.weight.device, np.random.default_rng(seed)
    few = np.sort(order.permutation(len(found.x))[: len(head.points)])
    x, y, share = (one[few] for one in found)
    head.cpu().store(x)
    near, texts, regression = head.closeness(x), [], model.config.task == "regression"
    for target in range(y.shape[1]):
        known = (~y[:, target].isnan() & (share > 0)).nonzero()[:, 0]
        if not len(known):
            continue
        own = y[known, target]
        labels = own[:, None] if regression else _signs(own, head.outputs)
        weights = share[known] / share[known].mean()
        centre = (weights[:, None] * labels).mean(0)
        spread = (weights[:, None] * (labels - centre).square()).mean().sqrt()
        rows = slice(target * head.outputs, (target + 1) * head.outputs)
        head.weight[rows], head.bias[rows] = 0.0, centre.to(head.bias)
        if bool((labels != labels[0]).any()):
            labels = (labels - centre) / spread
            settings = choose_settings(head, _part(near, known), labels, weights, seed)
            stored = settings.clone()  # for labels of the model, not of variance 1
            stored[-1] = (settings[-1].exp() + _LEAST_NOISE).log()
            stored[[*range(len(head.VARIANCES)), -1]] += 2 * spread.log()
            head.log_settings[target] = stored
            kernel = head.kernel(_part(near, known), head.log_settings[target]) / spread.square()
            solution, left_out = gaussian_process(kernel, labels, weights, settings[-1])
            slope, offset = spread.expand(head.outputs), centre
            if not regression:
                slope, offset = _calibrated(left_out, own, weights)
            weight = slope * solution / spread.square()
            head.weight[rows.start : rows.stop, known] = weight.T.to(head.weight)
            head.bias[rows] = offset.to(head.bias)
            error = (weights[:, None] * (left_out - labels).square()).mean().sqrt()
            texts.append(f"{float(1 - error.square()):.2f}")
        elif not regression:
            head.bias[rows] = _calibrated(torch.zeros_like(labels), own, weights)[1].to(head.bias)
    head.to(device)
    listed = ", ".join(texts[:8]) + ", ..." * (len(texts) > 8)
    return f"{len(x):,} molecules; R2 of leave-one-out {listed or 'not known'}"


def _part(near: Closeness, rows: Tensor) -> Closeness:
    if len(rows) == len(near.vectors):  # all of them, in order
        return near
    return near.each(lambda _, one: one[rows][:, rows])


def _signs(y: Tensor, outputs: int) -> Tensor:
    """Return 1 for the class and -1 for the others: ``[N, outputs]``; one output is class 1."""
    classes = torch.arange(outputs) if outputs > 1 else torch.ones(1)
    return (y[:, None] == classes).double() * 2 - 1


def choose_settings(
    head: KernelHead, near: Closeness, labels: Tensor, weights: Tensor, seed: int
) -> Tensor:
    """Return the logarithms of the settings that give left-out labels the largest probability."""
    few = np.random.default_rng(seed).permutation(len(labels))[:_SEARCH_ROWS]
    rows, count = torch.from_numpy(np.sort(few)), len(few)
    near, labels, weights = _part(near, rows), labels[rows], weights[rows]
    start, spread = torch.tensor([_START[name] for name in head.SETTINGS]).double().T
    steps = torch.zeros_like(start, requires_grad=True)

    def settings_at(steps: Tensor) -> Tensor:
        return start.log() + (spread * steps).clamp(-_FARTHEST, _FARTHEST)

    options: Any = {"tolerance_change": _SEARCH_ENOUGH, "line_search_fn": "strong_wolfe"}
    solver = torch.optim.LBFGS([steps], max_iter=_SEARCH_STEPS, **options)

    def loss() -> Tensor:
        solver.zero_grad()
        settings = settings_at(steps)
        kernel = head.kernel(near, settings) + torch.diag(_noise(weights, settings[-1]))
        value, slope = left_out_loss(kernel.detach(), labels, weights)
        prior = steps.square().sum() / 2
        torch.autograd.backward([kernel, prior / count], [slope / count, None])
        return (value + prior.detach()) / count

    with torch.enable_grad():
        solver.step(loss)
    return settings_at(steps.detach())


@torch.no_grad()
def left_out_loss(kernel: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return :math:`-\sum_i w_i \log p(y_i \mid y_{-i})`, but for a constant, and its gradient.

    With :math:`P = K^{-1}` and :math:`a = P y` it is :math:`\sum_i w_i (a_i^2 / P_{ii} -
    \log P_{ii}) / 2`; and :math:`dP = -P \, dK \, P`.

    Shapes:
        - kernel ``[N, N]`` with its noise, labels ``[N, outputs]``, weights ``[N]``.
    """
    precision = torch.cholesky_inverse(torch.linalg.cholesky(kernel))
    solution, own, share = precision @ labels, precision.diagonal()[:, None], weights[:, None]
    value = (share * (solution.square() / own - own.log())).sum() / 2
    by_solution = share * solution / own
    by_own = -(share * (solution.square() / own + 1) / own).sum(1) / 2
    slope = -(precision @ by_solution) @ solution.T - (precision * by_own) @ precision
    return value, (slope + slope.T) / 2


def _noise(weights: Tensor, log_noise: Tensor) -> Tensor:
    return (log_noise.exp() + _LEAST_NOISE) / weights


def gaussian_process(
    kernel: Tensor, labels: Tensor, weights: Tensor, log_noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve ``(kernel + noise / weights) a = labels``; return a and what others predict for each.

    Shapes:
        - kernel ``[N, N]``, labels ``[N, outputs]``, weights ``[N]``; both results as labels.
    """
    factor = torch.linalg.cholesky(kernel + torch.diag(_noise(weights, log_noise)))
    solution = torch.cholesky_solve(labels, factor)
    left_out = labels - solution / torch.cholesky_inverse(factor).diagonal()[:, None]
    return solution, left_out


def _calibrated(outputs: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Fit slope and offsets of logits to outputs ``[N, outputs]``, as Platt did.

    The goal is not quite 0 or 1: classes that the outputs separate would have infinite logits.
    """
    count, classes = outputs.shape
    several = max(classes, 2)
    onehot = functional.one_hot(y.long(), several).double()
    goal = (count * onehot + 1) / (count + several)
    log_slope = outputs.new_zeros(1, requires_grad=True)
    offset = outputs.new_zeros(classes, requires_grad=True)
    solver = torch.optim.LBFGS([log_slope, offset], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        logits = log_slope.exp() * outputs + offset
        if classes == 1:
            logits = functional.pad(logits, (1, 0))
        total = (weights[:, None] * functional.log_softmax(logits, -1) * goal).sum() / -count
        (total + 1e-3 * log_slope.square().sum()).backward()
        return total

    with torch.enable_grad():
        solver.step(loss)
    return log_slope.detach().exp().expand(classes), offset.detach()


def ridge(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, float]:
    """Solve ``sum w (x a + b - y)^2 + strength |a|^2``; return a ``[1, C]``, b ``[1]``, strength.

    The strength has the smallest leave-one-out error, which has a closed form in the singular
    values of ``x``.
    """
    centre = (weight[:, None] * x).mean(0), (weight * y).mean()
    root = weight.sqrt()
    u, s, v = torch.linalg.svd(root[:, None] * (x - centre[0]), full_matrices=False)
    target = root * (y - centre[1])
    seen = u.T @ target
    best = None
    for strength in STRENGTHS:
        kept = s.square() / (s.square() + strength)
        leverage = (u.square() * kept).sum(1) + weight / len(y)
        left_out = (target - u @ (kept * seen)) / (1 - leverage.clamp(max=0.99))
        error = float(left_out.square().mean())
        if best is None or error < best[0]:
            best = error, strength
    assert best is not None
    solution = v.T @ (s / (s.square() + best[1]) * seen)
    return solution[None], (centre[1] - solution @ centre[0])[None], best[1]


def logistic(
    x: Tensor, y: Tensor, weight: Tensor, *, classes: int, seed: int
) -> tuple[Tensor, Tensor, float]:
    """Fit a logistic regression of class 1, or of several classes; as `ridge` otherwise."""
    order = np.random.default_rng(seed).permutation(len(y))
    fold = torch.from_numpy(np.argsort(order) % _FOLDS)
    best, tried = None, _FEW_STRENGTHS if len(y) >= 2 * _FOLDS else _FEW_STRENGTHS[-1:]
    for strength in tried if len(tried) > 1 else ():
        error = 0.0
        for number in range(_FOLDS):
            out = fold == number
            solution, bias = _fit(x[~out], y[~out], weight[~out], classes, strength)
            error += float(_cross_entropy(x[out] @ solution.T + bias, y[out], weight[out]))
        if best is None or error < best[0]:
            best = error, strength
    strength = tried[0] if best is None else best[1]
    return *_fit(x, y, weight, classes, strength), strength


def _fit(
    x: Tensor, y: Tensor, weight: Tensor, classes: int, strength: float
) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        solution = x.new_zeros(classes, x.shape[1], requires_grad=True)
        bias = x.new_zeros(classes, requires_grad=True)
        solver = torch.optim.LBFGS([solution, bias], max_iter=60, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            solver.zero_grad()
            total = _cross_entropy(x @ solution.T + bias, y, weight) / len(y)
            total = total + strength * solution.square().sum() / 2
            total.backward()
            return total

        solver.step(loss)
    return solution.detach(), bias.detach()


def _cross_entropy(scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    if scores.shape[1] == 1:
        each = functional.binary_cross_entropy_with_logits(scores[:, 0], y, reduction="none")
    else:
        each = functional.cross_entropy(scores, y.long(), reduction="none")
    return (weight * each).sum()
