"""Linear attention with the feature map elu + 1."""

from torch import Tensor
from torch.nn import functional

from benchmarks.attentions.multi_head import MultiHead


def kernel_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    r"""Attention whose weights are products of features, in :math:`O(N)`.

    .. math:: y_i = \frac{q_i \sum_j k_j^T v_j}{q_i \sum_j k_j^T}

    Args:
        query, key: non-negative features, ``[..., N, F]``.
        value: ``[..., N, D]``.
    """
    total = key.sum(dim=-2).unsqueeze(-1)
    return query @ (key.transpose(-2, -1) @ value) / (query @ total).clamp(min=1e-6)


class LinearAttention(MultiHead):
    r"""The attention of the `Transformers are RNNs <https://arxiv.org/abs/2006.16236>`_ paper,
    in both directions: :func:`kernel_attention` of :math:`\mathrm{elu}(x) + 1`."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return kernel_attention(functional.elu(query) + 1, functional.elu(key) + 1, value)
