"""Which channels of a layer are sorted downwards in the interleaved order."""

import torch
from torch import Tensor


def interleave_descending(num_channels: int, layer: int, num_layers: int) -> Tensor:
    r"""The interleaved order of the Sliceformer paper, as a direction per channel.

    Column :math:`i = 1..C` of layer :math:`n = 1..L` is sorted in ascending order where
    :math:`\sin(2^{L-n} \pi i / C) \ge 0` and in descending order elsewhere. The sign is taken
    exactly: with :math:`q = 2^{L-n} i` the sine is negative iff ``q % C != 0`` and ``q // C`` is
    odd.

    Args:
        num_channels: the number of columns :math:`C`.
        layer: the number of this layer, from 1 to ``num_layers``.
        num_layers: the number of layers :math:`L`.

    Returns:
        A bool tensor of shape ``[num_channels]``, true where the column descends.

    Example:
        >>> interleave_descending(num_channels=4, layer=1, num_layers=2)
        tensor([False, False,  True, False])
    """
    if num_channels < 0:
        raise ValueError(f"interleave_descending: num_channels = {num_channels} is negative")
    if num_layers < 1:
        raise ValueError(f"interleave_descending: num_layers = {num_layers} must be at least 1")
    if not 1 <= layer <= num_layers:
        raise ValueError(f"interleave_descending: layer = {layer} is not in 1..{num_layers}")
    # Python integers: 2^(L-n) has no largest value, and sin is periodic in 2C.
    step = pow(2, num_layers - layer, 2 * num_channels) if num_channels else 0
    products = [step * i % (2 * num_channels) for i in range(1, num_channels + 1)]
    return torch.tensor([q > num_channels for q in products], dtype=torch.bool)
