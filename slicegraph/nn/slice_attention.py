"""Attention along learned slices, for sequences, sets and feature maps."""

import math
from typing import Any

import torch
from torch import Tensor

from slicegraph.nn.slice_sort import Layer, SliceSort, SliceSort2d
from slicegraph.ops.slice_attention import KERNELS, attend_sets


def along_slices(linear: torch.nn.Linear, x: Tensor) -> Tensor:
    r"""Projects rows onto the unit directions of a linear layer: :math:`x W^T / |w_h|`.

    The spread of the result is that of the rows, however the layer is initialised.
    """
    length = linear.weight.norm(dim=1)
    projected = linear(x)
    return projected / length.clamp(min=torch.finfo(length.dtype).tiny).to(projected.dtype)


class SliceKernel(Layer):
    r"""Averages the rows of a set by the distances between their keys, with a learned width
    :math:`\tau_h` for each slice :math:`h`.

    .. math:: y_{ih} = \frac{\sum_j e^{-|q_{ih} - k_{jh}| / \tau_h} \, v_{jh}}
        {\sum_j e^{-|q_{ih} - k_{jh}| / \tau_h}}

    see :func:`slicegraph.ops.slice_attention`. The parameter is :math:`\log \tau`.

    Args:
        slices: the number of slices, each with one key a row.
        tau: the initial width. Keys by :func:`along_slices`, of rows whose channels have a variance
            of 1, have a standard deviation of 1.
        kernel: ``"laplace"``, the formula above, or ``"relu"``, which has no width.

    Shapes:
        - **keys**, **queries**: ``[..., N, slices]``, or ``[T, slices]``, packed with **ptr**.
        - **values** and **output**: ``[..., N, C]`` or ``[T, C]``, a multiple of ``slices``.
        - **lengths**, **ptr**: the sizes of the sets, as in :func:`slicegraph.ops.slice_attention`;
          they are not checked.

    Example:
        >>> SliceKernel(2)(torch.randn(5, 2), torch.randn(5, 8), ptr=torch.tensor([0, 2, 5])).shape
        torch.Size([5, 8])
    """

    def __init__(self, slices: int, tau: float = 0.5, kernel: str = "laplace") -> None:
        super().__init__()
        self._check_choice("kernel", kernel, KERNELS)
        if not tau > 0:
            raise ValueError(f"SliceKernel: tau = {tau}, expected a positive number")
        self.slices, self.initial_tau, self.kernel = slices, tau, kernel
        has_width = kernel == "laplace"
        self.log_tau = torch.nn.Parameter(torch.empty(slices)) if has_width else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        if self.log_tau is not None:
            torch.nn.init.constant_(self.log_tau, math.log(self.initial_tau))

    def forward(
        self,
        keys: Tensor,
        values: Tensor,
        queries: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        ptr: Tensor | None = None,
    ) -> Tensor:
        """Averages the values of each set.

        Args:
            keys: ``[..., N, slices]`` or ``[T, slices]``.
            values: ``[..., N, C]`` or ``[T, C]``.
            queries: like ``keys``; the keys if None.
            lengths, ptr: the sizes of the sets.
        """
        accumulator = torch.promote_types(values.dtype, torch.float32)
        if self.log_tau is None:
            tau = torch.ones(self.slices, dtype=accumulator, device=values.device)
        else:
            tau = self.log_tau.to(accumulator).exp()
        queries = keys if queries is None else queries
        return attend_sets(queries, keys, values, lengths, ptr, tau, self.kernel)

    def extra_repr(self) -> str:
        return f"{self.slices}, kernel={self.kernel}"


class SliceAttention(SliceSort):
    r"""Attention along learned slices: a :class:`~slicegraph.nn.SliceSort` whose sort is smooth.

    .. math:: Y = \mathrm{SliceKernel}(X \bar W_Q, X \bar W_K, X W_V) \, W_O

    with one scalar query and key for each row and slice, along directions :math:`\bar w = w / |w|`
    of length 1, and a learned width :math:`\tau` for each slice: :math:`\tau \to 0` leaves every
    row alone, :math:`\tau \to \infty` averages all rows. It takes :math:`O(N \log N)` time and
    :math:`O(N)` memory, is permutation-equivariant, and does not depend on padding or on the other
    sets of the batch.

    Args:
        in_channels: the size of each input row.
        out_channels: the size of each output row, and of the projected values; ``in_channels`` if
            None.
        slices: the number of slices, which divides ``out_channels``; with ``out_channels`` of them
            every channel has its own key.
        queries: whether the queries have their own projection; otherwise they are the keys.
        tau: the initial width, in units of the spread of the keys of normalised rows.
        kernel: ``"laplace"``, or ``"relu"`` for `Sliced ReLU attention
            <https://arxiv.org/abs/2512.11411>`_, which has no width.
        bias: whether the projections of values and output have a bias.
        out_proj: whether there is an output projection.

    Shapes:
        as in :class:`~slicegraph.nn.SliceSort`.

    Example:
        >>> layer = SliceAttention(16, 32, slices=8)
        >>> x = torch.randn(2, 5, 16)
        >>> mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
        >>> layer(x, mask).shape
        torch.Size([2, 5, 32])
        >>> layer(x[mask], batch=torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])).shape
        torch.Size([8, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        slices: int = 4,
        *,
        queries: bool = False,
        tau: float = 0.5,
        kernel: str = "laplace",
        bias: bool = True,
        out_proj: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, bias=bias, out_proj=out_proj)
        if slices < 1 or self.out_channels % slices:
            raise ValueError(
                f"SliceAttention: slices = {slices} does not divide out_channels = "
                f"{self.out_channels}"
            )
        # The same distance added to all queries and keys changes nothing: keys have no bias.
        self.key_proj = torch.nn.Linear(in_channels, slices, bias=False)
        self.query_proj = torch.nn.Linear(in_channels, slices) if queries else None
        self.kernel = SliceKernel(slices, tau, kernel)

    def mix(self, x: Tensor, lengths: Tensor | None = None, ptr: Tensor | None = None) -> Tensor:
        """Projects and averages the rows of each set."""
        queries = None if self.query_proj is None else along_slices(self.query_proj, x)
        keys, values = along_slices(self.key_proj, x), self.value_proj(x)
        return self.kernel(keys, values, queries, lengths=lengths, ptr=ptr)

    def __repr__(self) -> str:
        name, kernel = type(self).__name__, self.kernel
        queries = ", queries=True" if self.query_proj is not None else ""
        sizes = f"{self.in_channels}, {self.out_channels}, slices={kernel.slices}"
        return f"{name}({sizes}, kernel={kernel.kernel}{queries})"


class SliceAttention2d(SliceSort2d):
    r"""A :class:`~slicegraph.nn.SliceAttention` over the :math:`H \cdot W` positions of a feature
    map.

    Args:
        in_channels: the number of channels of the input.
        out_channels: the number of channels of the output, ``in_channels`` if not given.
        slices: the number of slices, which divides ``out_channels``.
        **options: ``queries``, ``tau``, ``kernel``, ``bias`` and ``out_proj`` of
            :class:`~slicegraph.nn.SliceAttention`.

    Shapes:
        as in :class:`~slicegraph.nn.SliceSort2d`.

    Example:
        >>> SliceAttention2d(16, 32)(torch.randn(2, 16, 8, 8)).shape
        torch.Size([2, 32, 8, 8])
    """

    def __init__(
        self, in_channels: int, out_channels: int | None = None, slices: int = 4, **options: Any
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.positions = SliceAttention(in_channels, out_channels, slices, **options)
