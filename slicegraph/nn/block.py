"""One layer of an encoder: mixes the rows of each set, passes messages along the edges, which a
mixer does not see, then transforms every row."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.bias import PairBias, product_type
from slicegraph.nn.embedding import FeatureTable, feature_encoder
from slicegraph.nn.mixer import Mixer, linear_of, recomputed
from slicegraph.nn.packed import PaddedSets, gather_rows
from slicegraph.nn.slice_sort import NORMS, Layer, LayerNorm
from slicegraph.ops.layout import on_cpu
from slicegraph.ops.operator import copy_each, is_transformed
from slicegraph.ops.pairs import dropout_add
from slicegraph.ops.paths import edge_sum


@dataclass
class Edges:
    """Edges between rows: ``index [2, E]``, source and target; ``attr [E, F]`` or None.

    ``state`` ``[E, C]`` are vectors that :class:`LocalBranch` adds to those of the features, and
    that :class:`GatedBranch` updates from layer to layer.
    """

    index: Tensor
    attr: Tensor | None
    state: Tensor | None = None


class LocalBranch(Layer):
    r"""One message-passing step: the GINE layer of `"Strategies for Pre-training Graph Neural
    Networks" <https://arxiv.org/abs/1905.12265>`_, with a scale for each channel.

    .. math:: y_i = W_2 \, \mathrm{ReLU} \Big( W_1 \Big( (1 + \epsilon) \odot x_i +
        \sum_{j \to i} \mathrm{ReLU}(x_j + e_{ji}) \Big) \Big)

    Args:
        channels: the size of each row.
        edge_vocabulary: the number of categories of each edge feature, for categorical ones; an
            edge is the sum of their vectors.
        edge_dim: the number of edge features, for floating-point ones, which are projected. With
            neither, :math:`e` is 0.

    Shapes:
        - **x**: ``[T, channels]``.
        - **edges**: an :class:`Edges` between these rows; a row without edges, such as a token,
          receives no message.
        - **rows**: the rows of the output to compute, each at most once; all if not given.
        - **output**: ``[T, channels]``, or ``[rows, channels]``.

    Example:
        >>> branch = LocalBranch(16, edge_vocabulary=[5, 6, 2])
        >>> edges = Edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0, 0, 0]] * 2))
        >>> branch(torch.randn(3, 16), edges).shape
        torch.Size([3, 16])
    """

    keeps_state = False  # the vectors of the edges are those of the features in every layer

    def __init__(
        self,
        channels: int,
        edge_vocabulary: Sequence[int] | None = None,
        edge_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.edge = None
        if edge_vocabulary or edge_dim:
            self.edge = feature_encoder(channels, edge_vocabulary, edge_dim)
        self.epsilon = torch.nn.Parameter(torch.zeros(channels))
        self.inner = torch.nn.Linear(channels, channels)
        self.outer = torch.nn.Linear(channels, channels)

    def reset_parameters(self) -> None:
        """Resets all learnable parameters."""
        torch.nn.init.zeros_(self.epsilon)
        super().reset_parameters()

    def forward(self, x: Tensor, edges: Edges, rows: Tensor | None = None) -> Tensor:
        """Passes messages along the edges.

        Args:
            x: ``[T, channels]``, the rows.
            edges: the edges between them.
            rows: the rows of the output to compute, each at most once; all if None.
        """
        index, attr = edges.index, edges.attr
        # For each edge, `codes` lists the rows of `table` that add up to its vector.
        if self.edge is None:
            table, codes = x.new_empty(0, x.shape[1]), index.new_empty(index.shape[1], 0)
        elif attr is None:
            raise ValueError("LocalBranch: edge_attr is missing, expected edge features")
        elif isinstance(self.edge, FeatureTable):
            table, codes = self.edge.weight, self.edge.places(attr)
        else:
            table = self.edge(attr)
            codes = torch.arange(attr.shape[0], device=x.device).unsqueeze(-1)
        if edges.state is not None:
            more = torch.arange(edges.state.shape[0], device=x.device) + table.shape[0]
            codes = torch.cat([codes, more.unsqueeze(-1)], 1)
            table = torch.cat([table.to(x.dtype), edges.state.to(x.dtype)])
        messages = edge_sum(x, table.to(x.dtype), codes, index)  # autocast may have changed it
        out = torch.addcmul(messages, 1 + self.epsilon, x)
        out = out if rows is None else gather_rows(out, rows)
        return self.outer(functional.relu(self.inner(out)))


class GatedBranch(Layer):
    r"""One message-passing step with a state for every edge: the gated layer of `"Residual Gated
    Graph ConvNets" <https://arxiv.org/abs/1711.07553>`_ (GatedGCN).

    .. math::
        z_{ji} &= A x_i + B x_j + C e_{ji} \\
        y_i &= U x_i + \frac{\sum_{j \to i} \sigma(z_{ji}) \odot V x_j}
            {\sum_{j \to i} \sigma(z_{ji}) + 10^{-6}} \\
        e_{ji} &\leftarrow e_{ji} + \mathrm{ReLU}(\mathrm{norm}(z_{ji}))

    Args:
        channels: the size of each row and of the state of an edge, which begins as the vector of
            its features.
        norm: the norm of the states, ``"layer"`` or ``"batch"``.
        update: whether to update the states; the last layer of an encoder does not.

    Shapes:
        Those of :class:`LocalBranch`, where the ``state`` of ``edges`` is replaced by the new one.

    Example:
        >>> edges = Edges(torch.tensor([[0, 1], [1, 0]]), None, state=torch.randn(2, 16))
        >>> GatedBranch(16)(torch.randn(3, 16), edges).shape
        torch.Size([3, 16])
    """

    keeps_state = True

    def __init__(self, channels: int, norm: str = "layer", update: bool = True) -> None:
        super().__init__()
        self._check_choice("norm", norm, NORMS)
        self.nodes = torch.nn.Linear(channels, 4 * channels)
        self.edge = torch.nn.Linear(channels, channels, bias=False)
        self.edge_norm = NORMS[norm](channels) if update else None

    def forward(self, x: Tensor, edges: Edges, rows: Tensor | None = None) -> Tensor:
        """Passes messages along the edges, and updates their states.

        Args:
            x: ``[T, channels]``, the rows.
            edges: the edges between them, with a state.
            rows: the rows of the output to compute, each at most once; all if None.
        """
        if edges.state is None:
            raise ValueError("GatedBranch: edges.state is missing, expected a vector per edge")
        source, target = edges.index
        own, at_target, sent = self.nodes(x).split([x.shape[1], x.shape[1], 2 * x.shape[1]], 1)
        at_source, values = sent.index_select(0, source).chunk(2, 1)
        z = self.edge(edges.state) + at_target.index_select(0, target) + at_source
        gates = z.sigmoid()
        sums = torch.cat([gates * values, gates], 1)
        sums = sums.new_zeros(x.shape[0], sums.shape[1]).index_add(0, target, sums)
        messages, total = sums.chunk(2, 1)
        if self.edge_norm is not None:
            edges.state = edges.state + functional.relu(self.edge_norm(z))
        out = own + messages / (total + 1e-6)
        return out if rows is None else gather_rows(out, rows)


LOCALS: dict[str, type[LocalBranch] | type[GatedBranch] | None] = {
    "none": None,
    "gine": LocalBranch,
    "gated": GatedBranch,
}


class EncoderBlock(Layer):
    r"""The pre-norm block of Graphormer and of the `Sliceformer
    <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math::
        X' &= X + \mathrm{Mix}(\mathrm{LN}(X)) \\
        Y &= X' + W_2 \, \mathrm{GELU}(W_1 \mathrm{LN}(X'))

    or, with ``post_norm``, the one of the original Transformer:

    .. math::
        X' &= \mathrm{LN}(X + \mathrm{Mix}(X)) \\
        Y &= \mathrm{LN}(X' + W_2 \, \mathrm{GELU}(W_1 X'))

    The output of a local branch on the same input is added to Mix.

    Args:
        mixer: how the rows of a set are mixed.
        ffn_channels: the inner size of the feed-forward part.
        dropout: the dropout probability of both branches.
        post_norm: whether the norms come after the sums.
        recompute: what the backward pass recomputes instead of keeping it; the outputs of norms and
            GELU are never kept: ``"none"``; ``"mix"``, the sort and the pair products, which cost
            little, on a CPU only; ``"all"``, the linear layers too. With ``"sort_attn"`` a block
            keeps 5, 4 or 2 tensors of the size of its input there. The results are the same.
        local: messages along edges, as in `"Recipe for a General, Powerful, Scalable Graph
            Transformer" <https://arxiv.org/abs/2205.12454>`_.
        norm: ``"layer"``, or ``"batch"`` for a batch norm over all rows instead of LN, which keeps
            differences between rows, such as their degree, and cannot be recomputed.

    Shapes:
        - **x**: ``[T, C]``, packed sets with **ptr** ``[B + 1]``, or ``[B, N, C]``, dense ones
          with their layout **sets**; **pairs** as the mixer needs, **edges** as the local branch
          does. Dense rows are numbered one set after the other.
        - **rows**: the rows of the output to compute, each at most once; all if not given.
        - **output**: like ``x``, or ``[rows, C]``.

    Example:
        >>> block = EncoderBlock(Mixer(16, mixer="sort"), ffn_channels=32)
        >>> block(torch.randn(5, 16), torch.tensor([0, 2, 5])).shape
        torch.Size([5, 16])
    """

    def __init__(
        self,
        mixer: Mixer,
        ffn_channels: int,
        dropout: float = 0.0,
        *,
        post_norm: bool = False,
        recompute: str = "none",
        local: LocalBranch | GatedBranch | None = None,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        self._check_choice("recompute", recompute, ("none", "mix", "all"))
        self._check_choice("norm", norm, NORMS)
        if norm == "batch" and recompute != "none":
            raise ValueError(
                f"EncoderBlock: norm = 'batch' with recompute = {recompute!r}: its running means "
                "would be updated twice; use recompute = 'none'"
            )
        self.dropout, self.post_norm, self.recompute = dropout, post_norm, recompute
        self.mixer_norm = NORMS[norm](mixer.channels)
        self.mixer = mixer
        self.local = local
        self.ffn_norm = NORMS[norm](mixer.channels)
        self.ffn_in = torch.nn.Linear(mixer.channels, ffn_channels)
        self.ffn_out = torch.nn.Linear(ffn_channels, mixer.channels)

    def forward(
        self,
        x: Tensor,
        ptr: Tensor | None = None,
        pairs: PairBias | None = None,
        rows: Tensor | None = None,
        edges: Edges | None = None,
        sets: PaddedSets | None = None,
    ) -> Tensor:
        """Transforms the rows of each set.

        Args:
            x: ``[T, C]``, packed sets, or ``[B, N, C]``, dense ones.
            ptr: ``[B + 1]``, the rows of each packed set.
            pairs: the bias of the pairs, for the mixers that need it.
            rows: the rows of the output to compute, each at most once; all if None.
            edges: the edges between the rows, which a local branch needs.
            sets: the layout of dense sets.
        """
        if self.local is not None and edges is None:
            raise ValueError("EncoderBlock: a block with a local branch needs edges")

        mixer_norm, ffn_norm = real_rows(self.mixer_norm, sets), real_rows(self.ffn_norm, sets)
        norm = None if self.post_norm else mixer_norm
        lengths = None if sets is None else sets.lengths
        options: Any = {"ptr": ptr, "lengths": lengths, "pairs": pairs, "rows": rows}
        options["recompute"] = self.recompute == "mix"

        def mix(x: Tensor) -> Tensor:
            if self.local is None or edges is None:
                return self.mixer(x, norm=norm, **options)
            x = x if norm is None else norm(x)
            return self.mixer(x, **options) + self._pass_messages(x, edges, rows)

        is_random = self.mixer.active_dropout > 0
        if self.local is None or edges is None or not self.local.keeps_state:
            mixed = self._run(mix, x, is_random)
        else:  # it updates the edges, which must happen once
            read = x if norm is None else norm(x)
            mixed = self._run(partial(self.mixer, **options), read, is_random)
            mixed = mixed + self._pass_messages(read, edges, rows)
        x = x if rows is None else gather_rows(x.flatten(0, -2), rows)
        if self._joins(mixed, x):
            x, read = self.ffn_norm(x, mixed, self._active_dropout)
            return self._add(linear_of(functional.gelu, self.ffn_in(read), self.ffn_out), x)
        x = self._add(mixed, x)
        x = mixer_norm(x) if self.post_norm else x
        x = self._add(self._run(partial(self._ffn, norm=ffn_norm), x), x)
        return ffn_norm(x) if self.post_norm else x

    def _joins(self, mixed: Tensor, x: Tensor) -> bool:
        """Whether the first sum and the second norm are one kernel."""
        join = not (self.post_norm or self.recompute == "all" or on_cpu(x))
        return join and isinstance(self.ffn_norm, LayerNorm) and mixed.shape == x.shape

    def _pass_messages(self, x: Tensor, edges: Edges, rows: Tensor | None) -> Tensor:
        assert self.local is not None
        out = self.local(x.flatten(0, -2), edges, rows)
        return out.view(x.shape) if rows is None else out

    def _ffn(self, x: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
        x = self.ffn_in(x) if self.post_norm else linear_of(norm, x, self.ffn_in)
        return linear_of(functional.gelu, x, self.ffn_out)

    def _run(self, run: Callable[[Tensor], Tensor], x: Tensor, is_random: bool = False) -> Tensor:
        """Calls a function, whose intermediate tensors the mode ``"all"`` recomputes."""
        return recomputed(run, x, is_random) if self.recompute == "all" else run(x)

    def _add(self, branch: Tensor, x: Tensor) -> Tensor:
        return dropout_add(branch, x, self._active_dropout)

    @property
    def _active_dropout(self) -> float:
        return self.dropout if self.training else 0.0


class _Cast(torch.autograd.Function):
    """Casts tensors by one kernel, and their gradients by another."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.dtypes = [x.dtype for x in tensors]
        ctx.set_materialize_grads(False)
        return tuple(_copies(tensors, [dtype] * len(tensors)))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = [pair for pair in zip(grads, ctx.dtypes, strict=True) if pair[0] is not None]
        found = iter(_copies(*zip(*pairs, strict=True)) if pairs else ())
        return None, *(None if grad is None else next(found) for grad in grads)


def _copies(tensors: Sequence[Tensor], dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    if copy_each is None or torch.is_grad_enabled():  # the second derivative of a gradient
        return [x.to(dtype) for x, dtype in zip(tensors, dtypes, strict=True)]
    out = [torch.empty_like(x, dtype=dtype) for x, dtype in zip(tensors, dtypes, strict=True)]
    copy_each(out, list(tensors))
    return out


def cast_together(dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Casts tensors to a type by one kernel, and their gradients back by another."""
    if torch.compiler.is_compiling() or is_transformed():
        return tuple(x.to(dtype) for x in tensors)
    return _Cast.apply(dtype, *tensors)


def _half(x: Tensor, blocks: Iterable[torch.nn.Module]) -> torch.dtype | None:
    """Returns bfloat16 if an encoder shall compute in it: on a GPU, by autocast.

    Autocast would cast every weight, bias and gradient by a kernel of its own, and keep the rows
    between the layers in float32. A block that is called again in the backward pass, where its
    copies no longer exist, leaves it to autocast.
    """
    again = any(getattr(block, "recompute", None) == "all" for block in blocks)
    if on_cpu(x) or again or product_type(x) != torch.bfloat16 or x.dtype == torch.bfloat16:
        return None
    return torch.bfloat16


class _InHalf:
    """Calls a block with copies of its parameters, but those of a batch norm, in another type."""

    def __init__(self, block: torch.nn.Module, dtype: torch.dtype) -> None:
        self.block, self.dtype = block, dtype

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = {
            f"{prefix}.{name}" if prefix else name: parameter
            for prefix, module in self.block.named_modules()
            if not isinstance(module, torch.nn.BatchNorm1d)
            for name, parameter in module.named_parameters(recurse=False)
        }
        copies = dict(zip(found, cast_together(self.dtype, *found.values()), strict=True))
        with torch.autocast(x.device.type, enabled=False):
            return torch.func.functional_call(self.block, copies, (x, *args), kwargs)


def real_rows(norm: torch.nn.Module, sets: PaddedSets | None) -> Callable[[Tensor], Tensor]:
    """Returns the norm of rows; a batch norm of dense sets counts the real rows only."""
    if sets is None or not isinstance(norm, torch.nn.BatchNorm1d):
        return norm
    return lambda x: sets.pad(norm(sets.unpad(x))) if x.dim() == 3 else norm(x)


def encode(
    blocks: Iterable[Any],
    x: Tensor,
    ptr: Tensor | None = None,
    pairs: PairBias | None = None,
    *,
    edges: Edges | None = None,
    first_rows: bool = False,
    sets: PaddedSets | None = None,
) -> Tensor:
    """Applies all blocks to packed rows with their ``ptr``, or to dense ones with their layout
    ``sets``; with ``first_rows`` the last one computes only the first row per set."""
    first = None
    if (dtype := _half(x, blocks)) is not None:
        if edges is not None and edges.state is not None:
            edges.state = edges.state.to(dtype)
        blocks = [_InHalf(block, dtype) for block in blocks]
        x = x.to(dtype)
    *earlier, last = blocks
    if first_rows and sets is not None:
        first = torch.arange(sets.num_sets, device=x.device) * sets.length
    elif first_rows and ptr is not None:
        first = ptr[:-1]
    for number, block in enumerate(earlier):
        layer_pairs = None if pairs is None else pairs.for_layer(number)
        x = block(x, ptr, layer_pairs, edges=edges, sets=sets)
    pairs = None if pairs is None else pairs.for_layer(len(earlier))
    return last(x, ptr, pairs, first, edges, sets)
