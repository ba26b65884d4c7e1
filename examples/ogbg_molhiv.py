"""Train SliceSortConv on ogbg-molhiv, or another ogbg-mol set of OGB, with OGB's own evaluator.

SliceSortConv mixes the atoms of a molecule with weights that depend on their distance and on the
bonds between them, and adds quantiles of the sorted channels. The layers share the shortest paths.
`--name` is any ogbg-mol set: loss and metric are those of the set. `open_ogb` returns OGB's
`PygGraphPropPredDataset`, which alone cannot read its own files with torch 2.6 or later.
Run: python examples/ogbg_molhiv.py
"""

import argparse
import sys
import time

import torch
from torch import Tensor
from torch.nn import Dropout, Linear, ReLU, Sequential, functional
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from slicegraph.data import open_ogb  # before ogb, which by itself asks for a newer version
from slicegraph.nn import GPSLayer, SliceSortAggregation, SliceSortConv
from slicegraph.vocabulary import OGB_BONDS

# isort: split
from ogb.graphproppred import Evaluator
from ogb.graphproppred.mol_encoder import AtomEncoder

parser = argparse.ArgumentParser(description="train SliceSortConv on a molecule data set of OGB")
parser.add_argument("--name", default="ogbg-molhiv", help="data set (default: ogbg-molhiv)")
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--epochs", type=int, default=20, help="training epochs (default: 20)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
CHANNELS, HEADS, LAYERS, DROPOUT = 64, 4, 4, 0.1
torch.manual_seed(arguments.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(torch.nn.Module):
    def __init__(self, num_tasks: int) -> None:
        super().__init__()
        self.atoms = AtomEncoder(CHANNELS)
        self.layers = torch.nn.ModuleList(self.layer() for _ in range(LAYERS))
        self.read, inner = SliceSortAggregation(k=5), Linear(5 * CHANNELS, CHANNELS)
        self.head = Sequential(inner, ReLU(), Dropout(DROPOUT), Linear(CHANNELS, num_tasks))

    def layer(self) -> GPSLayer:
        conv = SliceSortConv(CHANNELS, CHANNELS, HEADS, edge_vocabulary=OGB_BONDS)
        return GPSLayer(CHANNELS, conv, dropout=DROPOUT)

    def forward(self, data: Data) -> Tensor:
        x = self.atoms(data.x)
        paths = self.layers[0].conv.structural_bias.find_paths(data.edge_index, data.ptr)
        edges = {"edge_attr": data.edge_attr, "encoding": paths}
        for layer in self.layers:
            x = layer(x, data.edge_index, batch=data.batch, **edges)
        return self.head(self.read(x, ptr=data.ptr, dim=0))


def loss_of(scores: Tensor, y: Tensor) -> Tensor:
    known = ~y.isnan()  # sets of several tasks have gaps
    if regression:
        return functional.mse_loss(scores[known], ((y - mean) / deviation)[known])
    return functional.binary_cross_entropy_with_logits(scores[known], y[known])


@torch.no_grad()
def score(loader: DataLoader) -> float:
    model.eval()
    y_pred, y_true = [], []
    for batch in loader:
        scores = model(batch.to(device))
        y_pred.append((mean + deviation * scores if regression else scores).cpu())
        y_true.append(batch.y.cpu())
    return evaluator.eval({"y_true": torch.cat(y_true), "y_pred": torch.cat(y_pred)})[metric]


try:
    dataset = open_ogb(arguments.name, arguments.root)
except (OSError, ValueError) as error:
    sys.exit(str(error))  # what is missing, and where to get it
evaluator, metric = Evaluator(arguments.name), dataset.eval_metric
regression, parts = dataset.task_type == "regression", dataset.get_idx_split()
train, valid, test = (
    DataLoader(dataset[parts[part]], batch_size=64, shuffle=part == "train")
    for part in ("train", "valid", "test")
)
y = dataset.y[parts["train"]].float().to(device)
mean = y.nanmean(0)
deviation = (y - mean).square().nanmean(0).sqrt()
model = Net(dataset.num_tasks).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
steps = arguments.epochs * len(train)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.1)
sign = -1 if regression else 1  # a small RMSE is good, a large area or precision is
best, start = (-sign * float("inf"), float("nan"), 0), time.perf_counter()
for epoch in range(1, arguments.epochs + 1):
    model.train()
    for batch in train:
        batch = batch.to(device)
        optimizer.zero_grad()
        loss_of(model(batch), batch.y.float()).backward()
        optimizer.step()
        schedule.step()
    found = score(valid)
    if sign * found > sign * best[0]:
        best = found, score(test), epoch
    print(f"epoch {epoch}: valid {found:.4f}, {time.perf_counter() - start:.0f} s", flush=True)
result = f"{metric} valid {best[0]:.4f}, test {best[1]:.4f}"
print(f"{arguments.name}: {result} (epoch {best[2]} of {arguments.epochs})")
