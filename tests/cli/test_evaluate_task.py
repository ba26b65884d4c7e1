"""`slicegraph evaluate` for a model of sequences."""

import numpy as np
import pytest
from support.traced_models import sequence_model

from slicegraph.cli import main
from slicegraph.tasks import load_task
from slicegraph.train import TrainConfig


@pytest.fixture
def run(tmp_path) -> list[str]:
    """The command for a run of 40 expressions, of which a model reads 600 tokens."""
    sequence_model(max_length=600).save(tmp_path / "run" / "model")
    config = TrainConfig(task="listops", examples=40).resolved()
    (tmp_path / "run" / "config.yaml").write_text(config.to_yaml())
    return ["evaluate", str(tmp_path / "run"), "--root", str(tmp_path)]


@pytest.mark.parametrize("split", ["train", "all"])
def test_how_many_sequences_are_cut_is_said_in_a_line(tmp_path, run, capsys, split):
    assert main([*run, "--split", split]) == 0
    store = load_task("listops", tmp_path, examples=40).store
    lengths = np.array([len(store[i][0]) for i in range(32 if split == "train" else 40)])
    score, note = capsys.readouterr().out.splitlines()
    assert score.startswith(f"{split} accuracy ")
    assert note == (
        f"note {(lengths > 600).sum()} of {len(lengths)} sequences, the longest of "
        f"{lengths.max():,}, are longer than max_length = 600 and are cut after it"
    )


def test_files_may_take_the_place_of_what_was_generated(run, capsys):
    assert main([*run, "--data", "nowhere"]) == 2
    assert "error: there is no nowhere; --data is the folder lra_release" in capsys.readouterr().err
