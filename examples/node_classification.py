"""Classify the nodes of Cora, CiteSeer or PubMed with a GraphSliceformer that predicts for nodes.

Every block adds messages along the edges (`local="gine"`) and the sorted channels of all nodes, in
O(N log N): there is no memory for pairs of nodes. `align="pivot"` hands the sorted values to the
nodes by their rank in one channel, so that the numbers of the nodes do not matter. The public split
has 20 training nodes per class. The graph is one batch; several graphs with masks work as well.
Run: python examples/node_classification.py --name CiteSeer
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.datasets import Planetoid
from torch_geometric.loader import DataLoader

from slicegraph.models import GraphSliceformer, GraphSliceformerConfig

parser = argparse.ArgumentParser(description="classify the nodes of a citation graph")
parser.add_argument("--name", default="Cora", help="data set (default: Cora)")
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--epochs", type=int, default=200, help="training epochs (default: 200)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
FEATURE_DROPOUT = 0.7
torch.manual_seed(arguments.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.no_grad()
def accuracies(loader: DataLoader) -> list[float]:
    """Return the share of right answers among the nodes of valid and of test."""
    model.eval()
    right: dict[str, list[Tensor]] = {"val_mask": [], "test_mask": []}
    for batch in loader:
        batch = batch.to(device)
        correct = model(batch).squeeze(1).argmax(-1) == batch.y
        for name, found in right.items():
            found.append(correct[batch[name]])
    return [float(torch.cat(found).float().mean()) for found in right.values()]


try:
    dataset = Planetoid(arguments.root, arguments.name)
except OSError as error:
    folder, files = Path(arguments.root, arguments.name, "raw"), f"ind.{arguments.name.lower()}.*"
    sys.exit(
        f"{arguments.name} is not in {folder} and cannot be downloaded ({error}); check the name "
        f"and the network, or put the files {files} of {Planetoid.url} there"
    )
loader = DataLoader(dataset)
config = GraphSliceformerConfig(
    num_layers=4,
    channels=64,
    ffn_channels=64,
    heads=1,
    mixer="sort",
    align="pivot",
    local="gine",
    node_dim=dataset.num_features,
    readout="mean",
    task_level="node",
    task="multiclass",
    num_classes=dataset.num_classes,
    dropout=0.5,
    input_dropout=0.5,
)
model = GraphSliceformer(config).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=5e-2)
best, start = (-1.0, -1.0, 0), time.perf_counter()
for epoch in range(1, arguments.epochs + 1):
    model.train()
    for batch in loader:
        batch = batch.to(device)
        batch.x = functional.dropout(batch.x, FEATURE_DROPOUT)
        optimizer.zero_grad()
        scores = model(batch).squeeze(1)[batch.train_mask]
        functional.cross_entropy(scores, batch.y[batch.train_mask]).backward()
        optimizer.step()
    valid, test = accuracies(loader)
    if valid > best[0]:
        best = valid, test, epoch
    print(f"epoch {epoch}: valid {valid:.1%}, {time.perf_counter() - start:.0f} s", flush=True)
result = f"accuracy valid {best[0]:.1%}, test {best[1]:.1%}"
print(f"{arguments.name}: {result} (epoch {best[2]} of {arguments.epochs})")
