"""Classify the graphs of a TUDataset, such as MUTAG, by cross-validation.

Each layer adds messages along the edges (GINConv) and SliceSortAttention; SliceSortAggregation
reads quantiles of the sorted channels. Both take O(N log N), so that large graphs fit. In turn each
fold is the test set and the next one the validation set, which chooses the epoch; the folds have
the same shares of the classes. Nodes without features get PyG's local degree profile.
Run: python examples/tu_dataset.py --name PROTEINS
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Dropout, Linear, ReLU, Sequential, functional
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv
from torch_geometric.transforms import LocalDegreeProfile

from slicegraph.nn import GPSLayer, SliceSortAggregation

parser = argparse.ArgumentParser(description="classify the graphs of a TUDataset")
parser.add_argument("--name", default="MUTAG", help="data set (default: MUTAG)")
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--folds", type=int, default=10, help="folds, at least 3 (default: 10)")
parser.add_argument("--epochs", type=int, default=50, help="training epochs (default: 50)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
if arguments.folds < 3:
    parser.error(f"--folds {arguments.folds}, expected at least 3: train, valid and test")
CHANNELS, LAYERS, QUANTILES = 32, 3, 5
torch.manual_seed(arguments.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(torch.nn.Module):
    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.embed = Linear(in_channels, CHANNELS)
        self.layers = torch.nn.ModuleList(self.layer() for _ in range(LAYERS))
        self.read, inner = SliceSortAggregation(QUANTILES), Linear(QUANTILES * CHANNELS, CHANNELS)
        self.head = Sequential(inner, ReLU(), Dropout(0.5), Linear(CHANNELS, num_classes))

    def layer(self) -> GPSLayer:
        mlp = Sequential(Linear(CHANNELS, CHANNELS), ReLU(), Linear(CHANNELS, CHANNELS))
        return GPSLayer(CHANNELS, GINConv(mlp))

    def forward(self, data: Data) -> Tensor:
        x = self.embed(data.x)
        for layer in self.layers:
            x = layer(x, data.edge_index, batch=data.batch)
        return self.head(self.read(x, ptr=data.ptr, dim=0))


@torch.no_grad()
def accuracy(model: Net, loader: DataLoader) -> float:
    model.eval()
    right = [model(batch.to(device)).argmax(1) == batch.y for batch in loader]
    return float(torch.cat(right).float().mean())


def train(
    model: Net, train: DataLoader, valid: DataLoader, test: DataLoader
) -> tuple[float, float]:
    """Return the accuracy on valid and on test, at the epoch with the best one on valid."""
    optimizer, best = torch.optim.AdamW(model.parameters(), lr=1e-3), (-1.0, 0.0)
    for _ in range(arguments.epochs):
        model.train()
        for batch in train:
            batch = batch.to(device)
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
        if (found := accuracy(model, valid)) > best[0]:
            best = found, accuracy(model, test)
    return best


try:
    dataset = TUDataset(arguments.root, arguments.name, use_node_attr=True)
except OSError as error:
    folder = Path(arguments.root, arguments.name, "raw")
    sys.exit(
        f"{arguments.name} is not in {folder} and cannot be downloaded ({error}); check the name "
        f"and the network, or put the files of {TUDataset.url}/{arguments.name}.zip there"
    )
if dataset.y.is_floating_point():
    sys.exit(f"{arguments.name} has numbers to predict, expected a data set with classes")
if dataset.num_features == 0:
    dataset.transform = LocalDegreeProfile()
y, order = dataset.y, torch.randperm(len(dataset))
order = order[y[order].argsort(stable=True)]  # by class, at random within a class
folds = [order[number :: arguments.folds] for number in range(arguments.folds)]
if min(map(len, folds)) < 1:
    sys.exit(f"--folds {arguments.folds} for the {len(dataset)} graphs of {arguments.name}")
results = []
for number in range(arguments.folds):
    test, valid, *others = folds[number:] + folds[:number]
    loaders = [
        DataLoader(dataset[rows], batch_size=32, shuffle=training)
        for rows, training in ((torch.cat(others), True), (valid, False), (test, False))
    ]
    results.append(train(Net(dataset.num_features, dataset.num_classes).to(device), *loaders))
    print(f"fold {number + 1}: valid {results[-1][0]:.1%}, test {results[-1][1]:.1%}", flush=True)
deviation, mean = torch.std_mean(torch.tensor(results), dim=0)
result = f"accuracy valid {mean[0]:.1%}, test {mean[1]:.1%} +- {deviation[1]:.1%}"
print(f"{arguments.name}: {result} ({arguments.folds} folds, {arguments.epochs} epochs)")
