"""A bias for every pair of rows of a set, and the products it takes part in."""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.ops.dropout import dropout
from slicegraph.ops.pair_attention import has_kernel, pair_attention_through
from slicegraph.ops.pair_mix import pair_mix_op
from slicegraph.ops.shared_weights import SharedWeights


class PairBias:
    r"""What :class:`~slicegraph.nn.StructuralBias` makes of a batch, for all layers of a model.

    The weights do not depend on what is mixed, so they are computed once, when first asked for.

    .. math:: A = \mathrm{softmax}(B), \quad \mathrm{mix}(V) = A V, \quad
        \mathrm{attend}(Q, K, V) = \mathrm{softmax}(Q K^T / \sqrt{D} + B) \, V

    Args:
        bias: ``[B, H, N, N]``, with a value far below all others where a column is padding.
        sets: where the rows of the sets are.

    Shapes:
        - **values**: packed ``[T, C]``; head ``h`` is the ``h``-th of ``H`` equal parts of the
          channels.
        - **qkv**: ``[T, 3 C]``: queries, keys and values side by side.
    """

    def __init__(self, bias: Tensor, sets: PaddedSets) -> None:
        self.bias, self.sets = bias, sets

    @property
    def heads(self) -> int:
        return self.bias.shape[1]

    @cached_property
    def weights(self) -> Tensor:
        """``[B, H, N, N]``: the softmax of the bias, 0 in the columns that are padding."""
        return self.bias.softmax(-1)

    @cached_property
    def _shared(self) -> SharedWeights:
        return SharedWeights(self.weights, self.sets.ptr)

    def mix(self, values: Tensor, dropped: float = 0.0) -> Tensor:
        """``[T, C]``: every row an average of its set's, by the weights."""
        if not dropped and values.dtype == self.weights.dtype:
            return self._shared.mix(values)
        weights = dropout(self.weights.to(values.dtype), dropped)
        # The sets are right by construction: no check, which would wait for a GPU.
        return pair_mix_op(weights, values, self.sets.ptr, False)

    def attend(self, qkv: Tensor, dropped: float = 0.0) -> Tensor:
        """``[T, C]``: scaled dot-product attention within each set, with the bias."""
        bias = self.bias.to(qkv.dtype)
        # With weights dropped on a CPU torch too goes step by step, and with padding.
        if has_kernel(qkv) or (dropped and qkv.is_cpu):
            out, bias = pair_attention_through(qkv, bias, self.sets.ptr, dropped)
            self.bias = bias if bias.dtype == self.bias.dtype else self.bias
            return out
        q, k, v = map(self._split, qkv.chunk(3, 1))
        return self._join(functional.scaled_dot_product_attention(q, k, v, bias, dropped))

    def _split(self, rows: Tensor) -> Tensor:
        heads = (self.heads, rows.shape[1] // self.heads)
        return self.sets.pad(rows).unflatten(-1, heads).transpose(1, 2)

    def _join(self, x: Tensor) -> Tensor:
        return self.sets.unpad(x.transpose(1, 2).flatten(2))


def padding_value(dtype: torch.dtype) -> float:
    """What softmax takes for minus infinity, and a sum with scores does not overflow."""
    return torch.finfo(dtype).min / 2
