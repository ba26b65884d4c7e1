"""How weights are updated: their groups, AdamW or Muon, and the schedule of the learning rate."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

_MOMENTUM = 0.95
_POLYNOMIAL = (3.4445, -4.775, 2.0315)  # of Muon: brings singular values from 0.01 to about 1
_ROUNDS = 5


class Muon(torch.optim.AdamW):
    r"""Muon (`"Muon is Scalable for LLM Training" <https://arxiv.org/abs/2502.16982>`_) for the
    groups with ``orthogonal=True``, which have matrices only, and AdamW for the others.

    .. math:: M \gets 0.95 M + 0.05 G, \quad
        W \gets (1 - \eta \lambda) W - 0.2 \, \eta \sqrt{\max(r, c)} \,
        \mathrm{orth}(0.95 M + 0.05 G)

    with the gradient :math:`G` of a matrix :math:`W` of size r x c, the rate :math:`\eta` and the
    weight decay :math:`\lambda`. The factor gives an update the size that it has in AdamW, so both
    take the same rate.

    ``torch.optim.Muon``, of torch 2.9 and later, does the same matrix after matrix, and has no
    AdamW for the rest; here matrices of one shape are a batch.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:  # it may empty the gradients of all groups
            with torch.enable_grad():
                loss = closure()
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group.get("orthogonal")]
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            if group.get("orthogonal"):
                self._step_matrices(group)
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        shapes: dict[Any, list[Tensor]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                    state["step"] = torch.zeros(())  # AdamW looks for it when a state is loaded
                state["momentum"].lerp_(weight.grad, 1 - _MOMENTUM)
                shapes[weight.shape, weight.device].append(weight)
        for (shape, _), weights in shapes.items():
            pairs = [(cast(Tensor, w.grad), self.state[w]["momentum"]) for w in weights]
            ahead = [grad.lerp(momentum, _MOMENTUM) for grad, momentum in pairs]
            updates = orthogonalise(torch.stack(ahead))
            scale = -0.2 * group["lr"] * max(shape) ** 0.5
            for weight, update in zip(weights, updates, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=scale)


def orthogonalise(matrices: Tensor) -> Tensor:
    r"""Bring the singular values of matrices ``[k, r, c]`` near 1, between about 0.7 and 1.2.

    Each of five rounds replaces a singular value s by :math:`3.4445 s - 4.775 s^3 + 2.0315 s^5`;
    before the first, each matrix is divided by its Frobenius norm. On a GPU it is computed in
    bfloat16.
    """
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    if x.is_cuda:
        x = x.bfloat16()
    first, third, fifth = _POLYNOMIAL
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        both = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        x = torch.baddbmm(x, both, x, beta=first)
    x = x.to(matrices.dtype)
    return x.mT if wide is not matrices else x


def make_optimizer(
    model: torch.nn.Module, name: str, *, lr: float, weight_decay: float, fused: bool | None = None
) -> torch.optim.Optimizer:
    """Make AdamW (``"adamw"``), or Muon for the linear layers of the blocks (``"muon"``)."""
    decaying, others = parameter_groups(model, weight_decay)
    if name == "adamw":
        return torch.optim.AdamW([decaying, others], lr=lr, fused=fused)
    hidden = {id(p) for path, p in model.named_parameters() if "blocks." in f".{path}"}
    inside = [p for p in decaying["params"] if id(p) in hidden]
    outside = [p for p in decaying["params"] if id(p) not in hidden]
    groups = [decaying | {"params": outside}, others]
    groups.append(decaying | {"params": inside, "orthogonal": True})
    return Muon([group for group in groups if group["params"]], lr=lr, fused=fused)


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the parameters into those with weight decay and those without, for an optimizer.

    Only the matrices of linear layers decay; norms, biases and embedding tables do not. A small
    entry of a table means that an atom is rare, not that it is unimportant.
    """
    linear = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    matrices = {id(module.weight) for module in linear}
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if id(p) in matrices], "weight_decay": weight_decay},
        {"params": [p for p in trained if id(p) not in matrices], "weight_decay": 0.0},
    ]


def warmup_and_decay(
    lr: float, warmup_steps: int, total_steps: int, end_lr: float = 0.0
) -> Callable[[int], float]:
    """The learning rate of each update as a multiple of ``lr``; the schedule of Graphormer.

    Update ``t`` (from 0) has ``lr (t + 1) / warmup_steps`` as long as that is not above ``lr``;
    then the rate falls to ``end_lr``, which update ``total_steps - 1`` and later ones have.

    Example:
        >>> factor = warmup_and_decay(lr=1.0, warmup_steps=2, total_steps=5)
        >>> [round(factor(step), 3) for step in range(5)]
        [0.5, 1.0, 0.667, 0.333, 0.0]
    """

    def factor(step: int) -> float:
        number = step + 1
        if number <= warmup_steps:
            return number / warmup_steps
        left = max(0, total_steps - number) / max(1, total_steps - max(1, warmup_steps))
        return min(1.0, left) * (1 - end_lr / lr) + end_lr / lr

    return factor
