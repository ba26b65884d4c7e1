"""Options about the machine: they change how a run is made, and not what comes of it."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from models.huggingface_folder import formula_folder
from support.dying_run import weights
from support.tiny_run import tiny_config

from slicegraph.models import load
from slicegraph.train import train

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(tiny_config(tmp_path_factory.mktemp("plain"), epochs=1), progress=False)


def distance(run: Path, other: Path) -> float:
    """The largest difference of two weights."""
    found, expected = weights(run), weights(other)
    return max(float((found[name] - expected[name]).abs().max()) for name in expected)


def test_processes_that_load_data_change_nothing(plain, tmp_path):
    result = train(tiny_config(tmp_path, epochs=1, workers=2), progress=False)
    assert distance(result.folder, plain.folder) == 0


def test_bf16_on_the_cpu_is_near_float32(tmp_path):
    # With small steps: large ones carry a rounding error anywhere.
    exact, result = (
        train(
            tiny_config(tmp_path, lr=1e-3, out=str(tmp_path / name), precision=name), progress=False
        )
        for name in ("32-true", "bf16-mixed")
    )
    assert 0 < distance(result.folder, exact.folder) < 0.02
    assert result.test == pytest.approx(exact.test, abs=0.05)
    assert all(value.dtype != torch.bfloat16 for value in weights(result.folder).values())


def test_a_compiled_model_is_the_same_model(plain, tmp_path, monkeypatch):
    # Traced as ever, but run without a C++ compiler, which takes minutes.
    compiled = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr("slicegraph.train.module.torch.compile", compiled)
    result = train(tiny_config(tmp_path, epochs=1, compile=True, dropout=0.0), progress=False)
    other = tiny_config(tmp_path, epochs=1, dropout=0.0, out=str(tmp_path / "other"))
    assert distance(result.folder, train(other, progress=False).folder) < 1e-5
    load(result.model)


def test_tensorboard_gets_the_loss_and_the_score(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = train(tiny_config(tmp_path, logger="tensorboard"), progress=False)
    events = EventAccumulator(str(result.folder / "tensorboard"))
    events.Reload()
    assert {"valid_loss", "valid_mae"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("valid_mae")) == 3


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_named_and_leaves_no_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr("slicegraph.train.loggers.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=f"logger = '{name}' needs {name}; pip install {name}"):
        train(tiny_config(tmp_path, logger=name), progress=False)
    assert not (tmp_path / "run").exists()


def test_torchrun_starts_the_ranks(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text(tiny_config(tmp_path, epochs=1).to_yaml())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["-m", "slicegraph", "train", "--config", str(settings)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test MAE") == 1
    assert "on 2 x cpu" in done.stdout


def test_a_run_starts_from_a_graphormer_of_transformers(tmp_path):
    folder = formula_folder(tmp_path / "graphormer")
    config = tiny_config(tmp_path, init=str(folder), model={}, lr=1e-12, epochs=1)
    result = train(config, progress=False)
    assert np.isfinite(result.test)
    tuned = load(result.model)
    assert (tuned.config.mixer, tuned.config.channels) == ("qkv", 16)
    expected = type(tuned).from_huggingface(folder).embedding.nodes.weight
    torch.testing.assert_close(tuned.embedding.nodes.weight, expected)


def test_a_run_starts_from_the_best_checkpoint_of_one_that_was_interrupted(plain, tmp_path):
    best = tmp_path / "old" / "checkpoints" / "best.ckpt"
    best.parent.mkdir(parents=True)
    best.write_bytes((plain.folder / "checkpoints" / "best.ckpt").read_bytes())
    config = tiny_config(tmp_path, init=str(tmp_path / "old"), model={}, lr=1e-12, epochs=1)
    tuned = load(train(config, progress=False).model)
    torch.testing.assert_close(tuned.head.weight, load(plain.model).head.weight)
