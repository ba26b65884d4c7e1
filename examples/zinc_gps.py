"""Train a GPS network on ZINC, with sorting in the place of attention.

Each layer adds messages along the bonds (GINEConv) and SliceSortAttention, which mixes all atoms of
a molecule in O(N log N). The target is the penalised logP; the metric is the mean absolute error.
`--name zinc` has 10,000, 1,000 and 1,000 molecules, `zinc-full` 249,456. `--npz` reads a file with
the arrays of the function `read_npz` instead. Run: python examples/zinc_gps.py
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Embedding, Linear, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.datasets import ZINC
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE

from slicegraph.nn import GPSLayer

parser = argparse.ArgumentParser(description="train a GPS network that sorts on ZINC")
parser.add_argument("--name", choices=("zinc", "zinc-full"), default="zinc", help="default: zinc")
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--npz", help="file of graphs to read instead of PyG's ZINC (default: none)")
parser.add_argument("--epochs", type=int, default=50, help="training epochs (default: 50)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
ATOMS, BONDS, CHANNELS, LAYERS, WALK = 28, 4, 64, 5, 20
torch.manual_seed(arguments.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_npz(split: str) -> list[Data]:
    """Read the graphs of a split, whose atoms and bonds follow one another in the file."""
    with np.load(arguments.npz) as file:
        names = ("x", "edge_index", "edge_attr", "y", "num_nodes", "num_edges")
        x, index, attr, y, *sizes = (torch.from_numpy(file[f"{split}_{name}"]) for name in names)
    nodes, edges = (size.tolist() for size in sizes)
    x, attr = x.long().view(-1, 1).split(nodes), attr.long().split(edges)
    index = index.long().split(edges, dim=1)  # atoms are numbered within their graph
    graphs = zip(x, index, attr, y.float().split(1), strict=True)
    return [Data(x=x, edge_index=index, edge_attr=attr, y=y) for x, index, attr, y in graphs]


def read(split: str) -> list[Data]:
    root = Path(arguments.root, "zinc")
    try:
        if arguments.npz:
            graphs = read_npz(split)
        else:
            graphs = ZINC(str(root), subset=arguments.name == "zinc", split=split)
    except (OSError, KeyError) as error:
        if arguments.npz:
            sys.exit(f"{arguments.npz} is not a file of graphs as in read_npz: {error}")
        sys.exit(
            f"{arguments.name}: ZINC is not in {root / 'raw'} and cannot be downloaded ({error}); "
            f"connect to the network, or put the files of {ZINC.url} and train.index, val.index "
            f"and test.index of {ZINC.split_url.rpartition('/')[0]} there"
        )
    return [add_positions(graph) for graph in graphs]


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.atom, self.bond = Embedding(ATOMS, CHANNELS), Embedding(BONDS, CHANNELS)
        self.position = Sequential(BatchNorm1d(WALK), Linear(WALK, CHANNELS))
        self.layers = torch.nn.ModuleList(
            GPSLayer(CHANNELS, GINEConv(self.perceptron(CHANNELS))) for _ in range(LAYERS)
        )
        self.head = self.perceptron(1)

    def perceptron(self, outputs: int) -> Sequential:
        return Sequential(Linear(CHANNELS, CHANNELS), ReLU(), Linear(CHANNELS, outputs))

    def forward(self, data: Data) -> Tensor:
        x = self.atom(data.x.squeeze(-1)) + self.position(data.random_walk_pe)
        edge_attr = self.bond(data.edge_attr)
        for layer in self.layers:
            x = layer(x, data.edge_index, batch=data.batch, edge_attr=edge_attr)
        return self.head(global_add_pool(x, data.batch)).squeeze(-1)


@torch.no_grad()
def error(loader: DataLoader) -> float:
    model.eval()
    batches = (batch.to(device) for batch in loader)
    return float(torch.cat([(model(batch) - batch.y).abs() for batch in batches]).mean())


add_positions = AddRandomWalkPE(WALK)
train, valid, test = (
    DataLoader(read(split), batch_size=32, shuffle=split == "train")
    for split in ("train", "val", "test")
)
model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
steps = arguments.epochs * len(train)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.1)
best, start = (float("inf"), float("nan"), 0), time.perf_counter()
for epoch in range(1, arguments.epochs + 1):
    model.train()
    for batch in train:
        batch = batch.to(device)
        optimizer.zero_grad()
        (model(batch) - batch.y).abs().mean().backward()
        optimizer.step()
        schedule.step()
    if (found := error(valid)) < best[0]:
        best = found, error(test), epoch
    print(f"epoch {epoch}: valid {found:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
result = f"MAE valid {best[0]:.4f}, test {best[1]:.4f} (epoch {best[2]} of {arguments.epochs})"
print(f"{arguments.npz or arguments.name}: {result}")
