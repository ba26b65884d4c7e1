"""The attentions of transformers' Longformer and BigBird, each with an output projection.

Their own output layers add a residual and a norm, which the encoder already has.
"""

import torch
from torch import Tensor
from transformers import BigBirdConfig, LongformerConfig
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from benchmarks.attentions.encoder import CHANNELS, HEADS
from benchmarks.attentions.library import WINDOW

SIZE = {"hidden_size": CHANNELS, "num_attention_heads": HEADS, "attention_probs_dropout_prob": 0.0}


class Longformer(torch.nn.Module):
    """Attention to 64 rows on either side of a row; there are no global rows."""

    def __init__(self) -> None:
        super().__init__()
        config = LongformerConfig(**SIZE, num_hidden_layers=1, attention_window=[2 * WINDOW])
        self.attention = LongformerSelfAttention(config, layer_id=0)
        self.out_proj = torch.nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        nowhere = torch.zeros(x.shape[:2], dtype=torch.bool)
        mixed = self.attention(
            x,
            attention_mask=torch.zeros(x.shape[:2]),
            is_index_masked=nowhere,
            is_index_global_attn=nowhere,
            is_global_attn=False,
        )
        return self.out_proj(mixed[0])


class BigBird(torch.nn.Module):
    """Attention in blocks of 64 rows: 3 blocks are random, and the first and last are global.

    In evaluation mode, transformers uses the first block in place of the random ones.

    Args:
        length: the length of all sequences.
        seed: the seed of the random blocks, which differ from layer to layer.
    """

    def __init__(self, length: int, seed: int) -> None:
        super().__init__()
        config = BigBirdConfig(
            **SIZE, block_size=WINDOW, num_random_blocks=3, max_position_embeddings=length
        )
        self.attention = BigBirdBlockSparseAttention(config, seed)
        self.out_proj = torch.nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        blocks, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
            torch.ones(x.shape[:2]), WINDOW
        )
        return self.out_proj(self.attention(x, band, rows, columns, blocks, blocks)[0])
