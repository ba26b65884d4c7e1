"""EncoderBlock against its formula, and what it recomputes."""

from itertools import product

import pytest
import torch
from models.small_graphs import disconnected_graph, random_graph
from support.multigraphs import edge_tensor
from torch.nn.functional import gelu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch

from slicegraph.models import GraphSliceformer
from slicegraph.nn import Edges, EncoderBlock, LocalBranch, Mixer, PairBias
from slicegraph.nn.block import LOCALS
from slicegraph.nn.mixer import MIXERS, linear_of
from slicegraph.nn.packed import PaddedSets
from slicegraph.nn.slice_sort import NORMS

PTR = torch.tensor([0, 3, 7])
EDGES = Edges(edge_tensor([(1, 0), (2, 0), (2, 1), (5, 3), (3, 3)]), None)


def case(mixer="attn", local=False, **options):
    """A block in double precision, its input and its pairs."""
    torch.manual_seed(0)
    branch = LocalBranch(8) if local else None
    block = EncoderBlock(Mixer(8, 2, mixer), 12, local=branch, **options).double()
    x = torch.randn(7, 8, dtype=torch.float64, requires_grad=True)
    return block, x, PairBias(torch.randn(2, 2, 4, 4, dtype=torch.float64), PaddedSets(PTR))


@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_a_block_follows_its_formula(post_norm, local):
    block, x, pairs = case(local=local, post_norm=post_norm)
    read = x if post_norm else block.mixer_norm(x)
    y = x + block.mixer(read, PTR, pairs) + (block.local(read, EDGES) if local else 0)
    y = block.mixer_norm(y) if post_norm else y
    y = y + block.ffn_out(gelu(block.ffn_in(y if post_norm else block.ffn_norm(y))))
    expected = block.ffn_norm(y) if post_norm else y
    torch.testing.assert_close(block(x, PTR, pairs, edges=EDGES), expected)


def step(recompute, **fields):
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "channels": 16, "ffn_channels": 16, "heads": 2}
    model = GraphSliceformer.from_preset("mini", recompute=recompute, **sizes, **fields).train()
    batch = Batch.from_data_list([random_graph(7), disconnected_graph(), random_graph(1)])
    torch.manual_seed(1)
    out = model(batch)
    out.square().sum().backward()
    return out, [p.grad for p in model.parameters()]


# Every mixer with and without random numbers, and every form of the block with one of them.
RECOMPUTED = dict.fromkeys(
    [
        *product(MIXERS, [False], ["gine"], [0.0, 0.3]),
        *product(["sort_attn"], [False, True], LOCALS, [0.3]),
    ]
)


@pytest.mark.parametrize(("mixer", "post_norm", "local", "dropout"), RECOMPUTED)
def test_recomputing_changes_no_result(mixer, post_norm, local, dropout):
    fields = {"mixer": mixer, "post_norm": post_norm, "local": local}
    fields |= {"dropout": dropout, "attention_dropout": dropout}
    out, gradients = step("none", **fields)
    for recompute in ("mix", "all"):
        again, gradients_again = step(recompute, **fields)
        assert torch.equal(out, again)
        torch.testing.assert_close(gradients_again, gradients)


def kept_rows(recompute):
    """How many tensors of the size of its input a block keeps for the backward pass."""
    block = EncoderBlock(Mixer(32, mixer="sort_attn"), 32, recompute=recompute)
    x = torch.randn(4000, 32, requires_grad=True)
    ptr = torch.arange(0, 4001, 4)
    pairs = PairBias(torch.randn(1000, 1, 4, 4), PaddedSets(ptr))
    block(x, ptr, pairs)  # the pairs have their weights now
    with torch.profiler.profile(profile_memory=True) as profile:
        out = block(x, ptr, pairs)
    allocated = sum(event.self_cpu_memory_usage for event in profile.events())
    return round((allocated - out.nbytes + x.nbytes) / x.nbytes)  # and half a tensor of others


def test_a_block_keeps_as_many_tensors_as_its_documentation_says():
    assert [kept_rows(name) for name in ("none", "mix", "all")] == [5, 4, 2]


@pytest.mark.parametrize("function", [torch.nn.LayerNorm(6), gelu])
@pytest.mark.parametrize("autocast", [False, True])
def test_linear_of_has_the_gradients_of_plain_torch(function, autocast):
    linear, x = torch.nn.Linear(6, 4), torch.randn(5, 6, requires_grad=True)
    wanted = [x, *linear.parameters(), *getattr(function, "parameters", list)()]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outs = linear_of(function, x, linear), linear(function(x))
    assert torch.equal(*outs)
    found, expected = (torch.autograd.grad(out.float().square().sum(), wanted) for out in outs)
    assert all(map(torch.equal, found, expected))


def test_linear_of_is_differentiable_twice_and_by_functional_transforms():
    norm, linear = torch.nn.LayerNorm(6).double(), torch.nn.Linear(6, 4).double()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    for function in (norm, gelu):

        def run(x, function=function):
            return linear_of(function, x, linear)

        assert torch.autograd.gradgradcheck(run, x)
        jacobian = torch.func.jacrev(run)(x)
        torch.testing.assert_close(torch.func.jacfwd(run)(x), jacobian)
        again = checkpoint(run, x, use_reentrant=False)
        expected = torch.autograd.grad(linear(function(x)).sum(), [x, linear.weight])
        torch.testing.assert_close(torch.autograd.grad(again.sum(), [x, linear.weight]), expected)


def linear_products(recompute):
    """How many linear layers a training step of a block computes."""

    class Count(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, function, types, arguments=(), named=None):
            self.found += "addmm" in str(function)
            return function(*arguments, **(named or {}))

    block, x, pairs = case("sort_attn", recompute=recompute)
    with Count() as count:
        block(x, PTR, pairs).sum().backward()
    return count.found


def test_only_all_computes_linear_layers_twice():
    none, mix, everything = (linear_products(name) for name in ("none", "mix", "all"))
    assert none == mix == 4
    assert everything == 4 + 2  # the last layer of both branches is not needed again


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize("recompute", ["none", "mix", "all"])
@pytest.mark.parametrize("local", [False, True])
def test_some_rows_are_those_of_all_and_so_are_their_gradients(mixer, recompute, local):
    block, x, pairs = case(mixer, local, recompute=recompute)
    rows = torch.tensor([0, 3])
    some, expected = block(x, PTR, pairs, rows, EDGES), block(x, PTR, pairs, edges=EDGES)[rows]
    torch.testing.assert_close(some, expected)
    wanted = [x, *block.parameters()]
    found = torch.autograd.grad(some.square().sum(), wanted)
    torch.testing.assert_close(found, torch.autograd.grad(expected.square().sum(), wanted))


@pytest.mark.parametrize("post_norm", [False, True])
def test_a_batch_norm_reads_the_rows_of_all_sets(post_norm):
    block, x, pairs = case(norm="batch", post_norm=post_norm)

    def norm(x):
        return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()

    y = x + block.mixer(x if post_norm else norm(x), PTR, pairs)
    y = norm(y) if post_norm else y
    y = y + block.ffn_out(gelu(block.ffn_in(y if post_norm else norm(y))))
    out = block(x, PTR, pairs)
    torch.testing.assert_close(out, norm(y) if post_norm else y)
    out.sum().backward()  # which must not update the running means again
    assert block.mixer_norm.num_batches_tracked == block.ffn_norm.num_batches_tracked == 1


def test_a_batch_norm_of_one_row_reads_the_running_means():
    norm = NORMS["batch"](4).train()
    x = torch.randn(1, 4)
    mean, var = torch.randn(4), torch.rand(4) + 0.5
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(var)
    torch.testing.assert_close(norm(x), (x - mean) / (var + norm.eps).sqrt())
    torch.testing.assert_close((norm.running_mean, norm.running_var), (mean, var))
    rows = torch.randn(3, 4)
    torch.testing.assert_close(norm(rows), torch.nn.BatchNorm1d(4)(rows))


def test_wrong_use_is_named():
    with pytest.raises(ValueError, match="norm = 'batch' with recompute = 'mix'"):
        EncoderBlock(Mixer(8, mixer="sort"), 8, norm="batch", recompute="mix")
    with pytest.raises(ValueError, match="recompute 'some', expected one of none, mix, all"):
        EncoderBlock(Mixer(8, mixer="sort"), 8, recompute="some")
    with pytest.raises(ValueError, match="a block with a local branch needs edges"):
        EncoderBlock(Mixer(8, mixer="sort"), 8, local=LocalBranch(8))(torch.randn(3, 8), PTR)
