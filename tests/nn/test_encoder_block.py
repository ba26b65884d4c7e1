"""What a block computes twice, it computes alike."""

import pytest
import torch
from models.small_graphs import disconnected_graph, random_graph
from torch_geometric.data import Batch

from slicegraph.models import GraphSliceformer
from slicegraph.nn import Edges, EncoderBlock, LocalBranch, Mixer, PairBias
from slicegraph.nn.padded_sets import PaddedSets


def step(recompute, mixer, post_norm, dropout, **overrides):
    torch.manual_seed(0)
    model = GraphSliceformer.from_preset(
        "mini",
        mixer=mixer,
        post_norm=post_norm,
        recompute=recompute,
        dropout=dropout,
        attention_dropout=dropout,
        **overrides,
    ).train()
    batch = Batch.from_data_list([random_graph(7), disconnected_graph(), random_graph(1)])
    torch.manual_seed(1)
    out = model(batch)
    out.square().sum().backward()
    return out, [p.grad for p in model.parameters()]


def assert_alike(recompute, *case, **overrides):
    out, gradients = step("none", *case, **overrides)
    again, gradients_again = step(recompute, *case, **overrides)
    assert torch.equal(out, again)
    for ours, expected in zip(gradients_again, gradients, strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("recompute", ["mix", "all"])
@pytest.mark.parametrize(
    "mixer", ["quantile_attn", "sort_attn", "attn_plus_sort", "sort", "attn", "qkv"]
)
@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_recomputing_changes_no_result(recompute, mixer, post_norm, dropout):
    assert_alike(recompute, mixer, post_norm, dropout)


@pytest.mark.parametrize("recompute", ["mix", "all"])
@pytest.mark.parametrize("mixer", ["sort_attn", "qkv"])
@pytest.mark.parametrize("post_norm", [False, True])
def test_recomputing_a_local_branch_changes_no_result(recompute, mixer, post_norm):
    sizes = {"num_layers": 2, "channels": 16, "ffn_channels": 16, "heads": 2}
    assert_alike(recompute, mixer, post_norm, 0.3, local="gine", **sizes)


def kept_rows(recompute):
    """How many tensors of the size of its input a block keeps for the backward pass."""
    block = EncoderBlock(Mixer(32, mixer="sort_attn"), 32, recompute=recompute)
    x = torch.randn(100, 32, requires_grad=True)
    ptr = torch.tensor([0, 40, 100])
    pairs = PairBias(torch.randn(2, 1, 60, 60), PaddedSets(ptr))
    kept = {}

    def keep(tensor):
        if tensor.shape == x.shape and tensor.is_floating_point():
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block(x, ptr, pairs)
    return len(kept)


def test_a_block_keeps_as_many_tensors_as_its_documentation_says():
    assert [kept_rows(name) for name in ("none", "mix", "all")] == [5, 4, 2]


@pytest.mark.parametrize(
    "mixer", ["quantile_attn", "sort_attn", "attn_plus_sort", "sort", "attn", "qkv"]
)
@pytest.mark.parametrize("recompute", ["none", "mix", "all"])
@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_some_rows_are_those_of_all_and_so_are_their_gradients(mixer, recompute, post_norm, local):
    torch.manual_seed(0)
    branch = LocalBranch(8) if local else None
    block = EncoderBlock(
        Mixer(8, 2, mixer), 12, post_norm=post_norm, recompute=recompute, local=branch
    ).double()
    x = torch.randn(7, 8, dtype=torch.float64, requires_grad=True)
    ptr, rows = torch.tensor([0, 3, 7]), torch.tensor([0, 3])
    pairs = PairBias(torch.randn(2, 2, 4, 4, dtype=torch.float64), PaddedSets(ptr))
    edges = Edges(torch.tensor([[1, 2, 2, 5], [0, 0, 1, 3]]), None)
    some, expected = block(x, ptr, pairs, rows, edges), block(x, ptr, pairs, edges=edges)[rows]
    torch.testing.assert_close(some, expected)
    wanted = [x, *block.parameters()]
    found = torch.autograd.grad(some.square().sum(), wanted)
    torch.testing.assert_close(found, torch.autograd.grad(expected.square().sum(), wanted))


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="recompute = 'some', expected one of none, mix, all"):
        EncoderBlock(Mixer(8, mixer="sort"), 8, recompute="some")
