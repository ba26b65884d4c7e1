"""Use SliceSortConv as a layer of an ordinary PyG model, and compare it with GPSConv.

The graphs are random trees with some marked nodes. The target is the largest number of marked nodes
within three hops of a node. GPSConv passes messages between neighbours and attends to all nodes;
SliceSortConv mixes all nodes with weights that depend on the distance, and sorts. A third model has
one of each. In these few epochs SliceSortConv alone is less accurate, because message passing is
well suited to counting neighbours. Run: python examples/pyg_layer.py
"""

import argparse

import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, GPSConv, global_mean_pool
from torch_geometric.utils import to_undirected

from slicegraph.nn import SliceSortConv
from slicegraph.ops.paths import shortest_paths

CHANNELS, HEADS = 32, 4
parser = argparse.ArgumentParser(description="compare SliceSortConv with GPSConv")
parser.add_argument("--epochs", type=int, default=10, help="training epochs (default: 10)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
torch.manual_seed(0)
torch.set_num_threads(1)


def random_tree() -> Data:
    """Draw 6 to 15 nodes and mark about a third of them; `y` is the number to predict."""
    n = int(torch.randint(6, 16, ()))
    child = torch.arange(1, n)
    parent = (torch.rand(n - 1) * child).long()
    edge_index = to_undirected(torch.stack([child, parent]), num_nodes=n)
    marked = torch.rand(n) < 1 / 3
    near = shortest_paths(edge_index, torch.tensor([0, n])).distance.view(n, n) <= 3
    x = torch.stack([marked, ~marked], dim=1).float()
    return Data(x=x, edge_index=edge_index, y=(near & marked).sum(1).max().float())


def perceptron() -> Sequential:
    return Sequential(Linear(CHANNELS, CHANNELS), ReLU(), Linear(CHANNELS, CHANNELS))


def gps() -> GPSConv:
    return GPSConv(CHANNELS, GINConv(perceptron()), HEADS)


class SliceSortBlock(torch.nn.Module):
    """SliceSortConv with norms, residual connections and an MLP, as GPSConv has them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SliceSortConv(CHANNELS, heads=HEADS, max_distance=15)
        self.conv_norm, self.mlp_norm = torch.nn.LayerNorm(CHANNELS), torch.nn.LayerNorm(CHANNELS)
        self.mlp = perceptron()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = x + self.conv(self.conv_norm(x), edge_index, batch=batch)
        return x + self.mlp(self.mlp_norm(x))


class Net(torch.nn.Module):
    def __init__(self, layers: list[torch.nn.Module]) -> None:
        super().__init__()
        self.embed = Linear(2, CHANNELS)
        self.layers = torch.nn.ModuleList(layers)
        self.head = Sequential(perceptron(), ReLU(), Linear(CHANNELS, 1))

    def forward(self, data: Data) -> Tensor:
        x = self.embed(data.x)
        for layer in self.layers:
            x = layer(x, data.edge_index, batch=data.batch)
        return guess + deviation * self.head(global_mean_pool(x, data.batch)).squeeze(1)


def train(model: Net, loader: DataLoader) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    for _ in range(arguments.epochs):
        for batch in loader:
            optimizer.zero_grad()
            (model(batch) - batch.y).abs().mean().backward()
            optimizer.step()
        schedule.step()


@torch.no_grad()
def error(model: Net, loader: DataLoader) -> float:
    model.eval()
    return float(torch.cat([(model(batch) - batch.y).abs() for batch in loader]).mean())


trees = [random_tree() for _ in range(1000)]
train_loader = DataLoader(trees[:800], batch_size=50, shuffle=True)
test_loader = DataLoader(trees[800:], batch_size=200)
y = torch.stack([tree.y for tree in trees])
deviation, guess = torch.std_mean(y[:800])
print("Mean error of the predicted number, on 200 trees that were not trained on:")
print(f"  {f'always {guess:.2f}':29} {(y[800:] - guess).abs().mean():.3f}")
for name, layers in {
    "GPSConv, GPSConv": [gps(), gps()],
    "SliceSortConv, SliceSortConv": [SliceSortBlock(), SliceSortBlock()],
    "GPSConv, SliceSortConv": [gps(), SliceSortBlock()],
}.items():
    torch.manual_seed(0)
    model = Net(layers)
    train(model, train_loader)
    print(f"  {name:29} {error(model, test_loader):.3f}", flush=True)
