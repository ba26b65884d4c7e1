"""The attentions that are written for the efficiency table, against their formulas."""

import math

import pytest
import torch
from torch.nn import functional

from benchmarks.attentions.cosformer import Cosformer
from benchmarks.attentions.encoder import CHANNELS, Encoder
from benchmarks.attentions.linear import LinearAttention
from benchmarks.attentions.methods import METHODS
from benchmarks.attentions.multi_head import MultiHead
from benchmarks.attentions.sinkformer import Sinkformer
from benchmarks.attentions.strided import StridedAttention
from benchmarks.attentions.synthesizer import Synthesizer

N, D = 24, 8
EVERY_METHOD = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not method.installed, reason=f"{method.source} is not installed"
            ),
        )
        for name, method in METHODS.items()
    ],
)


@pytest.fixture
def qkv():
    return torch.randn(3, 2, 4, N, D, generator=torch.manual_seed(1), dtype=torch.double)


def normalised(weights):
    return weights / weights.sum(dim=-1, keepdim=True)


def distances():
    rows = torch.arange(N)
    return rows.unsqueeze(1) - rows


def test_linear_attention_is_its_normalised_feature_products(qkv):
    query, key, value = qkv
    weights = normalised((functional.elu(query) + 1) @ (functional.elu(key) + 1).mT)
    torch.testing.assert_close(LinearAttention(32, 4).attend(*qkv), weights @ value)


def test_cosformer_is_its_normalised_cosine_weights(qkv):
    query, key, value = qkv
    cosine = torch.cos(math.pi / 2 * distances().double() / N)
    weights = normalised(query.relu() @ key.relu().mT * cosine)
    torch.testing.assert_close(Cosformer(32, 4).attend(*qkv), weights @ value)


def test_rows_and_columns_of_sinkformer_sum_to_one(qkv):
    weights = Sinkformer(32, 4, iterations=200).weights(*qkv[:2])
    ones = torch.ones(2, 4, N, dtype=torch.double)
    torch.testing.assert_close(weights.sum(dim=-1), ones)
    torch.testing.assert_close(weights.sum(dim=-2), ones)


def test_one_normalisation_of_sinkformer_is_the_softmax(qkv):
    expected = functional.scaled_dot_product_attention(*qkv)
    torch.testing.assert_close(Sinkformer(32, 4, iterations=1).attend(*qkv), expected)


def test_sinkformer_ends_with_the_rows(qkv):
    weights = Sinkformer(32, 4).weights(*qkv[:2])
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 4, N, dtype=torch.double))


def test_sinkformer_scales_the_rows_and_columns_of_attention(qkv):
    """The determinant of a 2 x 2 minor over its products is what no scaling changes."""
    query, key, _ = qkv
    scores = query @ key.mT / math.sqrt(D)
    logs = Sinkformer(32, 4).weights(query, key).log()

    def cross_ratios(x):
        return x[..., :-1, :-1] + x[..., 1:, 1:] - x[..., :-1, 1:] - x[..., 1:, :-1]

    torch.testing.assert_close(cross_ratios(logs), cross_ratios(scores))


def test_synthesizer_is_softmax_of_its_factors_times_the_values(qkv):
    layer = Synthesizer(32, 4, length=N).double()
    weights = torch.einsum("hik,hjk->hij", layer.left, layer.right).softmax(dim=-1)
    expected = torch.einsum("hij,bhjd->bhid", weights, qkv[2])
    torch.testing.assert_close(layer.attend(qkv[2]), expected)


@pytest.mark.parametrize("stride", [4, 8, 24])
def test_strided_attention_is_dense_attention_with_its_mask(qkv, stride):
    near, far = distances().abs() < stride, distances() % stride == 0
    mask = torch.stack([near, near, far, far])
    expected = functional.scaled_dot_product_attention(*qkv, attn_mask=mask)
    torch.testing.assert_close(StridedAttention(32, 4, stride).attend(*qkv), expected)


def test_heads_are_attention_of_torch_with_the_same_weights():
    class Plain(MultiHead):
        def attend(self, *qkv):
            return functional.scaled_dot_product_attention(*qkv)

    ours, theirs = Plain(32, 4), torch.nn.MultiheadAttention(32, 4, batch_first=True)
    names = {"in_proj.weight": "in_proj_weight", "in_proj.bias": "in_proj_bias"}
    theirs.load_state_dict({names.get(k, k): v for k, v in ours.state_dict().items()})
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0])


@EVERY_METHOD
def test_every_parameter_of_the_encoder_but_unused_ones_gets_a_gradient(name):
    torch.manual_seed(0)
    model = Encoder(1024, lambda layer: METHODS[name].mixer(1024, layer))
    model.blocks = model.blocks[:1]
    model(torch.randint(256, (1, 1024))).sum().backward()
    idle = {key for key, value in model.named_parameters() if value.grad is None}
    assert {key.split(".")[-2] for key in idle} <= {"query_global", "key_global", "value_global"}


@EVERY_METHOD
def test_a_mixer_mixes_rows(name):
    """The first row of the output depends on a later row of the input."""
    torch.manual_seed(0)
    mixer = METHODS[name].mixer(1024, 1)
    x = torch.randn(1, 1024, CHANNELS, requires_grad=True)
    mixer(x)[0, 0].square().sum().backward()
    assert x.grad[0, 1:].abs().sum() > 0
