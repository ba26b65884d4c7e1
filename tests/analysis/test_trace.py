"""What the hooks catch is what the layers compute."""

import pytest
import torch
from models.small_graphs import random_graph
from support.small_models import small_model
from support.traced_models import LENGTHS, image_model, images, sequence_model, tokens
from torch_geometric.data import Batch

from slicegraph.analysis import trace

ORDERS = ["ascending", "descending", "interleave", "max_exchange"]


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
        ("sequence", "sort"),
        ("sequence", "qkv"),
        ("image", "sort"),
        ("image", "qkv"),
    ],
)
@torch.no_grad()
def test_the_layers_of_every_kind_of_model_are_caught_in_order(kind, mixer):
    layers = traced(kind, mixer)
    assert len(layers) == (2 if kind == "graph" else 3)
    for layer in layers:
        rows, width = int(layer.ptr[-1]), layer.mixer.out_proj.in_features
        assert layer.mixed.shape == (rows, width)
        assert layer.block.shape == (rows, 16)
        assert (layer.ordered is None) == (mixer in ("attn", "qkv"))


@torch.no_grad()
def test_all_rows_of_the_last_block_are_caught_with_a_local_branch_too():
    model = small_model(local="gine", readout="token")
    *_, last = trace(model, graphs())
    assert last.block.shape == (int(last.ptr[-1]), 16)
    torch.testing.assert_close(model.final_norm(last.block[last.ptr[:-1]]), model.embed(graphs()))


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_sorting_layer_mixes_is_a_column_wise_rearrangement(order):
    for layer in traced("sequence", "sort", order=order):
        assert torch.equal(layer.mixed, layer.ordered)
        for sample in range(len(LENGTHS)):
            before, after = (layer.rows(x, sample) for x in (layer.unordered, layer.ordered))
            assert torch.equal(before.sort(0).values, after.sort(0).values)


@torch.no_grad()
def test_what_a_layer_reads_quantiles_of_is_sorted_graph_by_graph():
    for layer in traced("graph", "quantile_attn"):
        context = layer.mixer.context
        torch.testing.assert_close(context(layer.unordered, layer.ptr), layer.mixed)
        for number in range(2):
            before, after = (layer.rows(x, number) for x in (layer.unordered, layer.ordered))
            assert torch.equal(before.sort(0).values, after)


@torch.no_grad()
def test_what_attention_mixes_is_softmax_times_values():
    model = image_model("qkv", num_layers=1, heads=1)
    caught = {}
    mixer = model.patches.blocks[0].mixer
    mixer.register_forward_pre_hook(lambda m, inputs: caught.update(x=inputs[3](inputs[0])))
    (layer,) = trace(model, images(1))
    q, k, v = (f(caught["x"]) for f in (mixer.query_proj, mixer.key_proj, mixer.value_proj))
    expected = torch.softmax(q @ k.T / q.shape[1] ** 0.5, dim=1) @ v
    torch.testing.assert_close(layer.mixed, expected)


@torch.no_grad()
def test_the_last_block_is_what_the_readout_reads():
    model = sequence_model(readout="mean")
    *_, last = trace(model, *tokens())
    means = [last.rows(model.final_norm(last.block), i).mean(0) for i in range(len(LENGTHS))]
    torch.testing.assert_close(torch.stack(means), model.embed(*tokens()))


def test_every_row_counts_and_padding_does_not():
    layer = traced("sequence", "sort", readout="mean")[0]
    assert layer.ptr.diff().tolist() == list(LENGTHS)
    layer = traced("sequence", "sort", readout="cls")[0]
    assert layer.ptr.diff().tolist() == [n + 1 for n in LENGTHS]


def test_the_rows_of_one_set_keep_no_others_in_memory():
    layer = traced("sequence", "sort", readout="mean")[1]
    own = layer.only(2)
    assert own.ptr.tolist() == [0, LENGTHS[2]]
    for name in ("unordered", "ordered", "mixed", "block"):
        kept = getattr(own, name)
        assert torch.equal(kept, layer.rows(getattr(layer, name), 2))
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()


def test_hooks_are_removed_and_the_mode_is_kept():
    model = image_model().train()
    trace(model, images())
    assert model.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_are_removed_after_an_error_too():
    model = image_model()
    with pytest.raises(ValueError, match="expected"):
        trace(model, torch.zeros(1, 3, 8, 8))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_model_without_mixing_layers_is_refused():
    with pytest.raises(ValueError, match="Linear has no mixing layers"):
        trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
