"""The attention slots of PyG, torch and timm, filled by sorting."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn import TransformerEncoder, TransformerEncoderLayer
from torch_geometric.nn import GPSConv
from torch_geometric.nn.attention import PerformerAttention

from slicegraph.nn import (
    MultiheadSliceSort,
    QuantileContext,
    SetMixer,
    SliceSort,
    SliceSortAttention,
    TokenSliceSort,
)
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_equivariant,
)

SETS = [torch.randn(n, 8, generator=torch.Generator().manual_seed(n)) for n in (5, 1, 3, 9)]
OPTIONS = [
    {},
    {"quantiles": 3, "bias": False},
    {"mixer": "sort"},
    {"mixer": "sort", "order": "interleave"},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("layout", ["dense", "packed"])
def test_attention_of_sets_keeps_the_laws(options, layout):
    torch.manual_seed(0)
    layer = SliceSortAttention(8, **options)
    assert_padding_invariant(layer, SETS, layout, holes=layout == "dense", atol=1e-5, rtol=0)
    assert_permutation_equivariant(layer, SETS, layout, atol=1e-5, rtol=0)
    assert_backends_agree(layer, torch.randn(2, 5, 8), rtol=1e-5, atol=1e-5)


def test_attention_of_sets_is_its_formula():
    layer, x = SliceSortAttention(8), SETS[0]
    context = QuantileContext(8)
    context.load_state_dict(layer.mixer.context.state_dict())
    values = context(layer.mixer.value_proj(x), torch.tensor([0, len(x)]))
    torch.testing.assert_close(layer(x.unsqueeze(0))[0], layer.mixer.out_proj(values))
    torch.testing.assert_close(layer(x), layer.mixer.out_proj(values))


def test_the_slot_of_pyg_takes_it_for_a_performer():
    conv = GPSConv(8, None)
    conv.attn = SliceSortAttention(8)
    assert isinstance(conv.attn, PerformerAttention)
    x = SETS[0]
    before = conv.eval()(x, None)
    conv.reset_parameters()
    conv.attn.redraw_projection_matrix()
    assert not torch.equal(conv(x, None), before)
    assert repr(conv.attn) == "SliceSortAttention(8, mixer=quantile)"
    assert all(key.startswith("mixer.") for key in conv.attn.state_dict())


def test_dropout_is_for_training():
    layer, x = SliceSortAttention(8, dropout=0.5), SETS[3]
    assert (layer(x) == 0).any()
    assert not (layer.eval()(x) == 0).any()


@pytest.mark.parametrize(
    ("x", "named", "message"),
    [
        (torch.randn(3, 7), {}, r"x has shape \[3, 7\], expected \[B, N, 8\] or \[T, 8\]"),
        (torch.randn(2, 3, 8), {"batch": torch.zeros(2)}, "batch with x of shape"),
        (torch.randn(3, 8), {"mask": torch.ones(3, dtype=torch.bool)}, "mask with x of shape"),
        (torch.randn(2, 3, 8), {"mask": torch.ones(2, 4, dtype=torch.bool)}, "mask has shape"),
    ],
)
def test_wrong_input_is_named(x, named, message):
    with pytest.raises(ValueError, match=message):
        SliceSortAttention(8)(x, **named)


def test_unknown_mixers_are_named():
    with pytest.raises(ValueError, match="unknown mixer 'qkv', expected one of quantile, sort"):
        SetMixer(8, mixer="qkv")


def encoder(batch_first: bool = True, **options) -> TransformerEncoder:
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=batch_first, **options)
    layer.self_attn = MultiheadSliceSort(8, batch_first=batch_first)
    return TransformerEncoder(layer, 2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_an_encoder_of_torch_sorts(norm_first, training):
    found = encoder(norm_first=norm_first).train(training)

    def call(x: Tensor, mask: Tensor) -> Tensor:
        return found(x, src_key_padding_mask=~mask)

    assert_padding_invariant(call, SETS, "dense", atol=1e-5, rtol=0)
    found(torch.randn(2, 5, 8)).square().sum().backward()
    assert all(bool(p.grad.any()) for p in found.layers[0].self_attn.parameters())


def test_the_order_of_the_dimensions_is_that_of_the_layer():
    x = torch.randn(2, 5, 8)
    first, last = encoder().eval(), encoder(batch_first=False).eval()
    torch.testing.assert_close(last(x.transpose(0, 1)).transpose(0, 1), first(x))
    attention = MultiheadSliceSort(8, batch_first=False)
    one = x[0]
    assert torch.equal(attention(one, one, one)[0], attention.slice_sort(one))


def test_what_sorting_cannot_mask_is_refused():
    x, attention = torch.randn(2, 5, 8), MultiheadSliceSort(8)
    with pytest.raises(ValueError, match="query, key and value differ"):
        attention(x, x.clone(), x)
    with pytest.raises(ValueError, match="attn_mask is given"):
        attention(x, x, x, attn_mask=torch.zeros(5, 5))
    with pytest.raises(ValueError, match="attn_mask is given"):
        TokenSliceSort(8)(x, is_causal=True)


def test_tokens_are_sorted_as_by_the_layer():
    torch.manual_seed(0)
    tokens = TokenSliceSort(8, qkv_bias=True, qk_norm=False, norm_layer=torch.nn.LayerNorm)
    layer, x = SliceSort(8), torch.randn(2, 5, 8)
    layer.value_proj.load_state_dict(tokens.slice_sort.value_proj.state_dict())
    layer.out_proj.load_state_dict(tokens.proj.state_dict())
    torch.testing.assert_close(tokens(x), layer(x))


@pytest.fixture(scope="module")
def timm() -> ModuleType:
    """timm with its torchvision, also one that is built for CUDA next to a torch for the CPU.

    Such a torchvision cannot load its operators, and its import ends at the first of two that are
    missing. Both are for detection: they are declared here, and nothing calls them.
    """
    if find_spec("timm") is None or find_spec("torchvision") is None:
        pytest.skip("needs timm and torchvision: make test-timm")
    try:
        import_module("torchvision")
    except RuntimeError:
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define("torchvision::nms", schema)
        torch.library.define("torchvision::qnms", schema)
    return import_module("timm")


def test_a_vision_transformer_of_timm_sorts(timm):
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2}
    model = timm.models.VisionTransformer(num_classes=3, attn_layer=TokenSliceSort, **sizes)
    out = model(torch.randn(2, 3, 16, 16))
    assert out.shape == (2, 3)
    out.square().sum().backward()
    assert all(bool(p.grad.any()) for p in model.blocks[0].attn.parameters())


def test_a_model_of_timm_by_name_sorts(timm):
    options = {"img_size": 32, "num_classes": 10, "attn_layer": TokenSliceSort}
    model = timm.create_model("vit_tiny_patch16_224", **options).eval()
    kinds = {type(block.attn) for block in model.blocks}
    assert kinds == {TokenSliceSort}
    x = torch.randn(2, 3, 32, 32)
    out = model(x)
    assert out.shape == (2, 10)
    torch.testing.assert_close(out[:1], model(x[:1]))  # an image does not depend on the others
