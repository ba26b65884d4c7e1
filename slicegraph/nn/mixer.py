"""The ways in which the rows of a set exchange what they know."""

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.lean_linear import norm_linear, side_by_side
from slicegraph.nn.order import Order
from slicegraph.nn.padded_sets import collect_rows
from slicegraph.nn.pair_bias import PairBias
from slicegraph.nn.pivot import pivot_order
from slicegraph.nn.quantile_context import QuantileContext
from slicegraph.nn.recomputed import recomputed

MIXERS = ("quantile_attn", "sort_attn", "attn_plus_sort", "sort", "attn", "qkv")
ALIGNS = ("rows", "pivot")


class Mixer(torch.nn.Module):
    r"""Attention, and what the `Sliceformer <https://arxiv.org/abs/2310.17683>`_ paper puts in its
    place, between a value projection and an output projection.

    With :math:`V = X W_V` and the pair bias :math:`B = S + E` of a graph,
    :math:`Y = M W_O` with

    .. math::
        M = \begin{cases}
        \mathrm{Q}(\mathrm{softmax}(B) V) & \text{quantile\_attn, ours} \\
        \mathrm{Sort}(\mathrm{softmax}(B) V) & \text{sort\_attn, the paper's text} \\
        \mathrm{softmax}(B) V + \mathrm{Sort}(V) & \text{attn\_plus\_sort, its released code} \\
        \mathrm{Sort}(V) & \text{sort} \\
        \mathrm{softmax}(B) V & \text{attn} \\
        \mathrm{softmax}(Q K^T / \sqrt{D} + B) V & \text{qkv, Graphormer}
        \end{cases}

    where :math:`Q` adds a mixture of the sorted channels to every row, see
    :class:`~slicegraph.nn.QuantileContext`.

    Args:
        channels: the size of each row.
        heads: the number of heads, which divides ``channels``.
        mixer: the name of the formula.
        order: how Sort orders each channel, see :class:`~slicegraph.nn.Order`.
        align: ``"rows"``: the j-th value of every channel lands in the j-th row of the set, so the
            output depends on the order of the nodes. ``"pivot"``: it lands at the node that
            ranks j-th in channel 0, see :func:`~slicegraph.nn.pivot.pivot_order`.
        layer, num_layers: the number of this layer, from 1, and of all; for ``"interleave"``.
        bias: whether the projections have a bias.
        dropout: the probability with which a weight of the softmax is dropped in training.
        quantiles: how many quantiles of a sorted channel ``"quantile_attn"`` reads.

    Shapes:
        - **x**: ``[T, channels]``, packed sets.
        - **ptr**: ``[B + 1]``.
        - **pairs**: a :class:`~slicegraph.nn.PairBias`, which every mixer but ``"sort"`` needs.
        - **norm**: a norm of ``x`` to begin with.
        - **recompute**: whether to compute :math:`M` once more in the backward pass instead of
          keeping it; ``"qkv"`` always keeps it.
        - **rows**: the rows of the output to compute, each at most once; all if not given.
        - **output**: ``[T, channels]``, or ``[rows, channels]``.

    Example:
        >>> Mixer(16, mixer="sort")(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        mixer: str = "sort_attn",
        order: str = "ascending",
        align: str = "rows",
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        quantiles: int = 5,
    ) -> None:
        super().__init__()
        _check(channels, heads, mixer, align)
        self.channels, self.heads, self.mixer, self.align = channels, heads, mixer, align
        self.dropout = dropout
        self.value_proj = torch.nn.Linear(channels, channels, bias)
        self.out_proj = torch.nn.Linear(channels, channels, bias)
        qkv = mixer == "qkv"
        self.query_proj = torch.nn.Linear(channels, channels, bias) if qkv else None
        self.key_proj = torch.nn.Linear(channels, channels, bias) if qkv else None
        self.context = QuantileContext(channels, quantiles) if mixer == "quantile_attn" else None
        self.order = Order(order, channels, layer, num_layers) if "sort" in mixer else None

    @property
    def needs_pairs(self) -> bool:
        """Whether there is a bias for each pair of rows in the formula."""
        return self.mixer != "sort"

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        ptr: Tensor,
        pairs: PairBias | None = None,
        norm: torch.nn.LayerNorm | None = None,
        recompute: bool = False,
        rows: Tensor | None = None,
    ) -> Tensor:
        def run(projected: Tensor) -> Tensor:
            mixed = self._mix(projected, ptr, pairs)
            return self.out_proj(mixed if rows is None else collect_rows(mixed, rows))

        projected = self._project(x, norm)
        if recompute and self.mixer != "qkv":
            return recomputed(run, projected, self.is_random)
        return run(projected)

    def _project(self, x: Tensor, norm: torch.nn.LayerNorm | None) -> Tensor:
        """The values, or queries, keys and values side by side."""
        layers = [self.value_proj]
        if self.query_proj is not None and self.key_proj is not None:
            layers = [self.query_proj, self.key_proj, self.value_proj]
        if norm is not None:
            return norm_linear(x, norm, *layers)
        return functional.linear(x, *side_by_side(layers))

    @property
    def is_random(self) -> bool:
        """Whether it gives something else each time."""
        return self.training and self.dropout > 0

    def _mix(self, values: Tensor, ptr: Tensor, pairs: PairBias | None) -> Tensor:
        if not self.needs_pairs:
            return self._sort(values, ptr)
        if pairs is None:
            raise ValueError(f"Mixer: mixer = {self.mixer!r} needs pairs, the bias of the graph")
        dropout = self.dropout if self.training else 0.0
        if self.mixer == "qkv":
            return pairs.attend(values, dropout)
        mixed = pairs.mix(values, dropout)
        if self.context is not None:
            return self.context(mixed, ptr)
        if self.mixer == "attn":
            return mixed
        if self.mixer == "sort_attn":
            return self._sort(mixed, ptr)
        return mixed + self._sort(values, ptr)

    def _sort(self, values: Tensor, ptr: Tensor) -> Tensor:
        assert self.order is not None
        if self.align == "pivot":
            return pivot_order(self.order, values, ptr)
        return self.order(values, ptr=ptr)

    def extra_repr(self) -> str:
        align = f", align={self.align}" if self.order is not None else ""
        return f"{self.mixer}, {self.channels}, heads={self.heads}{align}"


def _check(channels: int, heads: int, mixer: str, align: str) -> None:
    if mixer not in MIXERS:
        raise ValueError(f"Mixer: unknown mixer {mixer!r}, expected one of {', '.join(MIXERS)}")
    if align not in ALIGNS:
        raise ValueError(f"Mixer: unknown align {align!r}, expected one of {', '.join(ALIGNS)}")
    if heads < 1 or channels % heads:
        raise ValueError(f"Mixer: heads = {heads} does not divide channels = {channels}")
