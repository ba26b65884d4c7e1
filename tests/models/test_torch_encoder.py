"""The Transformer and the ViT of the sequence models against torch's encoder with their weights."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models import (
    SequenceSliceformer,
    SequenceSliceformerConfig,
    VisionSliceformer,
    VisionSliceformerConfig,
)

SIZES = {"num_layers": 3, "channels": 16, "ffn_channels": 24, "heads": 4, "num_classes": 3}
LENGTHS = torch.tensor([7, 1, 12])
EXACT = {"rtol": 0, "atol": 1e-5}
BOTH_NORMS = pytest.mark.parametrize("post_norm", [False, True])
READOUTS = pytest.mark.parametrize("readout", ["cls", "mean", "max"])


def drawn(net: torch.nn.Module) -> torch.nn.Module:
    """All weights at random, also those that a new model has as ones and zeros."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in net.parameters():
            value.normal_(std=0.3, generator=generator)
    return net.eval()


def transformer(**fields) -> SequenceSliceformer:
    config = SequenceSliceformerConfig(
        mixer="qkv", vocabulary=30, max_length=12, **{**SIZES, **fields}
    )
    return drawn(SequenceSliceformer(config))


def layer_weights(block) -> dict[str, Tensor]:
    """The weights of a block, by the names that torch has for them."""
    mixer = block.mixer
    projections = (mixer.query_proj, mixer.key_proj, mixer.value_proj)
    parts = {
        "self_attn.out_proj": mixer.out_proj,
        "norm1": block.mixer_norm,
        "linear1": block.ffn_in,
        "linear2": block.ffn_out,
        "norm2": block.ffn_norm,
    }
    weights = {f"{name}.weight": part.weight for name, part in parts.items()}
    weights |= {f"{name}.bias": part.bias for name, part in parts.items()}
    for what in ("weight", "bias"):
        joined = torch.cat([getattr(each, what) for each in projections])
        weights[f"self_attn.in_proj_{what}"] = joined
    return weights


def torch_encoder(net: SequenceSliceformer) -> torch.nn.TransformerEncoder:
    c = net.config
    layer = torch.nn.TransformerEncoderLayer(
        c.channels,
        c.heads,
        c.ffn_channels,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=not c.post_norm,
    )
    encoder = torch.nn.TransformerEncoder(
        layer, c.num_layers, norm=net.final_norm, enable_nested_tensor=False
    )
    for theirs, ours in zip(encoder.layers, net.blocks, strict=True):
        theirs.load_state_dict(layer_weights(ours))
    return encoder.eval()


def torch_rows(net: SequenceSliceformer, embedded: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """``[B, N, C]`` rows of torch's encoder and ``[B, N]`` which are real; CLS is one more."""
    if net.config.readout == "cls":
        batch = len(embedded)
        embedded = torch.cat([net.embedding.token.expand(batch, 1, -1), embedded], dim=1)
        real = torch.cat([real.new_ones(batch, 1), real], dim=1)
    x = embedded + net.embedding.places.weight[: embedded.shape[1]]
    return torch_encoder(net)(x, src_key_padding_mask=~real), real


def torch_logits(net: SequenceSliceformer, embedded: Tensor, real: Tensor) -> Tensor:
    rows, real = torch_rows(net, embedded, real)
    sequences = [row[mask] for row, mask in zip(rows, real, strict=True)]
    read = {"cls": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.amax(0)}
    vectors = torch.stack([read[net.config.readout](x) for x in sequences])
    return functional.linear(vectors, net.head.weight, net.head.bias)


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(30, (3, 12), generator=torch.Generator().manual_seed(1))
    return tokens, torch.arange(12) < LENGTHS[:, None]


@BOTH_NORMS
@torch.no_grad()
def test_real_rows_are_those_of_torchs_encoder(post_norm):
    net, (tokens, real) = transformer(post_norm=post_norm), batch()
    found = []
    net.readout.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    net(tokens, real)
    embedded = functional.embedding(tokens, net.embedding.elements.weight)
    expected, _ = torch_rows(net, embedded, real)
    torch.testing.assert_close(found[0], expected[real], **EXACT)


@BOTH_NORMS
@READOUTS
@torch.no_grad()
def test_logits_are_those_of_torchs_encoder(post_norm, readout):
    net, (tokens, real) = transformer(post_norm=post_norm, readout=readout), batch()
    embedded = functional.embedding(tokens, net.embedding.elements.weight)
    torch.testing.assert_close(net(tokens, real), torch_logits(net, embedded, real), **EXACT)


@BOTH_NORMS
@READOUTS
def test_gradients_of_the_tables_are_those_through_torchs_encoder(post_norm, readout):
    net, (tokens, real) = transformer(post_norm=post_norm, readout=readout), batch()
    tables = [net.embedding.elements.weight, net.embedding.places.weight]
    embedded = functional.embedding(tokens, net.embedding.elements.weight)
    ours, theirs = (
        torch.autograd.grad(logits.square().sum(), tables)
        for logits in (net(tokens, real), torch_logits(net, embedded, real))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@BOTH_NORMS
@READOUTS
@torch.no_grad()
def test_an_image_is_its_unfolded_patches_through_torchs_encoder(post_norm, readout):
    config = VisionSliceformerConfig(
        mixer="qkv", image_size=8, patch_size=2, post_norm=post_norm, readout=readout, **SIZES
    )
    net = drawn(VisionSliceformer(config))
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    patches = functional.unfold(images, kernel_size=2, stride=2).mT
    embedded = functional.linear(patches, *net.patches.embedding.elements.parameters())
    real = torch.ones(2, 16, dtype=torch.bool)
    torch.testing.assert_close(net(images), torch_logits(net.patches, embedded, real), **EXACT)
