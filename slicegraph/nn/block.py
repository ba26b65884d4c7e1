"""One layer of an encoder: mixes the rows of each set, then transforms every row."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.bias import PairBias
from slicegraph.nn.layer import NORMS, Layer
from slicegraph.nn.local import Edges, GatedBranch, LocalBranch
from slicegraph.nn.mixer import Mixer, linear_of, recomputed
from slicegraph.nn.packed import PaddedSets, gather_rows
from slicegraph.ops.pairs import dropout_add


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
        recompute: what the backward pass recomputes instead of keeping it, besides the outputs of
            norms and GELU: ``"none"``; ``"mix"``, the sort and the pair products, which cost
            little, on a CPU only; ``"all"``, the linear layers too. With ``"sort_attn"`` a block
            keeps 5, 4 or 2 tensors of the size of its input there. The results are the same.
        local: messages along edges, as in `"Recipe for a General, Powerful, Scalable Graph
            Transformer" <https://arxiv.org/abs/2205.12454>`_.
        norm: ``"layer"``, or ``"batch"`` for a batch norm over all rows instead of LN, which keeps
            what tells rows apart, such as their degree, and cannot be recomputed.

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
        x = self._add(mixed, x if rows is None else gather_rows(x.flatten(0, -2), rows))
        x = mixer_norm(x) if self.post_norm else x
        x = self._add(self._run(partial(self._ffn, norm=ffn_norm), x), x)
        return ffn_norm(x) if self.post_norm else x

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
        return dropout_add(branch, x, self.dropout if self.training else 0.0)


def real_rows(norm: torch.nn.Module, sets: PaddedSets | None) -> Callable[[Tensor], Tensor]:
    """Returns the norm of rows; a batch norm of dense sets counts the real rows only."""
    if sets is None or not isinstance(norm, torch.nn.BatchNorm1d):
        return norm
    return lambda x: sets.pad(norm(sets.unpad(x))) if x.dim() == 3 else norm(x)


def encode(
    blocks: Iterable[torch.nn.Module],
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
    *earlier, last = blocks
    first = None
    if first_rows and sets is not None:
        first = torch.arange(sets.num_sets, device=x.device) * sets.length
    elif first_rows and ptr is not None:
        first = ptr[:-1]
    for number, block in enumerate(earlier):
        layer_pairs = None if pairs is None else pairs.for_layer(number)
        x = block(x, ptr, layer_pairs, edges=edges, sets=sets)
    pairs = None if pairs is None else pairs.for_layer(len(earlier))
    return last(x, ptr, pairs, first, edges, sets)
