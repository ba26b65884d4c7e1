"""torch-scatter changes no result: PyG uses it where it is installed, and torch where it is not."""

import pytest
import torch
import torch_geometric.typing
from models.small_graphs import disconnected_graph, random_graph
from torch_geometric.data import Batch, Data

from slicegraph.models import GraphSliceformer
from slicegraph.nn import GraphReadout
from slicegraph.transforms import StructuralEncoding

pytestmark = pytest.mark.skipif(
    not torch_geometric.typing.WITH_TORCH_SCATTER,
    reason="torch-scatter is not installed; `make test-scatter` builds it",
)


def both_ways(monkeypatch, compute):
    """What `compute` gives with torch-scatter and without."""
    with_scatter = compute()
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SCATTER", False)
    return with_scatter, compute()


@pytest.mark.parametrize("readout", ["mean", "sum"])
def test_readouts_agree_with_their_gradients(monkeypatch, readout):
    x = torch.randn(9, 6, requires_grad=True)
    ptr = torch.tensor([0, 2, 3, 9])
    module = GraphReadout(6, readout)

    def compute():
        out = module(x, ptr)
        return out, *torch.autograd.grad(out.square().sum(), x)

    for ours, theirs in zip(*both_ways(monkeypatch, compute), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_degrees_agree(monkeypatch):
    edge_index = torch.tensor([[0, 0, 1, 2, 2, 2], [1, 2, 2, 0, 0, 2]])

    def compute():
        data = StructuralEncoding()(Data(x=torch.ones(4, 1), edge_index=edge_index.clone()))
        return data.in_degree, data.out_degree

    (first_in, first_out), (second_in, second_out) = both_ways(monkeypatch, compute)
    assert torch.equal(first_in, second_in)
    assert torch.equal(first_out, second_out)


@pytest.mark.parametrize("readout", ["mean", "sum"])
def test_predictions_agree(monkeypatch, readout):
    model = GraphSliceformer.from_preset("mini", readout=readout).eval()
    batch = Batch.from_data_list([random_graph(7), disconnected_graph(), random_graph(1)])
    with torch.no_grad():
        first, second = both_ways(monkeypatch, lambda: model(batch))
    torch.testing.assert_close(first, second)
