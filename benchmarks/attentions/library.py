"""Mixers from torch, PyG and small packages, with `[B, N, C]` in and out.

Every package is imported when its mixer is made. Buckets and windows are 64 rows long; features and
projections have the default sizes of the packages.
"""

import torch
from torch import Tensor

from benchmarks.attentions.encoder import CHANNELS, HEADS

WINDOW = 64


class SelfAttention(torch.nn.Module):
    """`torch.nn.MultiheadAttention(need_weights=False)`, which uses SDPA in training.

    It also does so in evaluation after `torch.backends.mha.set_fastpath_enabled(False)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(CHANNELS, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def local_attention() -> torch.nn.Module:
    from local_attention.transformer import LocalMHA

    # The encoder has positions, so the rotary embedding of the package is left out.
    return LocalMHA(
        dim=CHANNELS,
        window_size=WINDOW,
        dim_head=CHANNELS // HEADS,
        heads=HEADS,
        use_rotary_pos_emb=False,
    )


def reformer() -> torch.nn.Module:
    from reformer_pytorch import LSHSelfAttention

    return LSHSelfAttention(CHANNELS, HEADS, bucket_size=WINDOW, n_hashes=4)


def linformer(length: int) -> torch.nn.Module:
    from linformer import LinformerSelfAttention

    return LinformerSelfAttention(CHANNELS, length, k=256, heads=HEADS)


def performer() -> torch.nn.Module:
    from performer_pytorch import SelfAttention

    return SelfAttention(CHANNELS, heads=HEADS)


def linear_attention() -> torch.nn.Module:
    from linear_attention_transformer.linear_attention_transformer import SelfAttention

    return SelfAttention(CHANNELS, HEADS)


def sinkhorn(length: int) -> torch.nn.Module:
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

    # By default this class takes the best bucket for each, without Sinkhorn normalisation.
    return SinkhornSelfAttention(CHANNELS, WINDOW, length, heads=HEADS, non_permutative=False)


def pyg_performer() -> torch.nn.Module:
    from torch_geometric.nn.attention import PerformerAttention

    return PerformerAttention(CHANNELS, HEADS, head_channels=CHANNELS // HEADS)
