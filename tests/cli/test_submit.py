"""`slicegraph submit`: the file of OGB's own writer."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from ogb.lsc import PCQM4MEvaluator, PCQM4Mv2Evaluator
from support.ogb_folders import LSC_SPLITS, MOLECULES, gap, write_lsc
from support.small_models import save_model

from slicegraph import metrics
from slicegraph.cli import main
from slicegraph.predict.predictor import load_predictor

SUBMISSIONS = [
    ("pcqm4m-v2", "test-dev", "y_pred_pcqm4m-v2_test-dev.npz"),
    ("pcqm4m-v2", "test-challenge", "y_pred_pcqm4m-v2_test-challenge.npz"),
    ("pcqm4m", "test", "y_pred_pcqm4m.npz"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_model(tmp_path_factory.mktemp("saved") / "model"))


@pytest.fixture
def small_release(monkeypatch):
    """OGB's writer for a release as small as those of the tests: it asserts the official sizes."""
    for name, splits in LSC_SPLITS.items():
        for split, rows in splits.items():
            if split.startswith("test"):
                monkeypatch.setitem(metrics._SUBMISSIONS, (name, split), len(rows))

    def save_v2(self, input_dict, dir_path, mode):
        np.savez_compressed(f"{dir_path}/y_pred_pcqm4m-v2_{mode}", y_pred=input_dict["y_pred"])

    def save_v1(self, input_dict, dir_path):
        np.savez_compressed(f"{dir_path}/y_pred_pcqm4m", y_pred=input_dict["y_pred"])

    monkeypatch.setattr(PCQM4Mv2Evaluator, "save_test_submission", save_v2)
    monkeypatch.setattr(PCQM4MEvaluator, "save_test_submission", save_v1)


@pytest.mark.parametrize(("name", "split", "file"), SUBMISSIONS)
def test_the_predictions_are_in_the_order_of_the_split(
    model, tmp_path, capsys, small_release, name, split, file
):
    write_lsc(tmp_path, name)
    words = ["--data", name, "--split", split, "--root", str(tmp_path), "--out"]
    assert main(["submit", model, *words, str(tmp_path / "new" / "folder")]) == 0
    path = tmp_path / "new" / "folder" / file
    count = len(LSC_SPLITS[name][split])
    assert f"{count} predictions of {split} in {path}" in capsys.readouterr().out
    with np.load(path) as written:
        found = written["y_pred"]
    expected = load_predictor(model).predict([MOLECULES[row] for row in LSC_SPLITS[name][split]])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_several_models_are_averaged_and_described(model, tmp_path, capsys, small_release):
    write_lsc(tmp_path, "pcqm4m-v2")
    other = str(save_model(tmp_path / "run" / "model", seed=5))
    facts = {"device": "8 x NVIDIA A100 (80 GiB)", "train_seconds": 5400.0}
    (tmp_path / "run" / "metrics.json").write_text(json.dumps(facts))
    words = ["--root", str(tmp_path), "--out", str(tmp_path)]
    assert main(["submit", model, other, *words]) == 0
    with np.load(tmp_path / SUBMISSIONS[0][2]) as written:
        found = written["y_pred"]
    models = [load_predictor(path) for path in (model, other)]
    rows = LSC_SPLITS["pcqm4m-v2"]
    each = [one.predict([MOLECULES[row] for row in rows["test-dev"]]) for one in models]
    assert np.abs(each[0] - each[1]).max() > 1e-3
    np.testing.assert_allclose(found, (each[0] + each[1]) / 2, atol=1e-5)
    said = capsys.readouterr().out
    size = sum(weight.numel() for weight in models[0].parameters())
    assert f"parameters  {2 * size:,} ({size:,} + {size:,})" in said
    assert f"{model}: not known" in said
    assert f"{other}: 8 x NVIDIA A100 (80 GiB), 1.50 h of training" in said
    valid = np.mean([one.predict([MOLECULES[row] for row in rows["valid"]]) for one in models], 0)
    error = np.abs(valid - [gap(row) for row in rows["valid"]]).mean()
    assert f"valid       MAE {error:.4f} eV" in said


SMALL = "--accelerator cpu --devices 1 --threads 1 --max-steps 4 --batch-size 4 --model.heads 2"
SMALL += " --model.num_layers 1 --model.channels 16 --model.ffn_channels 16"


@pytest.mark.slow
def test_the_commands_of_the_guide_lead_to_the_file(tmp_path, capsys, monkeypatch, small_release):
    monkeypatch.chdir(tmp_path)
    write_lsc(tmp_path / "dataset", "pcqm4m-v2")
    guide = Path(__file__).parents[2] / "docs" / "ogb-lsc.md"
    blocks = guide.read_text("utf-8").split("```")[1::2]
    text = "".join(block for block in blocks if block.startswith("bash")).replace("\\\n", " ")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("slicegraph ")]
    assert {command[1] for command in commands} == {"prepare", "train", "evaluate", "submit"}
    for _, *words in commands:
        trains = words[0] == "train" and "--resume" not in words
        assert main([*words, *(SMALL.split() if trains else ())]) == 0, words
    said = capsys.readouterr().out
    assert "valid       no score" in said
    written = sorted(path.name for path in (tmp_path / "submission").iterdir())
    assert written == sorted(file for name, _, file in SUBMISSIONS if name == "pcqm4m-v2")


@pytest.mark.parametrize(("name", "file"), [SUBMISSIONS[0][::2], SUBMISSIONS[2][::2]])
def test_the_first_test_split_is_the_default(model, tmp_path, small_release, name, file):
    write_lsc(tmp_path, name)
    words = ["--data", name, "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["submit", model, *words]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == [file]


def test_a_split_that_is_not_the_official_one_is_refused_before_predicting(
    model, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("slicegraph.predict.predictor.MoleculePredictor.predict_store", None)
    write_lsc(tmp_path, "pcqm4m-v2")
    words = ["--data", "pcqm4m-v2", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["submit", model, *words]) == 2
    assert "shape [2], expected [147037]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_split_that_nobody_submits_is_refused(model, tmp_path, capsys, split):
    write_lsc(tmp_path, "pcqm4m-v2")
    words = ["--data", "pcqm4m-v2", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["submit", model, *words, "--split", split]) == 2
    message = f"split {split!r} of pcqm4m-v2 is not submitted, expected test-dev, test-challenge"
    assert message in capsys.readouterr().err


def test_a_model_of_something_else_is_refused(tmp_path, capsys):
    write_lsc(tmp_path, "pcqm4m-v2")
    folder = save_model(tmp_path / "model", num_targets=2, target_names=("a", "b"))
    words = ["--data", "pcqm4m-v2", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main(["submit", str(folder), *words]) == 2
    assert "does not fit pcqm4m-v2: number of targets 2" in capsys.readouterr().err


def test_a_data_set_without_a_leaderboard_file_is_a_usage_error(model, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["submit", model, "--data", "mini", "--out", str(tmp_path)])
    assert exit.value.code == 2
    assert "invalid choice: 'mini'" in capsys.readouterr().err
