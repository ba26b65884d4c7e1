"""SequenceSliceformer and VisionSliceformer: laws, shapes, files and mistakes."""

import pytest
import torch
from torch import Tensor

from slicegraph.models import (
    SequenceSliceformer,
    SequenceSliceformerConfig,
    VisionSliceformer,
    VisionSliceformerConfig,
    load,
)
from slicegraph.nn.mixer import SEQUENCE_MIXERS
from slicegraph.nn.readout import SEQUENCE_READOUTS
from slicegraph.nn.slice_sort import ORDERS
from slicegraph.testing import (
    assert_backends_agree,
    assert_padding_invariant,
    assert_permutation_invariant,
)

SIZES = {"num_layers": 3, "channels": 16, "ffn_channels": 24, "heads": 4, "hidden_channels": 32}
LENGTHS = (7, 1, 12)
CASES = [
    (name, order)
    for name, kind in SEQUENCE_MIXERS.items()
    for order in (ORDERS if kind.needs_order else ["ascending"])
]


def model(mixer: str = "sort", order: str = "ascending", **fields) -> SequenceSliceformer:
    torch.manual_seed(0)
    values = {"vocabulary": 30, "max_length": 20, "num_classes": 3, **SIZES, **fields}
    return SequenceSliceformer(SequenceSliceformerConfig(mixer=mixer, order=order, **values)).eval()


def tokens(length: int, seed: int = 0) -> Tensor:
    return torch.randint(30, (length,), generator=torch.Generator().manual_seed(seed))


def vision(mixer: str = "sort", order: str = "ascending", **fields) -> VisionSliceformer:
    torch.manual_seed(0)
    values = {"image_size": 8, "patch_size": 2, "image_channels": 1, "num_classes": 3, **SIZES}
    config = VisionSliceformerConfig(mixer=mixer, order=order, **{**values, **fields})
    return VisionSliceformer(config).eval()


@pytest.mark.parametrize(("mixer", "order"), CASES)
@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@torch.no_grad()
def test_a_padded_batch_gives_what_each_sequence_alone_gives(mixer, order, readout):
    sequences = [tokens(n, seed=n) for n in LENGTHS]
    net = model(mixer, order, readout=readout)
    assert_padding_invariant(net, sequences, holes=True, rtol=0, atol=1e-5)
    x = tokens(24).view(2, 12)
    assert torch.equal(net(x), net(x, torch.ones(2, 12, dtype=torch.bool)))
    mask = torch.tensor([[True] * 4, [False] * 4])
    together = net(tokens(8).view(2, 4), mask)[1:]
    nothing = tokens(0).view(1, 0)  # an empty sequence alone, and next to another
    for alone in (net(nothing), net(nothing, nothing > 0), net(tokens(4)[None], mask[1:])):
        torch.testing.assert_close(alone, together, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@pytest.mark.parametrize("towers", [1, 2])
def test_a_batch_of_no_samples_has_no_logits(mixer, readout, towers):
    net = model(mixer, readout=readout, towers=towers)
    x = tokens(0).view((0, 5) if towers == 1 else (0, 2, 5))
    for mask in (None, x > 0):
        assert net(x, mask).shape == (0, 3)
    net(x).sum().backward()
    assert vision(mixer, readout=readout)(torch.zeros(0, 1, 8, 8)).shape == (0, 3)


@pytest.mark.parametrize(("mixer", "order"), CASES)
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@torch.no_grad()
def test_vectors_with_positions_and_post_norm_are_padding_invariant_too(mixer, order, positions):
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randn(n, 5, generator=generator) for n in LENGTHS]
    net = model(mixer, order, vocabulary=None, in_channels=5, positions=positions, post_norm=True)
    assert_padding_invariant(net, sequences, holes=True, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("mixer", "order"), CASES)
def test_padding_is_not_read_and_has_no_gradient(mixer, order):
    net = model(mixer, order, vocabulary=None, in_channels=5)
    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    x[~mask] = torch.nan
    x.requires_grad_()
    net(x, mask).sum().backward()
    assert bool(x.grad[mask].isfinite().all())
    assert not bool(x.grad[~mask].any())
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@torch.no_grad()
def test_without_positions_attention_is_blind_to_the_order_and_sorting_in_rows_is_not(mixer):
    net = model(mixer, positions="none", vocabulary=None, in_channels=5)
    sets = [torch.randn(n, 5, generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
    if not SEQUENCE_MIXERS[mixer].needs_order:
        assert_permutation_invariant(net, sets, rtol=0, atol=1e-5)
    else:
        with pytest.raises(AssertionError, match="changes when its rows are permuted"):
            assert_permutation_invariant(net, sets, rtol=0, atol=1e-5)


@torch.no_grad()
def test_both_towers_are_compared_by_the_head():
    net = model(towers=2, head_channels=10)
    one = model(head_channels=10)
    one.load_state_dict({**net.state_dict(), "head_in.weight": one.head_in.weight})
    pairs = tokens(24).view(2, 2, 6)
    mask = torch.tensor([[[True] * 6, [True] * 3 + [False] * 3], [[True] * 2 + [False] * 4] * 2])
    a, b = one.embed(pairs[:, 0], mask[:, 0]), one.embed(pairs[:, 1], mask[:, 1])
    hidden = net.head_in(torch.cat([a, b, a * b, a - b], dim=1)).relu()
    torch.testing.assert_close(net(pairs, mask), net.head(hidden), rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", ["interleave", "max_exchange"])
def test_backends_agree(order):
    net = model(order=order)
    x = tokens(24).view(2, 12)
    assert_backends_agree(net, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("mixer", "order"), CASES)
@torch.no_grad()
def test_an_image_does_not_depend_on_the_batch(mixer, order):
    net = vision(mixer, order)
    images = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([net(image[None]) for image in images])
    torch.testing.assert_close(net(images), alone, rtol=0, atol=1e-5)


def test_patches_go_row_by_row():
    patches = vision().cut(torch.arange(64.0).view(1, 1, 8, 8))
    assert patches.shape == (1, 16, 4)
    assert patches[0, 0].tolist() == [0, 1, 8, 9]
    assert patches[0, 1].tolist() == [2, 3, 10, 11]
    assert patches[0, 4].tolist() == [16, 17, 24, 25]


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@torch.no_grad()
def test_a_saved_model_is_loaded_as_it_was(tmp_path, mixer):
    order = "interleave"
    samples = {
        model(mixer, order, positions="sinusoidal", class_names=("a", "b", "c")): tokens(9)[None],
        vision(mixer, order): torch.randn(2, 1, 8, 8),
    }
    for net, x in samples.items():
        folder = tmp_path / type(net).__name__
        net.save(folder)
        loaded = load(folder)
        assert type(loaded) is type(net)
        assert loaded.config == net.config
        assert torch.equal(loaded(x), net(x))


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
def test_a_model_made_on_the_meta_device_can_be_reset(mixer):
    fields = {"order": "interleave", "positions": "sinusoidal"}
    expected = model(mixer, **fields)
    with torch.device("meta"):
        net = model(mixer, **fields)
    net.to_empty(device="cpu")
    net.reset_parameters()
    net.load_state_dict(expected.state_dict())
    assert torch.equal(net(tokens(9)[None]), expected(tokens(9)[None]))


@pytest.mark.parametrize(
    ("fields", "x", "message"),
    [
        ({}, torch.zeros(2, 5), r"expected tokens of shape \[B, N\]"),
        ({}, torch.zeros(2, 2, 5).long(), r"shape \[2, 2, 5\] .* expected tokens"),
        ({"towers": 2}, torch.zeros(2, 3, 5).long(), r"expected tokens of shape \[B, 2, N\]"),
        (
            {"vocabulary": None, "in_channels": 4},
            torch.zeros(2, 5, 3),
            r"floating-point numbers of shape \[B, N, 4\]",
        ),
        ({}, torch.full((1, 3), 30), r"= 30 is not in 0\.\.29"),
        ({}, torch.zeros(1, 21).long(), "has 21 elements, max_length is 20"),
    ],
)
def test_an_input_that_does_not_fit_is_named(fields, x, message):
    with pytest.raises(ValueError, match=message):
        model(**fields)(x)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"in_channels": 3}, "vocabulary = 30 .* in_channels = 3 .* expected one of them"),
        ({"vocabulary": None}, "expected one of them"),
        ({"towers": 3}, "towers = 3, expected 1 or 2"),
        ({"dropout": 1.0}, r"dropout = 1\.0"),
        ({"num_layers": 0}, "num_layers = 0 must be at least 1"),
        ({"readout": "sum"}, "readout = 'sum', expected one of cls, mean, max"),
        ({"positions": "rotary"}, "unknown positions 'rotary'"),
        ({"order": "sideways"}, "unknown order 'sideways'"),
        ({"mixer": "attn"}, "mixer = 'attn', expected one of sort, slice, qkv"),
        ({"class_names": ("a",)}, "1 class_names for 3 classes"),
    ],
)
def test_a_configuration_that_does_not_fit_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        model(**fields)


def test_an_image_of_another_size_is_named():
    with pytest.raises(ValueError, match=r"shape \[1, 1, 6, 8\], expected \[B, 1, 8, 8\]"):
        vision()(torch.zeros(1, 1, 6, 8))
    with pytest.raises(ValueError, match="patch_size = 3 does not divide image_size = 8"):
        vision(patch_size=3)
