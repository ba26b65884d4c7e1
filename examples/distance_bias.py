"""Give GraphSliceformer a pair bias of your own: the distances of atoms in space.

The graphs are random chains in space, and the target is the mean of 1 / (1 + r^2) over all pairs of
nodes: it depends on the positions, which the graph does not show. A subclass overrides
`pair_values`, which returns a number for each head and each pair of nodes, added to the bias of
distances and bonds. Run: python examples/distance_bias.py
"""

import argparse
import tempfile

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import to_undirected

from slicegraph.models import GraphSliceformer, GraphSliceformerConfig, load
from slicegraph.nn import all_pairs

parser = argparse.ArgumentParser(description="a pair bias of distances in space")
parser.add_argument("--epochs", type=int, default=20, help="training epochs (default: 20)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
torch.manual_seed(0)
torch.set_num_threads(1)


class SpatialSliceformer(GraphSliceformer):
    """Adds a learned function of the distance in space to the bias of each pair of nodes."""

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__(config)
        self.centers = torch.linspace(0, 6, 16)
        self.radial = torch.nn.Linear(16, config.heads)

    def pair_values(self, batch: Data, ptr: Tensor) -> Tensor:
        i, j = all_pairs(ptr)
        distance = (batch.pos[i] - batch.pos[j]).norm(dim=-1, keepdim=True)
        return self.radial(torch.exp(-((distance - self.centers) ** 2)))


def random_chain() -> Data:
    """Draw 5 to 12 nodes, each one step away from the last."""
    n = int(torch.randint(5, 13, ()))
    pos = torch.nn.functional.normalize(torch.randn(n, 3), dim=-1).cumsum(0)
    edge_index = to_undirected(torch.stack([torch.arange(n - 1), torch.arange(1, n)]))
    y = (1 / (1 + torch.cdist(pos, pos) ** 2)).mean().view(1, 1)
    return Data(x=torch.ones(n, 1), pos=pos, edge_index=edge_index, y=y)


def train(model: GraphSliceformer, loader: DataLoader) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(arguments.epochs):
        for batch in loader:
            optimizer.zero_grad()
            (model(batch) - batch.y).abs().mean().backward()
            optimizer.step()


@torch.no_grad()
def error(model: GraphSliceformer, loader: DataLoader) -> float:
    return float(torch.cat([(model(batch) - batch.y).abs() for batch in loader]).mean())


chains = [random_chain() for _ in range(600)]
train_loader = DataLoader(chains[:400], batch_size=50, shuffle=True)
test_loader = DataLoader(chains[400:], batch_size=200)
y = torch.cat([chain.y for chain in chains[:400]])
config = GraphSliceformerConfig(
    num_layers=2,
    channels=32,
    ffn_channels=32,
    heads=4,
    node_dim=1,
    mixer="quantile_attn",
    readout="quantiles",
    target_mean=(float(y.mean()),),
    target_std=(float(y.std()),),
)
print("Mean error on 200 chains that were not trained on:")
for kind in (GraphSliceformer, SpatialSliceformer):
    torch.manual_seed(0)
    model = kind(config)
    train(model, train_loader)
    print(f"  {kind.__name__:20} {error(model.eval(), test_loader):.4f}", flush=True)
with tempfile.TemporaryDirectory() as folder:
    model.save(folder)
    loaded = load(folder, choose=lambda _: SpatialSliceformer)
same = error(loaded, test_loader) == error(model, test_loader)
print(f"the same after saving and loading: {same}")
