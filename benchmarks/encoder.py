"""The graph encoder against its peers and its floor: `python -m benchmarks.encoder`.

One batch of 256 molecules of at most 20 atoms, dropout 0, at `base` size (12 layers, 768 wide, 32
heads) and at `slim` size (12 layers, 80 wide, 8 heads). *Step* is a training step: forward,
backward, AdamW. *Eval* is a forward pass without gradients. All candidates take turns in one
process; the median counts, and ratios are to `sliceformer`: how many times its time or memory.

- *sliceformer*, *graphormer*: our models, on an encoded batch that is there. The attention of the
  latter is our kernel, which is faster than SDPA on the padded sets.
- *gps*: a stack of PyG's `GPSConv` with `GINEConv`, of equal width and depth, on the same batch.
- *floor*: the matrix products of `sliceformer` and nothing else: its Linear layers on the packed
  rows, its pair products on padded sets. No optimizer.
- *sliceformer, collated*: with the way from a store to the batch in the time, as in training.
- *transformers*: the Graphormer of transformers 4.57.1, with its own collation in the time; compare
  it with the line above. It needs `.[peers]` and a C++ compiler.

*Memory* is what the first training step adds to the memory of a process of its own (activations,
gradients, AdamW's state): VmHWM after the step, less VmRSS before it (Linux only). The C library is
told to give freed memory back at once (`MALLOC_MMAP_THRESHOLD_`), in all processes alike: otherwise
the gaps between tensors count, which are as large as what is in use and differ from run to run.
"""

import argparse
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, GPSConv, global_mean_pool

from benchmarks.loader import make_store
from benchmarks.peak import peak_bytes_of
from benchmarks.structure import FIFTEEN_ATOMS, INSTALL, molecules
from benchmarks.timing import median_ms
from slicegraph.data.batch.collate import collate
from slicegraph.data.store.molecule_store import MoleculeStore
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig, preset
from slicegraph.models.config import OGB_ATOMS, OGB_BONDS
from slicegraph.transforms import StructuralEncoding

SMILES = f"""{FIFTEEN_ATOMS}
    Oc1ccccc1C CC(N)Cc1ccccc1 CC(=O)Oc1ccccc1C(=O)O COc1ccc2[nH]cc(CCNC(C)=O)c2c1
    CC(C)NCC(O)COc1cccc2ccccc12 CCOC(=O)c1ccc(NC(C)=O)cc1OCCN CCCCCCCCCCCCCCCCCCCC
    CC(=O)Nc1ccc(OCC(O)CNC(C)C)cc1
"""
NAMES = ("sliceformer", "graphormer", "gps", "floor", "sliceformer, collated", "transformers")


class Candidate(NamedTuple):
    module: torch.nn.Module
    loss: Callable[[], Tensor]


class GPS(torch.nn.Module):
    """GPSConv layers between embeddings of OGB's features and a mean of the nodes."""

    def __init__(self, config: GraphSliceformerConfig) -> None:
        super().__init__()
        c = config.channels
        self.nodes = torch.nn.ModuleList(torch.nn.Embedding(n, c) for n in OGB_ATOMS)
        self.edges = torch.nn.ModuleList(torch.nn.Embedding(n, c) for n in OGB_BONDS)
        self.layers = torch.nn.ModuleList(
            GPSConv(c, GINEConv(torch.nn.Linear(c, c)), config.heads)
            for _ in range(config.num_layers)
        )
        self.head = torch.nn.Linear(c, 1)

    def forward(self, batch: Batch) -> Tensor:
        x = sum(table(batch.x[:, i]) for i, table in enumerate(self.nodes))
        edge_attr = sum(table(batch.edge_attr[:, i]) for i, table in enumerate(self.edges))
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=edge_attr)
        return self.head(global_mean_pool(x, batch.batch))


class Floor(torch.nn.Module):
    """Four Linear layers and one pair product a layer, on random numbers of the model's shapes."""

    def __init__(self, config: GraphSliceformerConfig, batch: Batch) -> None:
        super().__init__()
        c, sizes = config.channels, batch.ptr.diff() + 1  # with the token
        count, length = batch.num_graphs, int(sizes.max())
        self.linears = torch.nn.ModuleList(
            torch.nn.Linear(c, c, bias=False) for _ in range(4 * config.num_layers)
        )
        self.num_layers = config.num_layers
        self.rows = torch.nn.Parameter(torch.randn(int(sizes.sum()), c))
        self.weights = torch.nn.Parameter(torch.rand(count, config.heads, length, length))
        self.values = torch.nn.Parameter(
            torch.randn(count, config.heads, length, c // config.heads)
        )
        self.row_gradient = torch.randn(self.rows.shape)
        self.value_gradient = torch.randn(self.values.shape)

    def forward(self) -> tuple[Tensor, Tensor]:
        rows, values = self.rows, self.values
        for linear in self.linears:
            rows = linear(rows)
        for _ in range(self.num_layers):
            values = self.weights @ values
        return rows, values

    def step(self) -> None:
        torch.autograd.backward(self(), [self.row_gradient, self.value_gradient])
        self.zero_grad()


def graphs_of(items: list[dict[str, Any]]) -> list[Data]:
    return [
        Data(
            x=torch.from_numpy(item["node_feat"]),
            edge_index=torch.from_numpy(item["edge_index"]),
            edge_attr=torch.from_numpy(item["edge_feat"]),
        )
        for item in items
    ]


def build(name: str, size: str, vocabulary: str, items: list[dict[str, Any]]) -> Candidate | Floor:
    kind = "graphormer" if name == "graphormer" else "sliceformer"
    config = preset(f"{kind}-{size}", vocabulary, dropout=0.0, attention_dropout=0.0)
    if name == "transformers":
        return transformers_graphormer(config, items)
    batch = StructuralEncoding()(Batch.from_data_list(graphs_of(items)))
    if name == "floor":
        return Floor(config, batch)
    model = GPS(config) if name == "gps" else GraphSliceformer(config)
    if name.endswith("collated"):
        store, everything = store_of(len(items)), np.arange(len(items))
        return Candidate(model, lambda: model(collate(store, everything)).square().mean())
    return Candidate(model, lambda: model(batch).square().mean())


def store_of(count: int) -> MoleculeStore:
    """The same molecules in a store, whose files stay open when their folder is gone."""
    with tempfile.TemporaryDirectory() as folder:
        return make_store(Path(folder), SMILES, count)


def peer_model(config: GraphSliceformerConfig, **options: Any) -> torch.nn.Module:
    """The Graphormer of transformers of the size and with the dropout of ours."""
    from transformers.models.deprecated import graphormer

    return graphormer.GraphormerForGraphClassification(
        graphormer.GraphormerConfig(
            num_classes=1,
            num_hidden_layers=config.num_layers,
            embedding_dim=config.channels,
            ffn_embedding_dim=config.ffn_channels,
            num_attention_heads=config.heads,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            **options,
        )
    )


def transformers_graphormer(
    config: GraphSliceformerConfig, items: list[dict[str, Any]]
) -> Candidate:
    from transformers.models.deprecated.graphormer import collating_graphormer

    model = peer_model(config, activation_dropout=0.0)
    collate = collating_graphormer.GraphormerDataCollator(on_the_fly_processing=True)
    labels = np.zeros(1, dtype=np.float32)
    return Candidate(
        model, lambda: model(**collate([item | {"labels": labels} for item in items])).loss
    )


def training_step(candidate: Candidate | Floor) -> Callable[[], None]:
    if isinstance(candidate, Floor):
        return candidate.step
    optimizer = torch.optim.AdamW(candidate.module.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        candidate.module.train()
        candidate.loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def evaluation(candidate: Candidate | Floor) -> Callable[[], None]:
    module = candidate if isinstance(candidate, Floor) else candidate.module
    run = candidate if isinstance(candidate, Floor) else candidate.loss

    @torch.no_grad()
    def evaluate() -> None:
        module.eval()
        run()

    return evaluate


def peak_bytes(name: str, size: str, vocabulary: str, threads: int) -> int:
    """What a training step adds to the memory of this process."""
    torch.set_num_threads(threads)
    items = molecules(SMILES)
    training_step(build(name, "slim", vocabulary, items[:4]))()
    return peak_bytes_of(training_step(build(name, size, vocabulary, items)))


def peak_in_new_process(*arguments: Any) -> int:
    os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)  # read when the new process starts
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(peak_bytes, *arguments).result()


def has_peer() -> bool:
    """Whether transformers' Graphormer runs here; if not, says how to get it."""
    try:
        evaluation(build("transformers", "slim", "ogb", molecules("CO")[:1]))()
    except ImportError as error:
        print(f"no transformers, as its Graphormer does not run here ({error}): {INSTALL}")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=("slim", "base"), choices=("slim", "base"))
    parser.add_argument("--vocabulary", default="ogb", choices=("ogb", "graphormer"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = NAMES if has_peer() else NAMES[:-1]
    items = molecules(SMILES)
    atoms = [item["num_nodes"] for item in items]
    print(
        f"{len(items)} molecules, mean {np.mean(atoms):.1f}, at most {max(atoms)} atoms, "
        f"{arguments.threads} threads, vocabulary {arguments.vocabulary}"
    )
    for size in arguments.sizes:
        compare(size, names, items, arguments)


def compare(
    size: str, names: tuple[str, ...], items: list[dict[str, Any]], arguments: argparse.Namespace
) -> None:
    vocabulary, threads = arguments.vocabulary, arguments.threads
    built = {name: build(name, size, vocabulary, items) for name in names}
    steps = {name: training_step(candidate) for name, candidate in built.items()}
    step = median_ms(steps, arguments.repeats)
    evaluate = median_ms({name: evaluation(c) for name, c in built.items()}, arguments.repeats)
    del built, steps
    print(f"{size:23}      step                eval              memory")
    peaks: dict[str, int] = {}
    for name in names:
        peaks[name] = peak_in_new_process(name, size, vocabulary, threads)
        cells = (
            f"{taken[name]:9.0f} {unit} {taken[name] / taken['sliceformer']:6.2f}x"
            for taken, unit in ((step, "ms"), (evaluate, "ms"))
        )
        mb, ratio = peaks[name] / 2**20, peaks[name] / peaks["sliceformer"]
        print(f"{name:22}", *cells, f"{mb:9.0f} MB {ratio:6.2f}x", flush=True)
    print(f"  sliceformer step over the floor: {step['sliceformer'] / step['floor']:.2f}x")
    if "transformers" in names:
        end_to_end = step["transformers"] / step["sliceformer, collated"]
        print(f"  transformers step over sliceformer, both collated: {end_to_end:.2f}x")


if __name__ == "__main__":
    main()
