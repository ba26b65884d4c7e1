"""Attention within packed sets, where nothing is known of a pair of rows."""

from torch import Tensor
from torch.nn import functional

from slicegraph.nn.padded_sets import PaddedSets
from slicegraph.nn.pair_bias import PairBias, padding_value


class SetAttention(PairBias):
    r"""A :class:`~slicegraph.nn.PairBias` of zeros: what a Transformer has.

    .. math:: \mathrm{attend}(Q, K, V) = \mathrm{softmax}(Q K^T / \sqrt{D}) \, V

    Nothing of the size of all pairs is kept, and sets of one size are attended to without a mask.

    Args:
        sets: where the rows of the sets are.
        heads: the number of heads.
        like: a tensor of the type and on the device of the rows.

    Example:
        >>> x, sets = torch.randn(5, 4), PaddedSets(torch.tensor([0, 2, 5]))
        >>> SetAttention(sets, heads=2, like=x).attend(x.repeat(1, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, sets: PaddedSets, heads: int, like: Tensor) -> None:
        columns = sets.real.to(like.dtype)[:, None, None]
        bias = (1 - columns) * padding_value(like.dtype)
        super().__init__(bias.expand(-1, heads, sets.length, -1), sets)
        # A set without rows has nothing to attend to; its padding may see itself, unread.
        seen = sets.real | (sets.sizes == 0).unsqueeze(-1)
        self.mask = None if sets.full else seen[:, None, None]

    def attend(self, qkv: Tensor, dropped: float = 0.0) -> Tensor:
        """``[T, C]``: scaled dot-product attention within each set."""
        q, k, v = map(self._split, qkv.chunk(3, 1))
        return self._join(functional.scaled_dot_product_attention(q, k, v, self.mask, dropped))
