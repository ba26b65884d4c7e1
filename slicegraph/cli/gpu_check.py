"""The page of `slicegraph info --gpu-check`: every kernel against its reference, waits and speed.

On a machine with a GPU it is the first measurement of the code there, to paste into an issue. On a
CPU the same checks run at small sizes, with the C++ kernels and with the code of a GPU on plain
torch.
"""

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINEConv, GPSConv, global_mean_pool
from torch_geometric.transforms import BaseTransform

from slicegraph import __version__
from slicegraph.models import GraphSliceformer
from slicegraph.models.graph import preset
from slicegraph.models.presets import PRESETS
from slicegraph.ops import column_sort, edge_sum, max_exchange, slice_attention, use_backend
from slicegraph.ops.mix import dense_mix
from slicegraph.ops.operator import as_on_gpu, choose
from slicegraph.ops.pairs import dropout_add_op
from slicegraph.transforms import StructuralEncoding
from slicegraph.vocabulary import OGB_ATOMS, OGB_BONDS

RATED = ("sliceformer-base", "slicegraph-base", "graphormer-base")


class Size(NamedTuple):
    """How large the checks are: the models have their own size if `fields` is empty."""

    molecules: int
    steps: int
    channels: int
    fields: dict[str, Any]


SIZES = {
    "cuda": Size(256, 30, 768, {}),
    "cpu": Size(8, 2, 16, {"num_layers": 2, "channels": 16, "ffn_channels": 16, "heads": 4}),
}


def check(device: torch.device) -> Iterator[str]:
    """The lines of the page; raise a ValueError at the end if a check failed."""
    size, failed = SIZES[device.type], 0
    yield f"slicegraph {__version__}, torch {torch.__version__}, {_name(device)}"
    yield f"backend {choose(device.type).__name__.rpartition('.')[2]}"
    yield f"\n{'Kernel':<38}{'difference from the reference':>32}"
    for name, difference, allowed in _differences(device, size.channels):
        wrong = not difference <= allowed  # NaN is wrong too
        failed += wrong
        yield f"{name:<38}{difference:>32.1e}{f'  FAILED, expected {allowed:g}' if wrong else ''}"
    yield f"\nTests: {_run_tests(device)}"
    batch = molecules(size.molecules).to(device.type)
    yield f"\n{'One step of a preset':<38}{'loss':>12}{'waits for the device':>28}"
    for name in PRESETS:
        loss, waits = _step(name, batch, size)
        failed += not loss < float("inf")
        yield f"{name:<38}{loss:>12.4f}{waits:>28}"
    columns = f"{'kernels':>14}{'torch alone':>14}"
    yield f"\n{f'Molecules a second, {size.molecules} a batch':<38}{columns}"
    for name in RATED:
        model = GraphSliceformer(preset(name, **size.fields)).to(device.type)
        ours = _rate(model, batch, size.steps)
        with use_backend("reference"):
            plain = _rate(model, batch, size.steps)
        yield f"{name:<38}{ours:>14,.0f}{plain:>14,.0f}"
    fields = preset("slicegraph-base", **size.fields).pick("channels", "heads", "num_layers")
    rate = _rate(GPS(**fields).to(device.type), batch, size.steps)
    yield f"{'GPSConv of PyG, equal size':<38}{'':>14}{rate:>14,.0f}"
    if failed:
        raise ValueError(
            f"gpu-check: {failed} checks failed on {_name(device)}; see the page above"
        )


def _name(device: torch.device) -> str:
    if device.type == "cpu":
        return f"CPU with {torch.get_num_threads()} threads (no GPU: reference form)"
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, sm_{found.major}{found.minor}, {found.total_memory / 2**30:.0f} GiB"


def _differences(device: torch.device, channels: int) -> Iterator[tuple[str, float, float]]:
    """Every kernel with a gradient: its name, the largest difference, and what is allowed."""
    half = (torch.bfloat16, torch.float16) if device.type == "cuda" else ()
    for name, (run, shapes, exact) in _kernels(device, channels).items():
        for dtype in (torch.float32, *half):
            generator = torch.Generator().manual_seed(0)
            inputs = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
            found = _outcome(run, inputs)
            with use_backend("reference"):
                expected = _outcome(run, inputs)
            difference = max(
                float((a - b).abs().max() / b.abs().max().clamp(min=1))
                for a, b in zip(found, expected, strict=True)
            )
            allowed = 0.0 if exact else {4: 1e-4, 2: 5e-2}[dtype.itemsize]
            yield f"{name}, {str(dtype).removeprefix('torch.')}", difference, allowed


def _outcome(run: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The output and the gradients, of the same random numbers each time."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    torch.manual_seed(0)
    out = run(*leaves)
    return [
        x.detach().float() for x in (out, *torch.autograd.grad(out.float().sin().sum(), leaves))
    ]


def _kernels(device: torch.device, c: int) -> dict[str, tuple[Callable[..., Tensor], Any, bool]]:
    """The function, the shapes of its inputs and whether all bits must be those of the reference.

    The mixes are checked by 4 heads, 5 sets and up to 52 rows.
    """

    def integers(values: list[int]) -> Tensor:
        return torch.tensor(values, device=device)

    lengths, ptr = integers([52, 0, 17, 1, 33]), integers([0, 40, 40, 41, 120])
    down, seed = torch.arange(c, device=device) % 3 == 1, torch.tensor(2**40)
    codes = torch.arange(120, device=device).remainder(13).view(-1, 1)
    index = torch.stack([torch.arange(120, device=device), integers([7, 3] * 60)])
    mixed: Any = [(5, 52, c), (5, 4, 52, 52)]

    def sort(**sets: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: column_sort(x, **sets, return_indices=False)

    def mix(**options: Any) -> Callable[..., Tensor]:
        return lambda v, b, w=None: dense_mix(v, b, lengths, weight=w, **options)[0]

    return {
        "column_sort of padded sets": (sort(lengths=lengths, descending=down), [(5, 52, c)], True),
        "column_sort of packed sets": (sort(ptr=ptr), [(120, c)], True),
        "column_sort of 1,024 rows": (sort(), [(1, 1024, c)], True),
        "column_sort of 3,000 rows": (sort(descending=down), [(1, 3000, c)], True),
        "max_exchange": (lambda x: max_exchange(x, ptr=ptr), [(120, c)], True),
        "slice_attention": (
            lambda k, v: slice_attention(k, k, v, ptr=ptr),
            [(120, 4), (120, c)],
            False,
        ),
        "dense_mix": (mix(), mixed, False),
        "dense_mix, sorted": (mix(sort=True, descending=down), mixed, False),
        "dense_mix, quantiles": (mix(), [*mixed, (5, c)], False),
        "dropout_add": (lambda x, y: dropout_add_op(x, y, seed, 0.1), [(120, c)] * 2, False),
        "edge_sum": (lambda x, t: edge_sum(x, t, codes, index), [(120, c), (13, c)], False),
    }


def _run_tests(device: torch.device) -> str:
    """Run the tests that are marked gpu, if this is a folder of the source."""
    folder = Path(__file__).parents[2] / "tests"
    if device.type != "cuda":
        return "those marked gpu need a CUDA device"
    if not folder.is_dir():
        return "not installed here; they are in the source"
    words = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", str(folder)]
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else f"pytest failed: {done.stderr.strip()[-300:]}"


def molecules(count: int, encode: BaseTransform | None = None) -> Batch:
    """Rings with side chains, 8 to 24 atoms, with all that the collate step writes."""
    generator, graphs = torch.Generator().manual_seed(0), []
    for number in range(count):
        nodes = 8 + 7 * number % 17
        first = torch.cat([torch.arange(nodes - 1), torch.tensor([5])])
        ends = torch.stack([first, torch.cat([torch.arange(1, nodes), torch.tensor([0])])])
        edge_index = torch.cat([ends, ends.flip(0)], 1)
        x, edge_attr = (
            torch.cat([torch.randint(n, (rows, 1), generator=generator) for n in sizes], 1)
            for rows, sizes in ((nodes, OGB_ATOMS), (edge_index.shape[1], OGB_BONDS))
        )
        graphs.append(Data(x, edge_index, edge_attr))
    batch = (encode or StructuralEncoding())(Batch.from_data_list(graphs))
    batch.max_nodes = int(batch.ptr.diff().max())
    return batch


def _loss(model: torch.nn.Module, batch: Batch) -> Tensor:
    cuda = batch.x.is_cuda
    with torch.autocast(batch.x.device.type, torch.bfloat16, enabled=cuda):
        out = model(batch)
    return functional.l1_loss(out.float(), torch.ones_like(out, dtype=torch.float32))


def _step(name: str, batch: Batch, size: Size) -> tuple[float, str]:
    """The loss of a training step, and how often the host waited for the device in it."""
    model = GraphSliceformer(preset(name, **size.fields)).to(batch.x.device)
    if model.ring_nodes is not None:  # rings are found on the CPU
        batch = molecules(size.molecules, model.ring_nodes).to(str(batch.x.device))
    if not batch.x.is_cuda:
        with as_on_gpu():
            loss = _loss(model, batch)
            loss.backward()
        return loss.item(), "needs a GPU"
    _loss(model, batch).backward()  # compiles the kernels
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            loss = _loss(model, batch)
            loss.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return loss.item(), str(sum("synchroniz" in str(wait.message) for wait in waits))


def _rate(model: torch.nn.Module, batch: Batch, steps: int) -> float:
    """Molecules a second of training steps."""
    cuda = batch.x.is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cuda)
    start = 0.0
    for step in range(-3 if cuda else -1, steps):
        if step == 0:
            start = _now(cuda)
        optimizer.zero_grad()
        _loss(model, batch).backward()
        optimizer.step()
    return steps * batch.num_graphs / (_now(cuda) - start)


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


class GPS(torch.nn.Module):
    """PyG's GPSConv layers between embeddings of OGB's features and a mean of the nodes."""

    def __init__(self, channels: int, heads: int, num_layers: int) -> None:
        super().__init__()
        embedding, linear = torch.nn.Embedding, torch.nn.Linear
        self.nodes = torch.nn.ModuleList(embedding(n, channels) for n in OGB_ATOMS)
        self.edges = torch.nn.ModuleList(embedding(n, channels) for n in OGB_BONDS)
        self.layers = torch.nn.ModuleList(
            GPSConv(channels, GINEConv(linear(channels, channels)), heads)
            for _ in range(num_layers)
        )
        self.head = linear(channels, 1)

    def forward(self, batch: Batch) -> Tensor:
        """Predicts one number for each graph."""
        x = sum(table(batch.x[:, i]) for i, table in enumerate(self.nodes))
        edge_attr = sum(table(batch.edge_attr[:, i]) for i, table in enumerate(self.edges))
        for layer in self.layers:
            x = layer(x, batch.edge_index, batch.batch, edge_attr=edge_attr)
        return self.head(global_mean_pool(x, batch.batch))
