"""Compare the graph encoder with other models and a lower bound: `python -m benchmarks.encoder`.

The batch has 256 molecules of at most 20 atoms; dropout is 0; the sizes are `base` (12 layers, 768
wide, 32 heads) and `slim` (12 layers, 80 wide, 8 heads). *Step* is a training step: forward,
backward, AdamW. *Eval* is a forward pass without gradients. All candidates take turns in one
process; the median counts. Ratios are times or memory divided by those of `sliceformer`.

- *sliceformer*, *graphormer*: our models, on a batch that is already encoded. The attention of the
  latter is our kernel, which is faster than SDPA on the padded sets.
- *gps*: a stack of PyG's `GPSConv` with `GINEConv`, of equal width and depth, on the same batch.
- *floor*: only the matrix products of `sliceformer`: its Linear layers on the packed rows and its
  pair products on padded sets, without an optimizer.
- *sliceformer, collated*: the time includes making the batch from a store, as in training.
- *transformers*: the Graphormer of transformers 4.57.1; the time includes its own collation, so
  compare it with the line above. It needs `.[peers]` and a C++ compiler.

*Memory* is what the first training step adds to the memory of a separate process (activations,
gradients, AdamW's state): VmHWM after the step, less VmRSS before it (Linux only). In all of these
processes the C library returns freed memory at once (`MALLOC_MMAP_THRESHOLD_`): otherwise the gaps
between tensors would count, which are as large as the memory in use and differ from run to run.

`--without NAME ...` measures what each of our CPU kernels is worth: the time of a training step
with all kernels, the time with plain torch in place of the named one (see `PLAIN`), and their
ratio. `a+b` replaces several together; `all` stands for every name, and for all together. One model
takes all steps, with the dropout of its preset and freed memory kept, as in `slicegraph train`. The
row `-` replaces nothing: its distance from 1 is the noise.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Batch, Data

from benchmarks.loader import make_store
from benchmarks.peak import peak_bytes_of
from benchmarks.structure import FIFTEEN_ATOMS, INSTALL, molecules
from benchmarks.timing import median_ms, times_ms
from slicegraph.cli.gpu_check import GPS
from slicegraph.data.batch import collate
from slicegraph.data.store import MoleculeStore
from slicegraph.models import GraphSliceformer, GraphSliceformerConfig, preset
from slicegraph.nn.bias import PairBias
from slicegraph.ops import edge_sum, gather_sum, reference
from slicegraph.ops.operator import fused
from slicegraph.ops.pairs import dropout
from slicegraph.ops.sort import sort_columns
from slicegraph.train.machine import freed_memory_kept
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


class Floor(torch.nn.Module):
    """Four Linear layers and one pair product per layer, on random tensors of its shapes."""

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
    model = (
        GPS(config.channels, config.heads, config.num_layers)
        if name == "gps"
        else GraphSliceformer(config)
    )
    if name.endswith("collated"):
        store, everything = store_of(len(items)), np.arange(len(items))
        return Candidate(model, lambda: model(collate(store, everything)).square().mean())
    return Candidate(model, lambda: model(batch).square().mean())


def store_of(count: int) -> MoleculeStore:
    """Return the same molecules in a store, whose files stay open after their folder is removed."""
    with tempfile.TemporaryDirectory() as folder:
        return make_store(Path(folder), SMILES, count)


def peer_model(config: GraphSliceformerConfig, **options: Any) -> torch.nn.Module:
    """Return the Graphormer of transformers with the size and the dropout of our model."""
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


def plain_dropout(x: Tensor, p: float, seed: Tensor | None = None) -> Tensor:
    return functional.dropout(x, p) if p else x


def plain_edge_sum(x: Tensor, table: Tensor, codes: Tensor, index: Tensor) -> Tensor:
    message = x.index_select(0, index[0]) + gather_sum(table, codes)
    return torch.zeros_like(x).index_add(0, index[1], message.relu())


def plain_bias(operator: str, tensors: tuple[Tensor, ...], *options: Any) -> Tensor:
    if operator == "structural_bias":
        return reference.structural_bias(*tensors, *options)
    return fused(operator, tensors, *options)


def padded_mix(pairs: PairBias, values: Tensor, dropped: float = 0.0) -> Tensor:
    mixed = dropout(pairs.weights, dropped) @ padded_heads(pairs, values)
    return pairs.sets.unpad(mixed.transpose(1, 2).flatten(2))


def padded_attend(pairs: PairBias, qkv: Tensor, dropped: float = 0.0) -> Tensor:
    q, k, v = (padded_heads(pairs, x) for x in qkv.chunk(3, 1))
    mixed = functional.scaled_dot_product_attention(q, k, v, pairs.bias, dropped)
    return pairs.sets.unpad(mixed.transpose(1, 2).flatten(2))


def padded_heads(pairs: PairBias, rows: Tensor) -> Tensor:
    """`[T, H * D]` to `[B, H, N, D]`."""
    return pairs.sets.pad(rows).unflatten(2, (pairs.bias.shape[1], -1)).transpose(1, 2)


def padded_sort(
    x: Tensor, lengths: Tensor | None, ptr: Tensor, descending: bool, return_indices: bool
) -> Tensor:
    """Sort packed sets in ascending order and return the values; the presets need no more."""
    if lengths is not None or descending or return_indices:
        raise NotImplementedError("padded_sort: only the values of packed sets, upwards")
    sizes = ptr.diff()
    real = torch.arange(int(sizes.max())) < sizes.unsqueeze(1)
    slots = real.flatten().nonzero().squeeze(1)
    padded = x.new_full((real.numel(), x.shape[1]), torch.inf).index_copy(0, slots, x)
    ordered = padded.view(*real.shape, x.shape[1]).sort(1).values
    return ordered.flatten(0, 1).index_select(0, slots)


PLAIN: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dropout": (dropout, plain_dropout),
    "structural_bias": (fused, plain_bias),
    "edge_sum": (edge_sum, plain_edge_sum),
    "pair_mix": (PairBias.mix, padded_mix),
    "pair_attention": (PairBias.attend, padded_attend),
    "column_sort": (sort_columns, padded_sort),
}
"""A function and its replacement for each kernel: the fastest one in plain torch that we found."""

ALL = (*PLAIN, "+".join(PLAIN))
PRESETS = ("mini", "slicegraph-slim", "sliceformer-slim", "slicegraph-base", "sliceformer-base")
DROPOUTS = ("dropout", "attention_dropout")
MOLECULES = {"mini": 100, "slim": 256, "base": 64}


def holders(function: Any) -> list[tuple[Any, str]]:
    """Return the modules and classes of slicegraph that contain a function, and its name there."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] == "slicegraph"]
    classes = {
        value for module in modules for value in vars(module).values() if isinstance(value, type)
    }
    return [
        (owner, name)
        for owner in (*modules, *classes)
        for name, value in vars(owner).items()
        if value is function
    ]


def without(step: Callable[[], None], pairs: list[tuple[Any, Any]]) -> Callable[[], None]:
    """Return a step that uses the second function of each pair in place of the first."""
    places = [(*place, old, new) for old, new in pairs for place in holders(old)]
    for old, _ in pairs:
        if not holders(old):
            raise RuntimeError(f"--without: slicegraph has no {old.__qualname__} to replace")

    def run() -> None:
        for owner, name, _, new in places:
            setattr(owner, name, new)
        try:
            step()
        finally:
            for owner, name, old, _ in places:
                setattr(owner, name, old)

    return run


def add_without(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what each kernel is worth")
    group.add_argument(
        "--without",
        nargs="+",
        action="extend",
        type=known_names,
        metavar="NAME",
        help=f"kernels to replace by plain torch, one at a time: all, {', '.join(PLAIN)}; "
        "a+b replaces both together",
    )
    help = f"models to train (default: {' '.join(PRESETS)})"
    group.add_argument("--presets", nargs="+", default=PRESETS, help=help)
    group.add_argument(
        "--molecules", type=int, help="batch size (default: mini 100, slim 256, base 64)"
    )
    group.add_argument(
        "--dropout", type=float, help="dropout probability (default: from the preset)"
    )


def known_names(names: str) -> str:
    unknown = set(names.split("+")) - {"all", *PLAIN}
    if unknown:
        expected = ", ".join(["all", *PLAIN])
        raise argparse.ArgumentTypeError(f"unknown kernel {min(unknown)!r}, expected {expected}")
    return names


def measure_without(name: str, items: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    """Print the time of a training step of a preset with and without each kernel."""
    count = arguments.molecules or MOLECULES.get(name.split("-")[-1], len(items))
    rates = {} if arguments.dropout is None else dict.fromkeys(DROPOUTS, arguments.dropout)
    config = preset(name, arguments.vocabulary, **rates)
    batch = StructuralEncoding()(Batch.from_data_list(graphs_of(items[:count])))
    model = GraphSliceformer(config)
    step = training_step(Candidate(model, lambda: model(batch).square().mean()))
    left_out = ALL if "all" in arguments.without else tuple(arguments.without)
    steps = {"with all": step, "-": step}
    steps |= {
        names: without(step, [PLAIN[name] for name in names.split("+")]) for names in left_out
    }
    with freed_memory_kept():
        taken = times_ms(steps, arguments.repeats)
    base = taken.pop("with all")
    print(
        f"{name}, {count} molecules, dropout {config.dropout}, {arguments.threads} threads, "
        f"{arguments.repeats} rounds"
    )
    print("      with   without   ratio   quartiles of the rounds   without what")
    for names, times in taken.items():
        low, _, high = quantiles([a / b for a, b in zip(times, base, strict=True)])
        print(
            f"{median(base):7.1f} ms {median(times):6.1f} ms {median(times) / median(base):6.3f}x"
            f"   {low:.3f} to {high:.3f}            {names}",
            flush=True,
        )


def peak_bytes(name: str, size: str, vocabulary: str, threads: int) -> int:
    """Return the memory that a training step adds to this process."""
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
    """Return whether transformers' Graphormer runs here; if not, print how to install it."""
    try:
        evaluation(build("transformers", "slim", "ogb", molecules("CO")[:1]))()
    except ImportError as error:
        print(f"no transformers, as its Graphormer does not run here ({error}): {INSTALL}")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, sizes, vocabularies = parser.add_argument, ("slim", "base"), ("ogb", "graphormer")
    add("--sizes", nargs="+", default=sizes, choices=sizes, help="of the models (default: both)")
    add("--vocabulary", default="ogb", choices=vocabularies, help="of the features (default: ogb)")
    add("--repeats", type=int, default=3, help="timed rounds (default: 3)")
    add("--threads", type=int, default=2, help="threads of torch (default: 2)")
    add_without(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.without:
        for name in arguments.presets:
            measure_without(name, molecules(SMILES), arguments)
        return
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
