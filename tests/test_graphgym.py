"""Configurations of PyG's GraphGym can name our layers, encoder and readouts."""

from collections.abc import Iterator

import pytest
import torch
from models.small_graphs import random_graph
from torch_geometric.data import Batch

pytest.importorskip("yacs")
graphgym = pytest.importorskip("slicegraph.graphgym")

from torch_geometric.graphgym import register  # noqa: E402
from torch_geometric.graphgym.config import cfg, set_cfg  # noqa: E402
from torch_geometric.graphgym.models.gnn import GNN  # noqa: E402


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    set_cfg(cfg)
    cfg.dataset.task = "graph"
    cfg.dataset.node_encoder = True
    cfg.dataset.node_encoder_name = "SliceSortAtom"
    cfg.gnn.head, cfg.gnn.layer_type = "slicesort_graph", "slicesortconv"
    cfg.gnn.dim_inner, cfg.gnn.att_heads, cfg.gnn.layers_mp = 16, 2, 2
    cfg.gnn.l2norm = False
    yield
    set_cfg(cfg)


def batch() -> Batch:
    graphs = [random_graph(n, seed=n) for n in (5, 3, 8)]
    for graph in graphs:
        graph.y = torch.zeros(1)
        graph.edge_attr = graph.edge_attr.long()
    return Batch.from_data_list(graphs)


@pytest.mark.parametrize("layer", ["slicesortconv", "slicesortgps"])
@pytest.mark.parametrize("head", ["slicesort_graph", "graph"])
@pytest.mark.parametrize("edges", [False, True])
def test_a_network_of_names(layer, head, edges):
    cfg.gnn.layer_type, cfg.gnn.head = layer, head
    cfg.model.graph_pooling = "slicesort"
    cfg.dataset.edge_encoder, cfg.dataset.edge_encoder_name = edges, "Bond"
    cfg.dataset.edge_encoder_bn = False
    torch.manual_seed(0)
    model = GNN(9, 4).eval()
    prediction, label = model(batch())
    assert prediction.shape == (3, 4)
    assert label.shape == (3,)
    for b, graph in enumerate(batch().to_data_list()):
        alone, _ = model(Batch.from_data_list([graph]))
        torch.testing.assert_close(alone[0], prediction[b], rtol=1e-4, atol=1e-5)
    model.train()(batch())[0].square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_a_layer_that_cannot_change_the_size_says_so():
    cfg.dataset.node_encoder, cfg.gnn.layer_type = False, "slicesortgps"
    with pytest.raises(ValueError, match=r"dim_in = 9 and dim_out = 16 differ; .*layers_pre_mp"):
        GNN(9, 4)


@pytest.mark.parametrize("categories", [True, False])
@pytest.mark.parametrize(("task", "rows"), [("graph", 3), ("node", 16)])
def test_the_whole_model_by_name(categories, task, rows):
    cfg.dataset.node_encoder, cfg.dataset.task = categories, task
    model = register.network_dict["graph_sliceformer"](9, 4)
    data = batch()
    data.x = data.x if categories else data.x.float()
    assert model(data)[0].shape == (rows, 4)
