"""Traces hold what the layers compute, and their measures are those of numpy."""

import numpy as np
import pytest
import torch
from models.small_graphs import random_graph
from support.small_models import small_model
from support.traced_models import LENGTHS, image_model, images, sequence_model, tokens
from torch_geometric.data import Batch

from slicegraph.analysis import (
    effective_rank,
    implicit_permutation,
    measure,
    singular_values,
    slice_weights,
    softmax_smoothing,
    trace,
)
from slicegraph.nn import Order

ORDERS = ["ascending", "descending", "interleave", "max_exchange"]
X = torch.tensor([[3.0, 9.0], [1.0, 7.0], [2.0, 9.0], [1.0, 8.0]])


def graphs() -> Batch:
    return Batch.from_data_list([random_graph(n, seed=n) for n in (5, 9)])


def traced(kind: str, mixer: str, **fields):
    if kind == "graph":
        return trace(small_model(mixer=mixer, **fields), graphs())
    if kind == "sequence":
        return trace(sequence_model(mixer, **fields), *tokens())
    return trace(image_model(mixer, **fields), images())


@pytest.mark.parametrize(
    ("kind", "mixer"),
    [
        ("graph", "quantile_attn"),
        ("graph", "sort_attn"),
        ("graph", "attn_plus_sort"),
        ("graph", "sort"),
        ("graph", "attn"),
        ("graph", "qkv"),
        ("graph", "slice_attn"),
        ("sequence", "sort"),
        ("sequence", "qkv"),
        ("image", "sort"),
        ("image", "qkv"),
    ],
)
def test_the_layers_of_every_kind_of_model_are_traced_in_order(kind, mixer):
    layers = traced(kind, mixer)
    assert len(layers) == (2 if kind == "graph" else 3)
    for layer in layers:
        rows, width = int(layer.ptr[-1]), layer.mixer.out_proj.in_features
        assert layer.mixed.shape == (rows, width)
        assert layer.block.shape == (rows, 16)
        assert (layer.ordered is None) == (mixer in ("attn", "qkv", "slice_attn"))
        assert (layer.keys is None) == (mixer != "slice_attn")


@torch.no_grad()
def test_all_rows_of_the_last_block_are_traced_and_the_model_gets_those_it_reads():
    model = small_model(local="gine", readout="token")
    *_, last = trace(model, graphs())
    assert last.block.shape == (int(last.ptr[-1]), 16)
    torch.testing.assert_close(model.final_norm(last.block[last.ptr[:-1]]), model.embed(graphs()))
    model = sequence_model(readout="mean")
    *_, last = trace(model, *tokens())
    means = [last.rows(model.final_norm(last.block), i).mean(0) for i in range(len(LENGTHS))]
    torch.testing.assert_close(torch.stack(means), model.embed(*tokens()))


@pytest.mark.parametrize("order", ORDERS)
def test_the_mixed_rows_of_a_sorting_layer_are_the_permuted_channels(order):
    for layer in traced("sequence", "sort", order=order):
        assert torch.equal(layer.mixed, layer.ordered)
        for sample, length in enumerate(layer.ptr.diff().tolist()):
            before, after = (layer.rows(x, sample) for x in (layer.unordered, layer.ordered))
            for channel in (0, 7, 15):
                sources = implicit_permutation(layer.order, before, channel)
                assert torch.equal(before[sources, channel], after[:, channel])
                assert sources.sort().values.tolist() == list(range(length))


@torch.no_grad()
def test_the_channels_of_which_quantiles_are_read_are_sorted_upwards_in_every_graph():
    for layer in traced("graph", "quantile_attn"):
        torch.testing.assert_close(layer.mixer.context(layer.unordered, layer.ptr), layer.mixed)
        for number in range(2):
            before, after = (layer.rows(x, number) for x in (layer.unordered, layer.ordered))
            assert torch.equal(before.sort(0).values, after)
            sources = implicit_permutation(layer.order, before, channel=3)
            assert torch.equal(sources, before[:, 3].sort(stable=True).indices)


@torch.no_grad()
def test_the_mixed_rows_of_attention_are_softmax_times_values():
    model = image_model("qkv", num_layers=1, heads=1, readout="mean")
    (block,) = model.patches.blocks
    inputs = []
    block.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    (layer,) = trace(model, images(1))
    x = block.mixer_norm(inputs[0])
    q, k, v = (f(x) for f in (block.mixer.query_proj, block.mixer.key_proj, block.mixer.value_proj))
    expected = torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1) @ v
    torch.testing.assert_close(layer.mixed, expected)


@torch.no_grad()
def test_the_mixed_rows_of_a_slice_are_banded_weights_times_values():
    model = image_model("slice", num_layers=1, heads=2, readout="mean")
    (block,) = model.patches.blocks
    inputs = []
    block.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    (layer,) = trace(model, images(1))
    values = block.mixer.value_proj(block.mixer_norm(inputs[0])).chunk(2, dim=1)
    for number, tau in enumerate(block.mixer.slices.log_tau.exp()):
        weights, order = slice_weights(layer.keys[:, number], tau), layer.keys[:, number].argsort()
        mixed = layer.mixed.chunk(2, dim=1)[number]
        torch.testing.assert_close(weights @ values[number][order], mixed[order])
        for i, row in enumerate(weights):  # a band: weights fall off to both sides
            assert (row[: i + 1].diff() >= 0).all()
            assert (row[i:].diff() <= 0).all()


@pytest.mark.parametrize(("readout", "added"), [("mean", 0), ("cls", 1)])
def test_tokens_are_rows_and_padding_is_not(readout, added):
    layer = traced("sequence", "sort", readout=readout)[0]
    assert layer.ptr.diff().tolist() == [length + added for length in LENGTHS]


def test_the_rows_of_one_set_keep_no_others_in_memory():
    layer = traced("sequence", "sort", readout="mean")[1]
    own = layer.only(2)
    assert own.ptr.tolist() == [0, LENGTHS[2]]
    for name in ("unordered", "ordered", "mixed", "block"):
        kept = getattr(own, name)
        assert torch.equal(kept, layer.rows(getattr(layer, name), 2))
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()


@pytest.mark.parametrize("side", [8, 9])
def test_hooks_are_removed_and_the_mode_is_kept_after_an_error_too(side):
    model = image_model().train()
    if side == 8:
        trace(model, images())
    else:
        with pytest.raises(ValueError, match="expected"):
            trace(model, torch.zeros(1, 1, side, side))
    assert model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_model_without_mixing_layers_is_refused():
    with pytest.raises(ValueError, match="Linear has no mixing layers"):
        trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("order", "x", "expected"),
    [
        ("ascending", X, [1, 3, 2, 0]),
        ("descending", X, [0, 2, 1, 3]),
        ("max_exchange", X, [0, 1, 2, 3]),
        ("max_exchange", X.flip(0), [3, 1, 2, 0]),
        ("max_exchange", torch.tensor([[1.0], [2.0], [2.0]]), [1, 0, 2]),
    ],
)
def test_the_permutation_is_stable(order, x, expected):
    found = implicit_permutation(Order(order, x.shape[1]), x, channel=0)
    assert found.tolist() == expected


@pytest.mark.parametrize("channel", [-1, 2])
def test_channel_out_of_range_is_refused(channel):
    with pytest.raises(ValueError, match=rf"there is no channel {channel}, they are 0\.\.1"):
        implicit_permutation(Order("ascending", 2), X, channel)


def numpy_rank(values: np.ndarray) -> float:
    shares = values[values > 0] / values.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def test_singular_values_of_every_set_end_in_zeros():
    sizes, rows = (4, 9, 1, 0, 6), torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    found = singular_values(rows, torch.tensor([0, *np.cumsum(sizes)])).numpy()
    expected = np.zeros((5, 6))
    for values, part in zip(expected, rows.double().split(sizes), strict=True):
        own = np.linalg.svd(part.numpy(), compute_uv=False)
        values[: len(own)] = own
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("matrix", "rank"),
    [
        (3 * torch.eye(1), 1),
        (3 * torch.eye(40), 40),
        (torch.outer(torch.arange(1.0, 8.0), torch.tensor([1.0, -2.0, 0.5])), 1),
        (torch.zeros(3, 4), 0),
    ],
)
def test_effective_rank(matrix, rank):
    values = singular_values(matrix, torch.tensor([0, len(matrix)]))
    assert effective_rank(values).tolist() == pytest.approx([rank], rel=1e-4)


def parts(model, sizes):
    """The traces of the tokens, cut into batches of these sizes."""
    for x, mask in zip(*(part.split(sizes) for part in tokens()), strict=True):
        longest = int(mask.sum(1).max())
        yield trace(model, x[:, :longest], mask[:, :longest])


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
@pytest.mark.parametrize("sizes", [[3], [1, 1, 1], [1, 2]])
def test_measures_are_means_over_the_samples_of_all_batches(mixer, sizes):
    model = sequence_model(mixer, readout="mean")
    found = measure("m", parts(model, sizes), sample=1)
    layers = trace(model, *tokens())
    assert found.sizes == LENGTHS
    for layer, measures, kept in zip(layers, found.layers, found.traces, strict=True):
        torch.testing.assert_close(kept.block, layer.rows(layer.block, 1))
        for rows, own in ((layer.mixed, measures.mixed), (layer.block, measures.block)):
            sets = [part.double().numpy() for part in rows.split(LENGTHS)]
            values = [np.linalg.svd(x, compute_uv=False) for x in sets]
            ranks = [numpy_rank(s) for s in values]
            assert own.effective_rank == pytest.approx(np.mean(ranks), rel=1e-4)
            shares = [s[0] ** 2 / (s**2).sum() for s in values]
            assert own.first_share == pytest.approx(np.mean(shares), rel=1e-4)
            spectrum = np.zeros(len(own.spectrum))
            for s in values:
                spectrum[: len(s)] += s / s[0] / len(values)
            assert own.spectrum == pytest.approx(spectrum, rel=1e-4, abs=1e-5)
    ranks = [layer.mixed.effective_rank for layer in found.layers]
    assert found.effective_rank == pytest.approx(np.mean(ranks))


def test_a_sample_of_pairs_is_a_pair():
    x, mask = (torch.stack([part, part.flip(0)], 1) for part in tokens())
    layers = trace(sequence_model(towers=2, readout="mean"), x, mask)
    found = measure("m", [layers], sample=2, towers=2)
    assert found.drawn == "the first text of pair 2"
    assert torch.equal(found.traces[0].mixed, layers[0].rows(layers[0].mixed, 4))
    for sample in (-1, 3):
        with pytest.raises(ValueError, match=rf"there is no sample {sample}, they are 0\.\.2"):
            measure("m", [layers], sample=sample, towers=2)


def test_an_output_that_is_not_finite_is_refused_by_name():
    model = sequence_model()
    with torch.no_grad():
        model.blocks[1].mixer.value_proj.bias[0] = float("nan")
    with pytest.raises(ValueError, match="small: layer 2 has an output that is not finite"):
        measure("small", [trace(model, *tokens())])


@pytest.mark.parametrize("deviation", [0.0, 0.5, 1.0])
def test_softmax_weights_reach_their_limits(deviation):
    n = 100_000
    found = softmax_smoothing([n], draws=4, deviation=deviation)
    half = np.exp(deviation**2 / 2)
    assert found.sharpness == pytest.approx([half / n], rel=0.02)
    assert found.spread == pytest.approx([half / n**0.5], rel=0.02)
    assert found.largest >= 1 / n


def test_softmax_weights_fall_with_the_number_of_rows_and_depend_on_the_seed():
    one, other, another = (softmax_smoothing([10, 100, 1000], 4, seed=seed) for seed in (1, 1, 2))
    for values in (one.largest, one.sharpness, one.spread):
        assert (np.diff(values) < 0).all()
        assert values[0] < 1
    assert one.largest.tolist() == other.largest.tolist()
    assert one.largest.tolist() != another.largest.tolist()
