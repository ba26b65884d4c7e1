"""One layer of an encoder: mix the rows of each set, then transform every row."""

from collections.abc import Callable

import torch
from torch import Tensor

from slicegraph.nn.lean_linear import gelu_linear, norm_linear
from slicegraph.nn.local_branch import Edges, LocalBranch
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.padded_sets import collect_rows
from slicegraph.nn.pair_bias import PairBias
from slicegraph.nn.recomputed import recomputed
from slicegraph.ops.dropout import dropout

RECOMPUTE = ("none", "mix", "all")


class EncoderBlock(torch.nn.Module):
    r"""The pre-norm block of Graphormer and of the `Sliceformer
    <https://arxiv.org/abs/2310.17683>`_ paper.

    .. math::
        X' &= X + \mathrm{Mix}(\mathrm{LN}(X)) \\
        Y &= X' + W_2 \, \mathrm{GELU}(W_1 \mathrm{LN}(X'))

    or, with ``post_norm``, the one of the original Transformer:

    .. math::
        X' &= \mathrm{LN}(X + \mathrm{Mix}(X)) \\
        Y &= \mathrm{LN}(X' + W_2 \, \mathrm{GELU}(W_1 X'))

    With a local branch, what it says of the same input is added to Mix.

    Args:
        mixer: how the rows of a set are mixed.
        ffn_channels: the inner size of the feed-forward part.
        dropout: the probability with which an entry of both branches is dropped in training.
        post_norm: whether the norms come after the sums.
        recompute: what is computed once more in the backward pass instead of being kept for it:
            ``"none"``; ``"mix"``, the sort and the pair products, which cost little; ``"all"``, the
            linear layers too. With ``"sort_attn"`` a block keeps 5 tensors of the size of its
            input, 4, or 2, and the results are the same.
        local: messages along edges, as in `"Recipe for a General, Powerful, Scalable Graph
            Transformer" <https://arxiv.org/abs/2205.12454>`_.

    Shapes:
        - **x**: ``[T, C]``, packed sets with **ptr** ``[B + 1]``; **pairs** as the mixer needs,
          **edges** as the local branch does.
        - **rows**: the rows of the output to compute, each at most once; all if not given.
        - **output**: ``[T, C]``, or ``[rows, C]``.

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
        post_norm: bool = False,
        recompute: str = "none",
        local: LocalBranch | None = None,
    ) -> None:
        super().__init__()
        if recompute not in RECOMPUTE:
            raise ValueError(
                f"EncoderBlock: recompute = {recompute!r}, expected one of {', '.join(RECOMPUTE)}"
            )
        self.dropout, self.post_norm, self.recompute = dropout, post_norm, recompute
        self.mixer_norm = torch.nn.LayerNorm(mixer.channels)
        self.mixer = mixer
        self.local = local
        self.ffn_norm = torch.nn.LayerNorm(mixer.channels)
        self.ffn_in = torch.nn.Linear(mixer.channels, ffn_channels)
        self.ffn_out = torch.nn.Linear(ffn_channels, mixer.channels)

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        x: Tensor,
        ptr: Tensor,
        pairs: PairBias | None = None,
        rows: Tensor | None = None,
        edges: Edges | None = None,
    ) -> Tensor:
        if pairs is not None and self.mixer.mixer != "qkv":
            pairs.weights  # noqa: B018  # computed for all layers, and never again
        mixed = self._drop(self._mix(x, ptr, pairs, rows, edges))
        x = mixed + (x if rows is None else collect_rows(x, rows))
        if self.post_norm:
            x = self.mixer_norm(x)
            return self.ffn_norm(x + self._drop(self._ffn(x)))
        return x + self._drop(self._ffn(x))

    def _mix(
        self,
        x: Tensor,
        ptr: Tensor,
        pairs: PairBias | None,
        rows: Tensor | None,
        edges: Edges | None,
    ) -> Tensor:
        norm, local = None if self.post_norm else self.mixer_norm, self.local
        if local is not None and edges is None:
            raise ValueError("EncoderBlock: a block with a local branch needs edges")

        def run(x: Tensor) -> Tensor:
            if local is None or edges is None:
                return self.mixer(x, ptr, pairs, norm, self.recompute == "mix", rows)
            x = x if norm is None else norm(x)
            mixed = self.mixer(x, ptr, pairs, None, self.recompute == "mix", rows)
            return mixed + local(x, edges, rows)

        return self._run(run, x)

    def _ffn(self, x: Tensor) -> Tensor:
        def run(x: Tensor) -> Tensor:
            if self.post_norm:
                return gelu_linear(self.ffn_in(x), self.ffn_out)
            return gelu_linear(norm_linear(x, self.ffn_norm, self.ffn_in), self.ffn_out)

        return self._run(run, x)

    def _run(self, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return recomputed(run, x, self.mixer.is_random) if self.recompute == "all" else run(x)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout) if self.training else x


def encode(
    blocks: torch.nn.ModuleList,
    x: Tensor,
    ptr: Tensor,
    pairs: PairBias | None,
    first_rows: bool,
    edges: Edges | None = None,
) -> Tensor:
    """The rows of all sets after all blocks; with ``first_rows`` only the first of each set, and
    then the last block computes no other."""
    *earlier, last = blocks
    for block in earlier:
        x = block(x, ptr, pairs, edges=edges)
    return last(x, ptr, pairs, ptr[:-1] if first_rows else None, edges)
