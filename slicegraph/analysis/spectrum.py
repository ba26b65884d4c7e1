"""How many directions the rows of a set have: singular values and effective rank."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.padded_sets import PaddedSets


def singular_values(rows: Tensor, ptr: Tensor) -> Tensor:
    r"""The singular values :math:`\sigma_1 \ge \sigma_2 \ge \ldots` of every set's matrix of rows.

    Args:
        rows: packed sets.
        ptr: set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]``.

    Shapes:
        - rows: ``[T, C]``, ptr: ``[B + 1]``.
        - output: ``[B, min(N, C)]`` for the largest set's ``N``; zeros after those of a smaller.

    Example:
        >>> rows = torch.tensor([[3.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
        >>> singular_values(rows, torch.tensor([0, 2, 3]))
        tensor([[3., 2.],
                [5., 0.]])
    """
    # Rows of zeros do not change the singular values of a matrix.
    return torch.linalg.svdvals(PaddedSets(ptr).pad(rows.float()))


def one_below_another(parts: Sequence[Tensor]) -> Tensor:
    """``[B, K]``: the singular values of all parts ``[b, k]``, zeros after those of a shorter."""
    most = max(part.shape[1] for part in parts)
    return torch.cat([functional.pad(part, (0, most - part.shape[1])) for part in parts])


def relative_spectrum(values: Tensor) -> Tensor:
    r"""``[K]``: :math:`\sigma_k / \sigma_1`, the mean over the sets of ``[B, K]``."""
    return (values / _not_zero(values[:, :1])).mean(0)


def effective_rank(values: Tensor) -> Tensor:
    r"""How many equal singular values would be spread as much, after `Roy and Vetterli
    <https://ieeexplore.ieee.org/document/7098875>`_.

    .. math:: \exp\Big(-\sum_k p_k \log p_k\Big), \quad p_k = \sigma_k / \sum_j \sigma_j

    It is :math:`n` for the identity of that size, 1 for a matrix of rank one, 0 for zeros.

    Shapes:
        values: ``[..., K]`` singular values; output: ``[...]``.

    Example:
        >>> effective_rank(torch.tensor([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]]))
        tensor([3., 1.])
    """
    total = values.sum(-1, keepdim=True)
    rank = torch.special.entr(values / _not_zero(total)).sum(-1).exp()
    return torch.where(total.squeeze(-1) > 0, rank, 0)


def first_share(values: Tensor) -> Tensor:
    r""":math:`\sigma_1^2 / \sum_k \sigma_k^2`: 1 if all rows point in one direction.

    Shapes:
        values: ``[..., K]`` singular values; output: ``[...]``.
    """
    squares = values.square()
    return squares[..., 0] / _not_zero(squares.sum(-1))


def _not_zero(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 1)
