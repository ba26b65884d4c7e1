"""Linear attention with larger weights for near positions."""

import math

import torch
from torch import Tensor

from benchmarks.attentions.linear import kernel_attention
from benchmarks.attentions.multi_head import MultiHead


class Cosformer(MultiHead):
    r"""The attention of the `cosFormer: Rethinking Softmax in Attention
    <https://arxiv.org/abs/2202.08791>`_ paper, in both directions.

    .. math:: w_{ij} \propto \mathrm{relu}(q_i) \cdot \mathrm{relu}(k_j)
        \cos\left(\frac{\pi}{2} \frac{i - j}{N}\right)

    As :math:`\cos(a - b) = \cos a \cos b + \sin a \sin b`, this is :func:`kernel_attention` with
    twice as many features.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return kernel_attention(_features(query), _features(key), value)


def _features(x: Tensor) -> Tensor:
    length = x.shape[-2]
    angle = torch.arange(length, device=x.device, dtype=x.dtype) * (math.pi / 2 / length)
    x = x.relu()
    return torch.cat([x * angle.cos().unsqueeze(-1), x * angle.sin().unsqueeze(-1)], dim=-1)
