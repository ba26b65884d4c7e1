"""The head of a model, solved on the vectors of its encoder: ridge or logistic regression.

It takes seconds, and its strength is chosen on the training molecules alone. `--head ridge` trains
nothing else.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-4, 11))  # of a ridge, for standardised vectors
_FEW_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)  # of a logistic regression, for each molecule
_FOLDS = 4


@torch.no_grad()
def solve_head(model: Any, batches: Iterable[Any], seed: int = 0) -> str:
    """Set the last linear layer of a model to the best one for the vectors of its encoder.

    For a regression it is a ridge with the strength of the smallest leave-one-out error, for
    classes a logistic regression with the strength of the smallest loss in cross-validation. A
    target without labels keeps its weights.

    Args:
        model: a :class:`~slicegraph.models.GraphSliceformer`, which standardises the labels.
        batches: all training molecules, with labels ``y`` and perhaps ``bound`` and ``weight``.
        seed: of the folds.

    Returns:
        The strengths that were chosen, as a text.
    """
    training, weight = model.training, model.head.weight
    vectors, labels, weights = list[Tensor](), [], []
    hook = model.head.register_forward_pre_hook(
        lambda head, inputs: vectors.append(inputs[0].double().cpu())
    )
    model.eval()
    try:
        for batch in batches:
            batch = batch.to(weight.device)
            model.score(batch)
            y = model.standardise(batch.y) if model.config.task == "regression" else batch.y
            if "bound" in batch:  # a limit is not a label
                y = torch.where(batch.bound == 0, y, torch.nan)
            labels.append(y.double().cpu())
            own = batch.weight if "weight" in batch else torch.ones(len(y))
            weights.append(own.double().cpu())
    finally:
        hook.remove()
        model.train(training)
    x, y, share = torch.cat(vectors), torch.cat(labels), torch.cat(weights)
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
    return ", ".join(dict.fromkeys(chosen))


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
