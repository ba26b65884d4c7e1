"""`slicegraph submit`: the file of OGB's own writer."""

import json

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
