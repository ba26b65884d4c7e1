"""Show the installed versions, the devices, the kernels that run on them, and the cache."""

import argparse
import os
import platform
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import torch

from slicegraph import __version__
from slicegraph.extras import PACKAGES, missing, pip_install
from slicegraph.ops.operator import BACKENDS, choose, problem

_PACKAGES = "torch torch-geometric torch-scatter ogb rdkit numpy lightning triton"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `slicegraph info`."""
    parser.add_argument(
        "--gpu-check",
        action="store_true",
        help="check every kernel against the reference, count waits and measure the rate of "
        "training on the GPU (on the CPU without one, at small sizes): a page to paste into an "
        "issue; takes minutes",
    )


def run(args: argparse.Namespace) -> None:
    """Print versions, devices and backends; a forced backend that serves no device is an error."""
    if args.gpu_check:
        check = import_module("slicegraph.cli.gpu_check").check  # imports PyG's models
        for line in check(torch.device("cuda" if torch.cuda.is_available() else "cpu")):
            print(line, flush=True)
        return
    print(f"slicegraph {__version__}")
    _section("Versions", _versions())
    _section("Extras", _extras())
    _section("Devices", _devices())
    device_types = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    failures = []
    for device_type in device_types:
        active = None
        try:
            active = choose(device_type)
        except ValueError as error:
            failures.append(error)
        _section(f"Backends for {device_type} tensors", _backends(device_type, active))
    _section("Cache of prepared tables", _cache())
    if len(failures) == len(device_types):
        raise failures[0]


def _section(title: str, rows: Iterator[tuple[str, str]]) -> None:
    print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:<16} {value}")


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in _PACKAGES.split():
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            yield package, "not installed"


def _extras() -> Iterator[tuple[str, str]]:
    for extra in PACKAGES:
        lacking = ", ".join(missing(extra))
        yield extra, f"{lacking} not installed; {pip_install(extra)}" if lacking else "installed"


def _devices() -> Iterator[tuple[str, str]]:
    simd = "unknown, the C++ kernels are not available"
    if problem("cpu", "cpu") is None:
        simd = BACKENDS["cpu"].simd_level()
    yield "cpu", f"{platform.machine()}, {torch.get_num_threads()} threads, SIMD level {simd}"
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        memory = f"{device.total_memory / 2**30:.0f} GiB"
        yield f"cuda:{number}", f"{device.name}, sm_{device.major}{device.minor}, {memory}"
    if not torch.cuda.is_available():
        yield "cuda", "no device" if torch.version.cuda else "this build of torch has no CUDA"


def _backends(device_type: str, active: ModuleType | None) -> Iterator[tuple[str, str]]:
    if forced := os.environ.get("SLICEGRAPH_BACKEND"):
        yield "(forced)", f"SLICEGRAPH_BACKEND={forced}"
    for name, module in BACKENDS.items():
        reason = problem(name, device_type)
        unused = "available" if reason is None else f"not available: {reason}"
        yield name, "active" if module is active else unused


def _cache() -> Iterator[tuple[str, str]]:
    try:
        folder = Path(import_module("slicegraph.data.datasets.csv").cache_folder())
    except ImportError:
        yield "folder", f"none without the extra mol; {pip_install('mol')}"
        return
    yield "folder", f"{folder} (SLICEGRAPH_CACHE chooses another)"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    yield "size", f"{sum(sizes) / 1e6:,.1f} MB in {len(sizes):,} files" if sizes else "empty"
