"""Compare the six mixers of GraphSliceformer on one small task about graph structure.

The graphs are random trees with nodes of three kinds. The target is the largest number of nodes of
kind 0 within two hops of a node. A model needs the distances between nodes, and then the largest of
many values. `sort` uses degrees but no pairs of nodes; the other mixers use distances. The models
are small and train for few steps: the table shows how to compare, not which mixer is best.
Run: python examples/compare_mixers.py
"""

import argparse
import time

import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from slicegraph.models import GraphSliceformer, GraphSliceformerConfig
from slicegraph.transforms import StructuralEncoding

FORMULAS = {
    "quantile_attn": "Q(softmax(S) V)",
    "sort_attn": "Sort(softmax(S) V)",
    "attn_plus_sort": "softmax(S) V + Sort(V)",
    "sort": "Sort(V)",
    "attn": "softmax(S) V",
    "qkv": "softmax(S + QK) V",
}
BATCH_SIZE, KINDS = 64, 3
parser = argparse.ArgumentParser(description="compare six mixers on one small task")
parser.add_argument("--epochs", type=int, default=20, help="training epochs (default: 20)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
torch.manual_seed(0)
torch.set_num_threads(1)
encode = StructuralEncoding(max_distance=15, max_hops=1)


def random_tree() -> Data:
    """Draw 6 to 15 nodes; `y` is the largest number of kind 0 within two hops of a node."""
    n = int(torch.randint(6, 16, ()))
    child = torch.arange(1, n)
    parent = (torch.rand(n - 1) * child).long()
    edge_index = to_undirected(torch.stack([child, parent]), num_nodes=n)
    tree = encode(Data(x=torch.randint(KINDS, (n, 1)), edge_index=edge_index))
    near = tree.pair_distance.view(n, n) <= 2
    tree.y = (near & (tree.x[:, 0] == 0)).sum(1).max().float().view(1, 1)
    return tree


def mean_error(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    return (mean + deviation * model(batch) - batch.y).abs().mean()


def train(model: torch.nn.Module, batches: list[Batch]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    steps = arguments.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    for _ in range(arguments.epochs):
        for batch in batches:
            optimizer.zero_grad()
            mean_error(model, batch).backward()
            optimizer.step()
            schedule.step()


trees = [random_tree() for _ in range(1024)]
train_batches = [Batch.from_data_list(trees[i : i + BATCH_SIZE]) for i in range(0, 768, BATCH_SIZE)]
test_batch = Batch.from_data_list(trees[768:])
deviation, mean = torch.std_mean(torch.cat([batch.y for batch in train_batches]))

rows = []
for mixer, formula in FORMULAS.items():
    torch.manual_seed(0)
    config = GraphSliceformerConfig(
        num_layers=3,
        channels=32,
        ffn_channels=32,
        heads=4,
        mixer=mixer,
        readout="mean",
        node_vocabulary=(KINDS,),
        edge_vocabulary=None,
        max_distance=encode.max_distance,
    )
    model = GraphSliceformer(config)
    start = time.perf_counter()
    train(model, train_batches)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        error = float(mean_error(model.eval(), test_batch))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows.append(f"{mixer:15} {formula:23} {parameters:10,} {error:6.3f} {seconds:8.1f}")
    print(f"trained {mixer}", flush=True)

print(f"\n{'mixer':15} {'formula':23} parameters  error  seconds")
print("\n".join(rows))
print(f"{f'always {mean:.2f}':50} {(test_batch.y - mean).abs().mean():6.3f}")
