"""Which weights decay: matrices do; norms, biases and look-up tables do not."""

from typing import Any

import torch

_DECAYING = (torch.nn.Linear,)


def parameter_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The parameters of a model in two groups for an optimizer, every one in exactly one.

    Only the matrices of linear layers decay: a small entry of a table says that an atom is rare,
    not that it is unimportant.
    """
    decaying = {id(module.weight) for module in model.modules() if isinstance(module, _DECAYING)}
    groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            groups[id(parameter) in decaying].append(parameter)
    return [
        {"params": groups[True], "weight_decay": weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]
