"""The models as on a GPU: padded sets, the numbers of the CPU, and no wait for the device."""

from collections import Counter
from typing import Any
from unittest import mock

import pytest
import torch
from models.small_graphs import disconnected_graph, random_graph
from support.traced_models import image_model, images, sequence_model, tokens
from support.waits import waits_on_gpu
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.nn.mixer import MIXERS, SEQUENCE_MIXERS
from slicegraph.ops import triton, use_backend
from slicegraph.ops.operator import as_on_gpu
from slicegraph.transforms import StructuralEncoding

SIZES = {"num_layers": 2, "channels": 8, "ffn_channels": 8, "heads": 2, "max_hops": 3}
KINDS: dict[str, dict[str, Any]] = {
    **{mixer: {"mixer": mixer} for mixer in MIXERS},
    "interleave": {"mixer": "sort_attn", "order": "interleave"},
    "max_exchange": {"mixer": "sort", "order": "max_exchange"},
    "pivot": {"mixer": "sort", "align": "pivot", "readout": "mean"},
    "pivot of a maximum": {"mixer": "sort", "order": "max_exchange", "align": "pivot"},
    "ours": {"mixer": "quantile_attn", "local": "gine", "readout": "quantiles"},
    "gated": {"mixer": "attn", "local": "gated", "readout": "sum_quantiles", "norm": "batch"},
    "walks": {"mixer": "attn", "local": "gine", "walk_length": 3, "walk_layers": True},
    "kernel": {"mixer": "attn", "pair_weights": "kernel", "walk_length": 3, "readout": "sum"},
    "nodes": {"mixer": "sort_attn", "task_level": "node"},
    "post norm": {"mixer": "qkv", "post_norm": True, "readout": "mean", "recompute": "mix"},
}


def graph_model(**fields: Any) -> GraphSliceformer:
    torch.manual_seed(0)
    model = GraphSliceformer(GraphSliceformerConfig(**{**SIZES, **fields}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def encoded(sizes: tuple[int, ...] = (5, 9, 1, 7), seed: int = 0) -> Data:
    """A batch as a data loader makes it."""
    graphs = [random_graph(n, seed + n) for n in sizes] + [disconnected_graph()]
    batch = StructuralEncoding(max_hops=3, walk_length=3)(Batch.from_data_list(graphs))
    batch.max_nodes = max(*sizes, 6)
    return batch


def outcome(model: torch.nn.Module, *inputs: Any) -> list[Tensor]:
    """The output, and the gradients of all parameters that have one."""
    model.zero_grad()
    out = model(*inputs)
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return [out.detach(), *(grads[name] for name in sorted(grads))]


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_give_the_same_numbers_and_never_wait(kind):
    model, batch = graph_model(**KINDS[kind]).double(), encoded()
    expected = outcome(model, batch)
    with waits_on_gpu() as waits:
        actual = outcome(model, batch)
    assert waits == []
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@pytest.mark.parametrize("readout", ["cls", "mean", "max"])
def test_sequences_give_the_same_numbers_and_never_wait(mixer, readout):
    model, (x, mask) = sequence_model(mixer, readout=readout).double(), tokens()
    mask, x = mask.flip(1), x.flip(1).masked_fill(~mask.flip(1), -1)  # padding that is no token
    expected = outcome(model, x, mask)
    with waits_on_gpu() as waits:
        actual = outcome(model, x, mask)
    assert waits == []
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
def test_images_give_the_same_numbers_and_never_wait(mixer):
    model = image_model(mixer, order="interleave").double()
    expected = outcome(model, images().double())
    with waits_on_gpu() as waits:
        actual = outcome(model, images().double())
    assert waits == []
    torch.testing.assert_close(actual, expected)


def test_the_encoder_is_dense_and_keeps_one_type_in_bfloat16():
    model, seen = graph_model(**KINDS["ours"], attention_dropout=0.1), []
    for module in (model.blocks[1].mixer, model.blocks[1].mixer.context, model.blocks[1].local):
        hook = lambda m, args, out: seen.append((type(m).__name__, out.shape, out.dtype))  # noqa: E731
        module.register_forward_hook(hook)
    with as_on_gpu(), torch.autocast("cpu", torch.bfloat16):
        model(encoded())
    found = {name: (shape, dtype) for name, shape, dtype in seen}
    assert found["QuantileContext"] == ((5, 9, 8), torch.bfloat16)
    assert found["Mixer"] == ((5, 9, 8), torch.bfloat16)
    assert found["LocalBranch"] == ((45, 8), torch.bfloat16)


class Operators(TorchDispatchMode):
    """How often each operator is called, and the shapes that are cast one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.casts: set[torch.Size] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.names[func._schema.name] += 1
        if func is torch.ops.aten._to_copy.default and out.dtype != args[0].dtype:
            self.casts.add(args[0].shape)
        return out


def test_in_bfloat16_a_layer_casts_its_parameters_together_and_nothing_is_recomputed():
    model = graph_model(**KINDS["sort_attn"], recompute="mix", attention_dropout=0.1)
    weights = {p.shape for p in model.blocks.parameters() if p.dim() == 2}
    forward, backward = Operators(), Operators()
    with as_on_gpu():
        with forward, torch.autocast("cpu", torch.bfloat16):
            loss = model(encoded()).float().sum()
        with backward:
            loss.backward()
    assert not weights & (forward.casts | backward.casts)
    assert forward.names["aten::_foreach_copy_"] == 2
    assert backward.names["aten::_foreach_copy_"] == 2
    assert "slicegraph::column_sort_kernel" in forward.names
    assert "slicegraph::column_sort_kernel" not in backward.names


@pytest.mark.parametrize("kind", [*KINDS, "recomputed"])
def test_graphs_in_bfloat16_follow_those_in_float32(kind):
    model = graph_model(**KINDS.get(kind, {"recompute": "all"}))
    out, *grads = outcome(model, encoded())
    with as_on_gpu(), torch.autocast("cpu", torch.bfloat16):
        found, *of_weights = outcome(model, encoded())
    assert (found - out).norm() < 0.02 * out.norm()
    assert {x.dtype for x in of_weights} == {torch.float32}
    difference = [a - b for a, b in zip(of_weights, grads, strict=True)]
    total = torch.nn.utils.get_total_norm
    assert total(difference) < 0.6 * total(grads)


def test_a_batch_whose_largest_graph_is_wrong_is_refused():
    batch = encoded()
    batch.max_nodes = 8
    with as_on_gpu(), pytest.raises(RuntimeError, match="larger than max_nodes"):
        graph_model()(batch)


@pytest.mark.parametrize("kind", ["attn", "sort_attn", "interleave", "quantile_attn", "walks"])
def test_one_kernel_a_layer_gives_the_same_numbers(kind):
    model, batch = graph_model(**KINDS[kind]).eval(), encoded((4, 2))
    expected = outcome(model, batch)
    kernels = mock.Mock(wraps=triton.dense_mix)
    with as_on_gpu(), mock.patch.object(triton, "dense_mix", kernels), use_backend("triton"):
        torch.testing.assert_close(outcome(model, batch), expected, rtol=1e-4, atol=1e-5)
    assert kernels.call_count == 2  # one for each layer


def test_dropout_of_the_kernels_follows_the_seed():
    model, batch = graph_model(num_layers=1, dropout=0.2, attention_dropout=0.2), encoded((4,))
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        with as_on_gpu(), use_backend("triton"):
            found.append(model(batch).detach())
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
