"""The learning rate: up in a straight line, then down in a straight line."""

from collections.abc import Callable


def warmup_and_decay(
    lr: float, warmup_steps: int, total_steps: int, end_lr: float = 0.0
) -> Callable[[int], float]:
    """The learning rate of each update, as a multiple of ``lr``; the schedule of Graphormer.

    Update ``t`` (the first is 0) has ``lr (t + 1) / warmup_steps`` as long as that is not above
    ``lr``; then it falls to ``end_lr``, which update ``total_steps - 1`` and later ones have.

    Example:
        >>> factor = warmup_and_decay(lr=1.0, warmup_steps=2, total_steps=5)
        >>> [round(factor(step), 3) for step in range(5)]
        [0.5, 1.0, 0.667, 0.333, 0.0]
    """
    if lr <= 0:
        raise ValueError(f"warmup_and_decay: lr = {lr}, expected more than 0")

    def factor(step: int) -> float:
        number = step + 1
        if number <= warmup_steps:
            return number / warmup_steps
        left = max(0, total_steps - number) / max(1, total_steps - max(1, warmup_steps))
        return min(1.0, left) * (1 - end_lr / lr) + end_lr / lr

    return factor
