"""Mixers: attention and its replacements, by which the rows of a set exchange information."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from slicegraph.nn.bias import PairBias
from slicegraph.nn.packed import gather_rows
from slicegraph.nn.readout import SliceSortAggregation
from slicegraph.nn.slice_sort import Layer, Order
from slicegraph.ops.layout import can_read, on_cpu, set_of_row
from slicegraph.ops.operator import is_transformed, may_hook_saved
from slicegraph.ops.slice_attention import KERNELS, attend_sets


def recomputed(function: Callable[[Tensor], Tensor], x: Tensor, is_random: bool = False) -> Tensor:
    """Returns ``function(x)``, and computes it again, by the same random numbers if ``is_random``,
    in the backward pass instead of keeping its tensors."""
    if not torch.is_grad_enabled() or is_transformed():
        return function(x)
    return checkpoint(function, x, use_reentrant=False, preserve_rng_state=is_random)


def linear_of(
    function: Callable[[Tensor], Tensor], x: Tensor, linear: Callable[[Tensor], Tensor]
) -> Tensor:
    """Returns ``linear(function(x))``, and calls the function again in the backward pass instead of
    keeping its output, on a CPU: for a norm or an activation, which keeps ``x`` anyway and costs
    little. A batch norm is not called again, since it would update its running means twice."""
    y = function(x)
    once = isinstance(function, torch.nn.BatchNorm1d) or not can_read(x)
    if once or not y.numel() or not y.requires_grad or not may_hook_saved(x):  # empty: no address
        return linear(y)
    address = y.data_ptr()

    def pack(kept: Tensor) -> Tensor | None:
        return None if kept.data_ptr() == address else kept.detach()

    def unpack(kept: Tensor | None) -> Tensor:
        with torch.no_grad():
            return function(x) if kept is None else kept

    with saved_tensors_hooks(pack, unpack):
        return linear(y)


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
        self.log_tau = torch.nn.Parameter(torch.empty(slices)) if KERNELS[kernel] else None
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
        sets = {"lengths": lengths, "ptr": ptr}
        return attend_sets(queries, keys, values, tau=tau, kernel=self.kernel, **sets)

    def extra_repr(self) -> str:
        return f"{self.slices}, kernel={self.kernel}"


class QuantileContext(Layer):
    r"""Broadcasts learned quantiles of the sorted channels to every row.

    .. math:: y_{ic} = x_{ic} + \sum_{j=0}^{k-1} w_{jc} \, Q_{j/(k-1)}(x_{1c}, \ldots, x_{nc})

    Every channel is sorted, read at :math:`k` quantiles, and weighted by its own :math:`k`
    parameters, in :math:`O(n \log n)`. All rows receive the same sum, so the module is
    permutation-equivariant, with ties too.

    Shapes:
        x and output: ``[T, channels]``, packed sets with ``ptr`` ``[B + 1]``; or
        ``[B, N, channels]``, dense sets with ``lengths`` ``[B]``.

    Example:
        >>> context = QuantileContext(1, quantiles=3)
        >>> _ = torch.nn.init.constant_(context.weight, 10.0)
        >>> context(torch.tensor([[3.0], [1.0], [2.0], [5.0]]), torch.tensor([0, 3, 4])).T
        tensor([[ 63.,  61.,  62., 155.]], grad_fn=<PermuteBackward0>)
    """

    def __init__(self, channels: int, quantiles: int = 5) -> None:
        super().__init__()
        self.read = SliceSortAggregation(quantiles)
        self.weight = torch.nn.Parameter(torch.empty(quantiles, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        torch.nn.init.normal_(self.weight, std=0.1)

    def forward(
        self, x: Tensor, ptr: Tensor | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """Adds the weighted quantiles of each set to its rows.

        Args:
            x: ``[T, channels]``, packed sets, or ``[B, N, channels]``, dense ones.
            ptr: ``[B + 1]``, the rows of each packed set.
            lengths: ``[B]``, the rows of each dense set; all are real if None.
        """
        if ptr is None:
            return x + self._weighted(self.read.of_dense(x, lengths)).unsqueeze(1)
        context = self._weighted(self.read(x, ptr=ptr, dim=0).unflatten(1, self.weight.shape))
        return x + context.index_select(0, set_of_row(ptr, x.shape[0]))

    def _weighted(self, quantiles: Tensor) -> Tensor:
        with torch.autocast(quantiles.device.type, enabled=False):  # it would sum in float32
            return (quantiles * self.weight.to(quantiles.dtype)).sum(1)


class Sizes(NamedTuple):
    """Which rows are a set: ``ptr`` of packed rows ``[T, C]``, ``lengths`` of dense ones."""

    ptr: Tensor | None = None
    lengths: Tensor | None = None


class MixerKind(NamedTuple):
    """One mixer: what it takes, and its function, which maps the layer, its projected rows (values;
    or queries, keys and values concatenated; or the keys of slices and values), their
    :class:`Sizes` and the pairs to mixed rows."""

    function: Callable[..., Tensor]
    needs_pairs: bool = True  # a bias for each pair of rows
    needs_order: bool = False  # it sorts by `order` and `align`; the others are equivariant
    needs_queries: bool = False
    needs_context: bool = False  # it reads quantiles
    needs_slices: bool = False  # it attends along slices

    @property
    def needs_softmax(self) -> bool:
        """Whether it contains the softmax of the bias alone, which all layers share."""
        return self.needs_pairs and not self.needs_queries


MIXERS = {
    "quantile_attn": MixerKind(
        lambda m, v, sizes, pairs: m.quantiles_of_mixed(v, sizes, pairs), needs_context=True
    ),
    "quantile": MixerKind(
        lambda m, v, sizes, pairs: m.context(v, *sizes), needs_pairs=False, needs_context=True
    ),
    "sort_attn": MixerKind(
        lambda m, v, sizes, pairs: m.sort_mixed(v, sizes, pairs), needs_order=True
    ),
    "attn_plus_sort": MixerKind(
        lambda m, v, sizes, pairs: pairs.mix(v, m.active_dropout) + m.sort(v, sizes),
        needs_order=True,
    ),
    "slice_attn": MixerKind(
        lambda m, kv, sizes, pairs: m.slice(kv, sizes, lambda v: pairs.mix(v, m.active_dropout)),
        needs_slices=True,
    ),
    "sort": MixerKind(
        lambda m, v, sizes, pairs: m.sort(v, sizes), needs_pairs=False, needs_order=True
    ),
    "slice": MixerKind(
        lambda m, kv, sizes, pairs: m.slice(kv, sizes), needs_pairs=False, needs_slices=True
    ),
    "attn": MixerKind(lambda m, v, sizes, pairs: pairs.mix(v, m.active_dropout)),
    "qkv": MixerKind(
        lambda m, qkv, sizes, pairs: pairs.attend(qkv, m.active_dropout), needs_queries=True
    ),
}
ENCODER_MIXERS = MIXERS | {  # those of a graph encoder, which may have a local branch alone
    "none": MixerKind(lambda m, v, sizes, pairs: v.new_zeros(()), needs_pairs=False)
}
SEQUENCE_MIXERS = {name: MIXERS[name] for name in ("sort", "slice", "qkv")}  # they need no graph


class Align(NamedTuple):
    """How sorted values are assigned to the rows of a set."""

    function: Callable[..., Tensor]
    fuses: bool  # the kernel that mixes and sorts assigns them in this way


ALIGNS = {
    "rows": Align(lambda order, x, sizes: order(x, sizes.lengths, sizes.ptr), fuses=True),
    "pivot": Align(lambda order, x, sizes: order.pivoted(x, *sizes), fuses=False),
}


def _linear(in_channels: int, out_channels: int, bias: bool) -> torch.nn.Linear:
    """Makes a projection; an input size of -1 is read off the first input."""
    if in_channels == -1:
        return torch.nn.LazyLinear(out_channels, bias)
    return torch.nn.Linear(in_channels, out_channels, bias)


class Mixer(Layer):
    r"""Attention, or one of its replacements of the `Sliceformer
    <https://arxiv.org/abs/2310.17683>`_ paper, between a value and an output projection.

    With :math:`V = X W_V` and the pair bias :math:`B = S + E` of a graph,
    :math:`Y = M W_O` with

    .. math::
        M = \begin{cases}
        \mathrm{Q}(\mathrm{softmax}(B) V) & \text{quantile\_attn, ours} \\
        \mathrm{Q}(V) & \text{quantile, ours} \\
        \mathrm{Sort}(\mathrm{softmax}(B) V) & \text{sort\_attn, the paper's text} \\
        \mathrm{softmax}(B) V + \mathrm{Sort}(V) & \text{attn\_plus\_sort, its released code} \\
        \mathrm{Slice}(K, \mathrm{softmax}(B) V) & \text{slice\_attn, ours} \\
        \mathrm{Sort}(V) & \text{sort} \\
        \mathrm{Slice}(K, V) & \text{slice, ours} \\
        \mathrm{softmax}(B) V & \text{attn} \\
        \mathrm{softmax}(Q K^T / \sqrt{D} + B) V & \text{qkv, Graphormer}
        \end{cases}

    where :math:`\mathrm{Q}` is a :class:`~slicegraph.nn.QuantileContext` and
    :math:`\mathrm{Slice}` a :class:`~slicegraph.nn.SliceKernel` with a key :math:`K` for
    each row and head.

    Args:
        channels: the size of each row; -1 to read it off the first input.
        heads: the number of heads, which divides ``hidden_channels``.
        mixer: the name of the formula, one of :obj:`MIXERS`.
        order: how Sort orders each channel, see :class:`~slicegraph.nn.Order`.
        align: ``"rows"``: the j-th value of every channel lands in the j-th row of the set, so the
            output depends on the order of the nodes. ``"pivot"``: it lands at the node that
            ranks j-th in channel 0, see :meth:`slicegraph.nn.Order.pivoted`.
        layer, num_layers: the number of this layer, from 1, and of all; for ``"interleave"``.
        bias: whether the projections have a bias.
        qkv_bias: whether the projections of queries, keys and values have one; ``bias`` if None.
        dropout: the probability with which a weight of the softmax is dropped in training.
        quantiles: how many quantiles of a sorted channel ``"quantile_attn"`` reads.
        hidden_channels: the size of the projected rows, ``out_channels`` if None.
        out_channels: the size of each row of the output, ``channels`` if None.

    Shapes:
        - **x**: ``[T, channels]``, packed sets with **ptr** ``[B + 1]``; or ``[B, N, channels]``,
          dense sets with **lengths** ``[B]``, whose other rows may come out as any numbers.
        - **pairs**: a :class:`~slicegraph.nn.PairBias`, which every mixer but ``"sort"``
          and ``"slice"`` needs.
        - **norm**: a norm to apply to ``x`` first.
        - **rows**: the rows of the output to compute, each at most once; all if None. Dense rows
          are numbered one set after the other.
        - **recompute**: whether the backward pass recomputes :math:`M` instead of keeping it, on a
          CPU; ``"qkv"`` always keeps it. The output of the norm is never kept there.
        - **output**: like ``x`` with ``out_channels``, or ``[rows, out_channels]``.

    Example:
        >>> Mixer(16, mixer="sort")(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    kinds = MIXERS

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        mixer: str = "sort_attn",
        order: str = "ascending",
        *,
        align: str = "rows",
        layer: int = 1,
        num_layers: int = 1,
        bias: bool = True,
        qkv_bias: bool | None = None,
        dropout: float = 0.0,
        quantiles: int = 5,
        hidden_channels: int | None = None,
        out_channels: int | None = None,
    ) -> None:
        super().__init__()
        self._check_choice("mixer", mixer, self.kinds)
        self._check_choice("align", align, ALIGNS)
        out_channels = out_channels or channels
        hidden = hidden_channels or out_channels
        if heads < 1 or hidden % heads:
            name = type(self).__name__
            size = "channels" if hidden_channels is None else "hidden_channels"
            raise ValueError(f"{name}: heads = {heads} does not divide {size} = {hidden}")
        self.channels, self.hidden_channels, self.heads = channels, hidden, heads
        self.mixer, self.align, self.dropout = mixer, align, dropout
        kind, inner = self.kind, (channels, hidden, bias if qkv_bias is None else qkv_bias)
        self.value_proj = _linear(*inner)
        self.out_proj = torch.nn.Linear(hidden, out_channels, bias)
        self.query_proj = _linear(*inner) if kind.needs_queries else None
        self.key_proj = _linear(*inner) if kind.needs_queries else None
        self.slice_proj = _linear(channels, heads, False) if kind.needs_slices else None
        self.slices = SliceKernel(heads) if kind.needs_slices else None
        self.context = QuantileContext(hidden, quantiles) if kind.needs_context else None
        self.order = Order(order, hidden, layer, num_layers) if kind.needs_order else None

    @property
    def kind(self) -> MixerKind:
        """The entry of the table."""
        return self.kinds[self.mixer]

    @property
    def active_dropout(self) -> float:
        """The dropout probability, 0 in evaluation mode."""
        return self.dropout if self.training else 0.0

    def sort(self, values: Tensor, sizes: Sizes) -> Tensor:
        """Orders the channels of each set."""
        return ALIGNS[self.align].function(self.order, values, sizes)

    def sort_mixed(self, values: Tensor, sizes: Sizes, pairs: PairBias) -> Tensor:
        """Orders the channels of each set after its rows were mixed, in one kernel if there is."""
        order, p = self.order, self.active_dropout
        assert order is not None
        if pairs.fuses(values) and ALIGNS[self.align].fuses and not order.exchanges:
            return pairs.mix(values, p, sort=True, descending=order.descending)
        return self.sort(pairs.mix(values, p), sizes)

    def quantiles_of_mixed(self, values: Tensor, sizes: Sizes, pairs: PairBias) -> Tensor:
        """Adds weighted quantiles to the mixed rows, in one kernel if there is."""
        assert self.context is not None
        if pairs.fuses(values):
            return pairs.mix(values, self.active_dropout, weight=self.context.weight)
        return self.context(pairs.mix(values, self.active_dropout), *sizes)

    def slice(
        self, keys_and_values: Tensor, sizes: Sizes, mix: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Attends along the slices of each set, to values that ``mix`` has mixed."""
        assert self.slices is not None
        keys, values = keys_and_values.split([self.heads, self.hidden_channels], -1)
        return self.slices(keys, values if mix is None else mix(values), **sizes._asdict())

    def forward(
        self,
        x: Tensor,
        ptr: Tensor | None = None,
        pairs: PairBias | None = None,
        norm: Callable[[Tensor], Tensor] | None = None,
        *,
        lengths: Tensor | None = None,
        rows: Tensor | None = None,
        recompute: bool = False,
    ) -> Tensor:
        """Mixes the rows of each set.

        Args:
            x: ``[T, channels]``, packed sets, or ``[B, N, channels]``, dense ones.
            ptr: ``[B + 1]``, the rows of each packed set.
            pairs: the bias of the pairs, for the mixers that need it.
            norm: a norm to apply to ``x`` first.
            lengths: ``[B]``, the rows of each dense set; all are real if None.
            rows: the rows of the output to compute, each at most once; all if None.
            recompute: whether the backward pass recomputes the norm and :math:`M`.
        """
        if self.kind.needs_pairs and pairs is None:
            raise ValueError(f"Mixer: mixer = {self.mixer!r} needs pairs, the bias of the graph")

        def project(x: Tensor) -> Tensor:
            if self.slice_proj is not None:
                return torch.cat([along_slices(self.slice_proj, x), self.value_proj(x)], -1)
            if self.query_proj is None or self.key_proj is None:
                return self.value_proj(x)
            layers = (self.query_proj, self.key_proj, self.value_proj)
            weight = torch.cat([layer.weight for layer in layers])
            biases = tuple(layer.bias for layer in layers if layer.bias is not None)
            return functional.linear(x, weight, torch.cat(biases) if biases else None)

        def mix(projected: Tensor) -> Tensor:
            mixed = self.kind.function(self, projected, Sizes(ptr, lengths), pairs)
            mixed = mixed if rows is None else gather_rows(mixed.flatten(0, -2), rows)
            return self.out_proj(mixed)

        projected = project(x) if norm is None else linear_of(norm, x, project)
        if recompute and on_cpu(x) and not self.kind.needs_queries:
            return recomputed(mix, projected, self.active_dropout > 0)
        return mix(projected)

    def extra_repr(self) -> str:
        align = f", align={self.align}" if self.order is not None else ""
        return f"{self.mixer}, {self.channels}, heads={self.heads}{align}"


class NoMixer(Layer):
    """Stands in for a :class:`~slicegraph.nn.Mixer` where rows exchange information along edges
    alone: it adds nothing."""

    active_dropout = 0.0

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        """Returns a zero.

        Args:
            x: the rows, of any shape.
        """
        return x.new_zeros(())


class SequenceMixer(Mixer):
    """A :class:`~slicegraph.nn.Mixer` for rows without a graph: ``"sort"``; ``"slice"`` with a key
    for each head, or for each channel if there are as many heads; or ``"qkv"``, which needs a
    :class:`~slicegraph.nn.SetAttention` as its pairs.

    Example:
        >>> mixer = SequenceMixer(16, hidden_channels=64, order="interleave")
        >>> mixer(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    kinds = SEQUENCE_MIXERS

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        mixer: str = "sort",
        order: str = "ascending",
        **options: Any,
    ) -> None:
        super().__init__(channels, heads, mixer, order, **options)
