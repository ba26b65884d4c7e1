"""Exported programs: plain tensors, other sizes, AOTInductor and ONNX."""

from pathlib import Path
from typing import Any

import pytest
import torch
from models.small_graphs import disconnected_graph, random_graph
from models.test_gpu_path import KINDS, encoded, graph_model
from support.traced_models import image_model, images, sequence_model
from torch import Tensor
from torch.export import Dim, export
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer, register_batch
from slicegraph.nn import SliceSort
from slicegraph.nn.mixer import SEQUENCE_MIXERS
from slicegraph.ops.sort import decompositions

ATTRIBUTES = ("ptr", "pair_distance", "pair_path", "pair_walk", "in_degree", "out_degree")
ANY = Dim.DYNAMIC


class OfTensors(torch.nn.Module):
    """A graph model with a name for each input: export cannot resize those of ``**attributes``."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, x, edge_index, edge_attr, ptr, distance, path, walk, in_degree, out_degree, max_nodes
    ) -> Tensor:
        values = (ptr, distance, path, walk, in_degree, out_degree)
        attributes = dict(zip(ATTRIBUTES, values, strict=True))
        return self.model(x, edge_index, edge_attr, max_nodes=max_nodes, **attributes)


def inputs_of(batch: Data) -> tuple[Any, ...]:
    attributes = [batch[name] for name in ATTRIBUTES]
    return batch.x, batch.edge_index, batch.edge_attr, *attributes, batch.max_nodes


@torch.no_grad()
def test_a_graph_model_is_exported_for_any_batch():
    model = graph_model(**KINDS["walks"], num_layers=1).eval()
    rows = [{0: ANY}, {1: ANY}, *({0: ANY} for _ in range(7)), ANY]
    program = export(OfTensors(model), inputs_of(encoded()), dynamic_shapes=rows).module()
    for batch in (encoded(), encoded((12, 3)), encoded((2, 2, 2, 14))):
        torch.testing.assert_close(program(*inputs_of(batch)), model(batch))


def assert_exported_for_batches_of_pyg(model: torch.nn.Module) -> None:
    shapes = register_batch(encoded())
    program = export(model, (encoded(),), dynamic_shapes=(shapes,)).module()
    for batch in (encoded(), encoded((12, 3)), encoded((2, 2, 2, 14))):
        torch.testing.assert_close(program(batch), model(batch))


# Each of these is in one of the others, with the same order: "ours" has quantile_attn, "walks" has
# attn, "nodes" sort_attn, "post norm" qkv, and "attn_plus_sort" sort.
CONTAINED = ("quantile_attn", "attn", "sort_attn", "qkv", "sort")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in CONTAINED])
@torch.no_grad()
def test_every_mixer_is_exported_for_batches_of_pyg(kind):
    assert_exported_for_batches_of_pyg(graph_model(**KINDS[kind], num_layers=1).eval())


@pytest.mark.parametrize("preset", ["slicegraph-base", "sliceformer-base", "graphormer-base"])
@torch.no_grad()
def test_a_preset_is_exported_for_batches_of_pyg(preset):
    """With its vocabularies and readout; the others differ in size and order, but for rings."""
    torch.manual_seed(0)
    small = {"num_layers": 1, "channels": 8, "ffn_channels": 8, "heads": 2, "max_hops": 3}
    assert_exported_for_batches_of_pyg(GraphSliceformer.from_preset(preset, **small).eval())


@torch.no_grad()
def test_a_preset_with_rings_is_exported_for_batches_that_have_them():
    torch.manual_seed(0)
    small = {"num_layers": 1, "channels": 8, "ffn_channels": 8, "heads": 2}
    model = GraphSliceformer.from_preset("rings", **small).eval()

    def with_rings(*sizes: int) -> Data:
        graphs = [random_graph(n, seed=n) for n in sizes] + [disconnected_graph()]
        batch = Batch.from_data_list(graphs)
        batch.max_nodes = max(*sizes, 6)
        return model.ring_nodes(batch)

    shapes = register_batch(with_rings(5, 9, 7))
    program = export(model, (with_rings(5, 9, 7),), dynamic_shapes=(shapes,)).module()
    for batch in (with_rings(5, 9, 7), with_rings(12, 3), with_rings(2, 2, 2, 14)):
        torch.testing.assert_close(program(batch), model(batch))


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@torch.no_grad()
def test_a_sequence_model_is_exported_for_any_length(mixer):
    model = sequence_model(mixer, num_layers=1)
    rows = {0: ANY, 1: ANY}
    inputs = (torch.ones(3, 5, dtype=torch.long), torch.ones(3, 5, dtype=torch.bool))
    program = export(model, inputs, dynamic_shapes=(rows, rows)).module()
    x, mask = torch.randint(1, 16, (4, 9)), torch.arange(9) < torch.tensor([[9], [2], [5], [1]])
    torch.testing.assert_close(program(x, mask), model(x, mask))


@pytest.mark.parametrize("mixer", SEQUENCE_MIXERS)
@torch.no_grad()
def test_an_image_model_is_exported_for_any_number(mixer):
    model = image_model(mixer, num_layers=1)
    program = export(model, (images(3),), dynamic_shapes=({0: ANY},)).module()
    torch.testing.assert_close(program(images(5)), model(images(5)))


def exported_layer() -> tuple[torch.nn.Module, torch.export.ExportedProgram]:
    torch.manual_seed(0)
    layer = SliceSort(8, order="interleave", num_layers=3).eval()
    sizes = ({0: ANY, 1: ANY},)
    with torch.no_grad():
        return layer, export(layer, (torch.randn(3, 5, 8),), dynamic_shapes=sizes)


@pytest.mark.slow
@torch.no_grad()
def test_a_layer_is_compiled_ahead_of_time(tmp_path):
    package = pytest.importorskip("torch._inductor")
    if not hasattr(package, "aoti_compile_and_package"):
        pytest.skip("this torch has no AOTInductor")
    layer, program = exported_layer()
    path = package.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    x = torch.randn(2, 7, 8)
    torch.testing.assert_close(package.aoti_load_package(path)(x), layer(x))


def through_onnx(program: torch.export.ExportedProgram, path: Path, x: torch.Tensor) -> Any:
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name)
    runtime = pytest.importorskip("onnxruntime")
    torch.onnx.export(program.run_decompositions(decompositions()), f=str(path))
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


@torch.no_grad()
def test_a_layer_runs_in_onnxruntime(tmp_path):
    layer, program = exported_layer()
    x = torch.randn(4, 6, 8)
    torch.testing.assert_close(through_onnx(program, tmp_path / "layer.onnx", x), layer(x))


@torch.no_grad()
def test_an_image_model_runs_in_onnxruntime(tmp_path):
    model = image_model(order="interleave", num_layers=1)
    program = export(model, (images(3),), dynamic_shapes=({0: ANY},))
    actual = through_onnx(program, tmp_path / "model.onnx", images(5))
    torch.testing.assert_close(actual, model(images(5)), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_dense_sets_are_sorted_by_operators_of_torch():
    layer, x = SliceSort(4, order="descending").eval(), torch.randn(3, 6, 4)
    mask = torch.arange(6) < torch.tensor([[6], [0], [4]])
    program = export(layer, (x, mask)).run_decompositions(decompositions())
    assert "slicegraph" not in str(program.graph)
    torch.testing.assert_close(program.module()(x, mask), layer(x, mask))
