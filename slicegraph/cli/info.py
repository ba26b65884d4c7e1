"""Shows which versions are installed, which devices there are and which kernels run on them."""

import argparse
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from types import ModuleType

import torch

from slicegraph import __version__
from slicegraph.ops.backends import BACKENDS, choose, problem

_PACKAGES = (
    "torch",
    "torch-geometric",
    "torch-scatter",
    "ogb",
    "rdkit",
    "numpy",
    "lightning",
    "triton",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`slicegraph info` has no options."""


def run(args: argparse.Namespace) -> None:
    """Prints everything that can be known; a forced backend that serves no device is an error."""
    print(f"slicegraph {__version__}")
    _section("Versions", _versions())
    _section("Devices", _devices())
    device_types = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    failures = [_show_backends(device_type) for device_type in device_types]
    if all(failures):
        raise ValueError(failures[0])


def _show_backends(device_type: str) -> str | None:
    try:
        active, failure = choose(device_type), None
    except ValueError as error:
        active, failure = None, str(error)
    _section(f"Backends for {device_type} tensors", _backends(device_type, active))
    return failure


def _section(title: str, rows: Iterator[tuple[str, str]]) -> None:
    print(f"\n{title}")
    for name, value in rows:
        print(f"  {name:<16} {value}")


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    for package in _PACKAGES:
        yield package, _version(package)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> Iterator[tuple[str, str]]:
    yield "cpu", f"{platform.machine()}, {torch.get_num_threads()} threads, SIMD level {_simd()}"
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        memory = f"{device.total_memory / 2**30:.0f} GiB"
        yield f"cuda:{number}", f"{device.name}, sm_{device.major}{device.minor}, {memory}"
    if not torch.cuda.is_available():
        yield "cuda", "no device" if torch.version.cuda else "this build of torch has no CUDA"


def _simd() -> str:
    if problem("cpu", "cpu") is not None:
        return "unknown, the C++ kernels are not available"
    return str(BACKENDS["cpu"].simd_level())


def _backends(device_type: str, active: ModuleType | None) -> Iterator[tuple[str, str]]:
    if forced := os.environ.get("SLICEGRAPH_BACKEND"):
        yield "(forced)", f"SLICEGRAPH_BACKEND={forced}"
    for name, module in BACKENDS.items():
        reason = problem(name, device_type)
        unused = "available" if reason is None else f"not available: {reason}"
        yield name, "active" if module is active else unused
