"""Options of the machine: they change how a run is computed, and not its result."""

import ctypes
import functools
import resource
import sys
import types
from pathlib import Path

import pytest
import torch
from support.tiny_run import SORTING, distance, tiny_run, weights
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from slicegraph.models import load
from slicegraph.train import TrainConfig
from slicegraph.train.data import MoleculeRunData
from slicegraph.train.machine import ddp, freed_memory_kept

LARGE = 192 << 20
needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="has no mallopt"
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("plain"))


def trained(folder: Path, **settings) -> Path:
    return tiny_run(folder, **({"epochs": 1, "lr": 1e-3, "dropout": 0.0} | settings)).folder


def test_processes_that_load_data_change_nothing(plain, tmp_path):
    assert distance(trained(tmp_path, workers=2), plain) == 0


@pytest.mark.parametrize(
    ("precision", "hook"),
    [("bf16-mixed", bf16_compress_hook), ("32-true", None), ("16-mixed", None)],
)
def test_several_ranks_send_views_and_in_bf16_half_the_bytes(precision, hook):
    strategy = ddp(precision, accumulate=1)
    assert strategy._ddp_kwargs == {"gradient_as_bucket_view": True, "static_graph": True}
    assert strategy._ddp_comm_hook is hook
    assert not ddp(precision, accumulate=2)._ddp_kwargs["static_graph"]


@pytest.mark.parametrize(
    ("device", "cores", "devices", "expected"),
    [("cpu", 64, 1, 0), ("cuda", 64, 8, 7), ("cuda", 128, 8, 8), ("cuda", 4, 8, 1)],
)
def test_the_number_of_processes_that_load_data_is_chosen(
    tmp_path, monkeypatch, device, cores, devices, expected
):
    monkeypatch.setattr("slicegraph.train.data.cores", lambda: cores)
    strategy = types.SimpleNamespace(root_device=torch.device(device))
    ranks = {"global_rank": 0, "world_size": devices, "num_devices": devices}
    for workers, found in ((None, expected), (3, 3)):
        data = MoleculeRunData(TrainConfig(batch_size=64, workers=workers), dataset=object())
        data.trainer = types.SimpleNamespace(strategy=strategy, **ranks)
        data.setup()
        assert data.workers == found


def test_bf16_on_the_cpu_is_near_float32(plain, tmp_path):
    run = trained(tmp_path, precision="bf16-mixed")
    assert 0 < distance(run, plain) < 0.02
    assert all(value.dtype != torch.bfloat16 for value in weights(run).values())


@pytest.mark.slow
def test_a_compiled_model_is_the_same_model(tmp_path, monkeypatch):
    # Traced as usual, but run without a C++ compiler, which takes minutes.
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr("slicegraph.train.module.torch.compile", compiled)
    short = {"epochs": None, "max_steps": 2, "model": SORTING}
    folders = [tmp_path / "compiled", tmp_path / "plain"]
    for folder in folders:
        folder.mkdir()
    run = trained(folders[0], compile=True, **short)
    assert distance(run, trained(folders[1], **short)) < 1e-5
    load(run / "model")


def test_tensorboard_gets_the_loss_and_the_score(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained(tmp_path, logger="tensorboard") / "tensorboard"))
    events.Reload()
    assert {"valid_loss", "valid_mae"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("valid_mae")) == 1


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_named_and_leaves_no_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr("slicegraph.train.machine.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=f"logger = '{name}' needs {name}; pip install {name}"):
        tiny_run(tmp_path, logger=name)
    assert not (tmp_path / "run").exists()


def test_a_device_that_is_not_there_is_named(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(ValueError, match="accelerator = 'cuda' with devices = '2' cannot be used"):
        tiny_run(tmp_path, accelerator="cuda", devices="2")


@needs_glibc
def test_freed_memory_is_kept_and_returned_at_the_end():
    def pages() -> int:
        """The pages that the system gives to ten tensors, one after another."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.empty(LARGE, dtype=torch.uint8).fill_(1)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    usual = pages()
    with freed_memory_kept():
        pages()
        assert pages() < usual / 4
        within = resident()
    assert resident() < within - LARGE // 2


@pytest.mark.parametrize("missing", ["mallopt", "malloc_trim", "library"])
def test_without_the_private_names_of_glibc_nothing_happens(monkeypatch, missing):
    calls = []
    names = {"mallopt", "malloc_trim"} - {missing}
    library = types.SimpleNamespace(
        **{name: lambda *values: calls.append(values) for name in names}
    )
    found = None if missing == "library" else library
    monkeypatch.setattr("slicegraph.train.machine.ctypes.CDLL", lambda name: found)
    with freed_memory_kept():
        pass
    assert calls == []
