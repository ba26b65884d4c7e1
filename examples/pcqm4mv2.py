"""Train GraphSliceformer on PCQM4Mv2 of OGB-LSC, in OGB's folders and with OGB's evaluator.

The target is the HOMO-LUMO gap in eV, the metric the mean absolute error. The labels of the test
split are not public: the example predicts them with the weights of the best epoch on valid, and
`--submission` writes OGB's file. OGB's class, which `open_ogb` returns, converts the 3.7 million
SMILES in one process and keeps the graphs in memory; `slicegraph train --data pcqm4m-v2` does both
faster. Run: python examples/pcqm4mv2.py
"""

import argparse
import copy
import sys
import time

import torch
from torch import Tensor
from torch_geometric.loader import DataLoader

from slicegraph.data import open_ogb  # before ogb, which by itself asks for a newer version
from slicegraph.metrics import write_submission
from slicegraph.models import GraphSliceformer

# isort: split
from ogb.lsc import PCQM4MEvaluator, PCQM4Mv2Evaluator

EVALUATORS = {
    "pcqm4m-v2": (PCQM4Mv2Evaluator(), "test-dev"),
    "pcqm4m": (PCQM4MEvaluator(), "test"),
}
parser = argparse.ArgumentParser(description="train GraphSliceformer on PCQM4Mv2")
parser.add_argument(
    "--name", choices=EVALUATORS, default="pcqm4m-v2", help="data set (default: pcqm4m-v2)"
)
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--preset", default="mini", help="size of the model (default: mini)")
parser.add_argument("--submission", help="folder for OGB's submission file (default: none)")
parser.add_argument("--epochs", type=int, default=20, help="training epochs (default: 20)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
torch.manual_seed(arguments.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.no_grad()
def predict(loader: DataLoader) -> Tensor:
    model.eval()
    return torch.cat([model(batch.to(device)).squeeze(-1).cpu() for batch in loader])


try:
    dataset = open_ogb(arguments.name, arguments.root)
except (OSError, ValueError) as error:
    sys.exit(str(error))  # what is missing, and where to get it
evaluator, test_split = EVALUATORS[arguments.name]
parts, y = dataset.get_idx_split(), dataset.y
train, valid, test = (
    DataLoader(dataset[parts[part]], batch_size=128, shuffle=part == "train")
    for part in ("train", "valid", test_split)
)
deviation, mean = torch.std_mean(y[parts["train"]])
model = GraphSliceformer.from_preset(
    arguments.preset, target_mean=(float(mean),), target_std=(float(deviation),)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
steps = arguments.epochs * len(train)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps, pct_start=0.06)
best, weights, start = (float("inf"), 0), model.state_dict(), time.perf_counter()
for epoch in range(1, arguments.epochs + 1):
    model.train()
    for batch in train:
        batch = batch.to(device)
        optimizer.zero_grad()
        (model(batch).squeeze(-1) - batch.y).abs().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    error = evaluator.eval({"y_true": y[parts["valid"]], "y_pred": predict(valid)})["mae"]
    if error < best[0]:
        best, weights = (error, epoch), copy.deepcopy(model.state_dict())
    print(f"epoch {epoch}: valid {error:.4f} eV, {time.perf_counter() - start:.0f} s", flush=True)
model.load_state_dict(weights)
y_pred, rows = predict(test), parts[test_split]
result = (
    f"MAE valid {best[0]:.4f} eV, {test_split} {len(y_pred):,} predictions without public labels"
)
print(f"{arguments.name}: {result} (epoch {best[1]} of {arguments.epochs})")
if arguments.submission:
    try:
        options = (test_split, y_pred, rows, rows, arguments.submission)
        print(f"wrote {write_submission(arguments.name, *options)}")
    except ValueError as error:
        sys.exit(f"no submission: {error}")
