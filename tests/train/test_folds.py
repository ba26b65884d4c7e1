"""Folds, repeats and ensembles: what is trained on what, and one run folder of all of it."""

import csv
import json
import multiprocessing
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.tiny_run import tiny_config, tiny_run, write_table

import slicegraph
from slicegraph.cli import main
from slicegraph.data import load
from slicegraph.report import write_report
from slicegraph.train import folds, train
from slicegraph.train.folds import plan
from slicegraph.train.module import TrainingError, TrainingModule
from slicegraph.train.run_folder import RunFolder

SMILES = ["CCO", "CN", "CNOC"]


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def three_folds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    write_table(folder / "table.csv", 60)
    return tiny_run(folder, folds=3, jobs=1, epochs=2)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble")
    write_table(folder / "table.csv", 60)
    return tiny_run(folder, ensemble=2, jobs=1, epochs=2, fractions=(0.5, 0.25, 0.25))


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    write_table(folder / "table.csv", 80, "class")
    options = {"targets": ("class",), "task": "multiclass", "split": "stratified"}
    return tiny_run(folder, folds=2, ensemble=2, jobs=1, epochs=1, **options)


@pytest.mark.parametrize("split", ["random", "scaffold", "stratified"])
def test_every_molecule_is_tested_once_and_is_in_one_part_of_each_fold(tmp_path, split):
    # Ten ring sizes, which are ten scaffolds, each with five chains.
    texts = [f"C1{'C' * (n % 10 + 1)}C1{'C' * (n // 10)}N" for n in range(50)]
    table = tmp_path / "table.csv"
    rows = [f"{text},{(n + n // 10) % 2}" for n, text in enumerate(texts)]
    table.write_text("\n".join(["smiles,active", *rows]))
    scaffolds = np.arange(50) % 10
    parts = []
    for fold in (1, 2, 3):
        options = {"folds": 3, "fold": fold, "split": split, "targets": "active"}
        data = load(f"csv:{table}", tmp_path, progress=False, **options)
        joined = np.concatenate(list(data.splits.values()))
        assert sorted(joined) == list(range(50))
        keys = [set(data.keys[part].tolist()) for part in data.splits.values()]
        assert not keys[0] & keys[1] | keys[0] & keys[2] | keys[1] & keys[2]
        labels = data.labels(data.splits["test"])
        assert {0.0, 1.0} == set(labels[:, 0].tolist())
        if split == "scaffold":
            trained = np.r_[data.splits["train"], data.splits["valid"]]
            assert not np.isin(scaffolds[data.splits["test"]], scaffolds[trained]).any()
        parts.append(data.splits["test"])
        assert len(data.splits["valid"]) >= 2
    assert sorted(np.concatenate(parts)) == list(range(50))
    assert max(map(len, parts)) - min(map(len, parts)) <= (5 if split == "scaffold" else 2)


def test_folds_share_classes_as_the_whole_table(tmp_path):
    table = write_table(tmp_path / "table.csv", 90, "active")
    shares = []
    for fold in range(1, 6):
        options = {"folds": 5, "fold": fold, "split": "stratified", "targets": "active"}
        data = load(f"csv:{table}", tmp_path, progress=False, **options)
        shares.append(data.labels(data.splits["test"]).sum())
    assert max(shares) - min(shares) <= 1


def test_models_differ_in_seed_and_repeats_in_the_split(tmp_path):
    config = tiny_config(tmp_path, folds=2, repeats=2, ensemble=2, split_seed=5, seed=10)
    members = plan(config, Path("run"))
    assert [member.name for member in members[:3]] == [
        "repeat-1-fold-1-model-1",
        "repeat-1-fold-1-model-2",
        "repeat-1-fold-2-model-1",
    ]
    assert [member.group for member in members] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [member.config.split_seed for member in members[::4]] == [5, 6]
    assert [member.config.seed for member in members[::2]] == [10, 10, 12, 12]
    assert {member.config.several for member in members} == {False}


def test_a_fold_of_many_is_the_run_of_that_fold_alone(three_folds, tmp_path):
    settings = RunFolder(three_folds.folder / "members" / "fold-2").config
    alone = train({**vars(settings), "out": str(tmp_path / "alone")}, progress=False)
    line = three_folds.metrics["runs"][1]
    assert (line["name"], line["test"]) == ("fold-2", alone.test)


def test_the_result_is_the_mean_and_deviation_of_the_folds(three_folds):
    scores = [line["test"] for line in three_folds.metrics["runs"]]
    assert three_folds.test == pytest.approx(np.mean(scores))
    assert three_folds.metrics["test_std"] == pytest.approx(np.std(scores, ddof=1))
    assert str(three_folds).startswith("test MAE ")
    assert str(three_folds).endswith("(3 folds)")
    assert json.loads((three_folds.folder / "metrics.json").read_text()) == three_folds.metrics
    assert RunFolder(three_folds.folder).state == "finished"


def test_every_molecule_has_a_prediction_of_the_fold_that_has_not_seen_it(three_folds):
    rows = read(three_folds.folder / "predictions" / "test.csv")
    assert sorted(int(row["index"]) for row in rows) == list(range(60))
    model = slicegraph.load(three_folds.folder / "members" / "fold-3")
    own = [row for row in rows if row["split"] == "fold-3"]
    found = model.predict([row["smiles"] for row in own])
    np.testing.assert_allclose(found, [float(row["gap_pred"]) for row in own], atol=1e-5)


@pytest.mark.parametrize("kind", ["three_folds", "ensemble"])
def test_the_worst_and_best_are_explained_by_models_that_have_not_seen_them(kind, request):
    folder = request.getfixturevalue(kind).folder
    tested = pd.read_csv(folder / "predictions" / "test.csv").set_index("row")
    found = pd.read_csv(folder / "contributions.csv")
    each = found.groupby("row", sort=False)
    errors = (tested["gap_pred"] - tested["gap_true"]).abs().sort_values(ascending=False)
    assert {*errors.index[:10], *errors.index[-10:]} == {*each.groups}
    first = each.first()
    np.testing.assert_allclose(first["prediction"], tested["gap_pred"][first.index], atol=1e-4)
    total = each["contribution"].sum() + first["baseline"]
    np.testing.assert_allclose(total, first["prediction"], atol=1e-4)
    assert (each["contribution"].count() == tested["num_atoms"][first.index]).all()
    assert "Orange atoms raise" in write_report(folder).read_text("utf-8")


def test_the_prediction_of_several_models_is_their_mean_and_has_their_deviation(three_folds):
    each = [
        slicegraph.load(three_folds.folder / "members" / f"fold-{fold}").predict(SMILES)
        for fold in (1, 2, 3)
    ]
    model = slicegraph.load(three_folds.folder)
    np.testing.assert_allclose(model.predict(SMILES), np.mean(each, 0), rtol=1e-5)
    more = model.predict_rows(SMILES).more
    assert list(more) == ["gap_std"]
    np.testing.assert_allclose(more["gap_std"], np.std(each, 0, ddof=1), rtol=1e-4)
    assert model.embed(SMILES).shape == (3, 3 * model.readout.out_channels)


def test_intervals_of_folds_have_their_level_on_the_held_out_molecules(three_folds):
    model = slicegraph.load(three_folds.folder)
    assert len(model.calibration.labels) == 60
    assert sorted(set(model.calibration.group.tolist())) == [0, 1, 2]
    ends = model.predict_interval(SMILES, 0.9)
    assert ends.shape == (3, 2)
    assert (ends[:, 0] < model.predict(SMILES)).all()
    assert (np.diff(model.predict_interval(SMILES, 0.5)) < np.diff(ends)).all()
    assert np.isnan(model.predict_interval(["C", "no"], 0.9, on_error="nan")[1]).all()
    with pytest.raises(ValueError, match=r"predict_interval: smiles\[0\] = 'no'"):
        model.predict_interval("no")
    coverage = three_folds.metrics["uncertainty"]["gap"]
    assert coverage["n"] == 60
    at = dict(zip(coverage["levels"], coverage["coverage"], strict=True))
    assert at[0.8] == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / 60) ** 0.5)


def test_an_ensemble_is_calibrated_on_valid_and_normalised_by_its_deviation(ensemble):
    model = slicegraph.load(ensemble.folder)
    calibration = model.calibration
    assert calibration.normalised
    rows = read(ensemble.folder / "predictions" / "valid.csv")
    np.testing.assert_array_equal(calibration.index, [int(row["index"]) for row in rows])
    assert ensemble.metrics["uncertainty"]["gap"]["n"] == 15
    test = read(ensemble.folder / "predictions" / "test.csv")
    error = [abs(float(row["gap_true"]) - float(row["gap_pred"])) for row in test]
    assert ensemble.test == pytest.approx(np.mean(error), abs=1e-5)
    assert str(ensemble).startswith("test MAE")
    assert "±" not in str(ensemble)


def test_a_saved_ensemble_comes_back_whole(ensemble, tmp_path):
    model = slicegraph.load(ensemble.folder)
    expected = model.predict_interval(SMILES, 0.8)
    model.double().float().save(tmp_path / "copy")
    copy = slicegraph.load(tmp_path / "copy")
    assert len(copy.members) == 2
    np.testing.assert_allclose(copy.predict_interval(SMILES, 0.8), expected, rtol=1e-5)
    (tmp_path / "copy" / "member-2" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"ensemble of 2 models, and member-2 is missing"):
        slicegraph.load(tmp_path / "copy")
    assert len(list((tmp_path / "copy").rglob("calibration.npz"))) == 1


def test_classes_have_sets_and_calibrated_probabilities(classes):
    model = slicegraph.load(classes.folder)
    found = model.predict_rows(SMILES, interval=0.8)
    names = ["class_std", "class_calibrated_0", "class_calibrated_1", "class_calibrated_2"]
    assert list(found.more) == [*names, "class_set"]
    calibrated = np.stack([found.more[name] for name in names[1:]])
    np.testing.assert_allclose(calibrated.sum(0), 1)
    inside = model.predict_interval(SMILES, 0.8)
    assert inside.shape == (3, 3)
    assert list(found.more["class_set"]) == [
        "|".join(str(number) for number in np.flatnonzero(row)) for row in inside
    ]
    np.testing.assert_allclose(found.values[:, 0].sum(-1), 1, rtol=1e-6)
    facts = classes.metrics["uncertainty"]["class"]
    assert len(facts["coverage_of_classes"]) == 3
    assert len(facts["ece"]) == 2


def test_predict_adds_the_columns_for_files_and_for_texts(classes, three_folds, tmp_path, capsys):
    table = tmp_path / "new.csv"
    table.write_text("smiles,n\nCCO,1\nno,2\nCNOC,3\n")
    options = ["--interval", "0.8", "--nearest", "--workers", "1"]
    out = tmp_path / "out.csv"
    assert main(["predict", str(three_folds.folder), "CCO", *options[:3]]) == 0
    assert "gap_low" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["predict", str(three_folds.folder), str(table), "--out", str(out), *options])
    rows = read(out)
    near = ["nearest_train_similarity", "nearest_train_molecule", "outside_domain"]
    added = ["gap_pred", "gap_std", "gap_low", "gap_high", *near, "warning", "error"]
    assert list(rows[0]) == ["smiles", "n", *added]
    assert float(rows[0]["gap_low"]) < float(rows[0]["gap_pred"]) < float(rows[0]["gap_high"])
    assert float(rows[0]["nearest_train_similarity"]) == 1.0
    assert rows[0]["nearest_train_molecule"] in ("CCO", "OCC")
    assert [rows[1][name] for name in added[:-1]] == [""] * 8
    assert rows[1]["error"]
    frame = slicegraph.predict.BatchPredictor(str(classes.folder))(pd.DataFrame({"smiles": SMILES}))
    assert list(frame)[1:] == ["class_pred", "class_p0", "class_p1", "class_p2", "class_std",
                               "warning", "error"]  # fmt: skip


@pytest.mark.parametrize("options", [["--interval", "1.5"], ["--interval", "0.999"]])
def test_an_interval_that_cannot_be_given_is_an_error_before_the_start(
    three_folds, tmp_path, capsys, options
):
    table = write_table(tmp_path / "new.csv", 5)
    out = tmp_path / "out.csv"
    assert main(["predict", str(three_folds.folder), str(table), "--out", str(out), *options]) == 2
    assert f"interval = {options[1]}" in capsys.readouterr().err
    assert not out.exists()


def test_evaluate_of_folds_refers_to_the_held_out_predictions(three_folds, tmp_path, capsys):
    assert main(["evaluate", str(three_folds.folder)]) == 2
    assert "predictions/test.csv in the run" in capsys.readouterr().err
    new = tmp_path / "new.csv"
    new.write_text("smiles,gap\nCCCCCCS,1.0\nCCCCCCCCCS,2.0\n")
    assert main(["evaluate", str(three_folds.folder), "--data", f"csv:{new}"]) == 0
    assert "all MAE" in capsys.readouterr().out


def test_a_fold_that_fails_does_not_cost_the_others_and_is_tried_again(
    tmp_path, monkeypatch, capsys
):
    write_table(tmp_path / "table.csv", 60)
    step = TrainingModule.training_step
    broken = {"fold-2"}

    def fails(self, batch, batch_idx):
        if Path(self.config.out).name in broken:
            raise RuntimeError("this machine is tired")
        return step(self, batch, batch_idx)

    monkeypatch.setattr(TrainingModule, "training_step", fails)
    result = train(tiny_config(tmp_path, folds=3, jobs=1, epochs=1))
    printed = capsys.readouterr().out
    assert "fold-2 (2 of 3)  FAILED: this machine is tired" in printed
    assert "WARNING fold-2 failed" in printed
    assert [line["name"] for line in result.metrics["runs"]] == ["fold-1", "fold-3"]
    assert len(slicegraph.load(result.folder).members) == 2
    assert RunFolder(result.folder).state == "failed"
    before = {
        path: path.stat().st_mtime_ns for path in result.folder.glob("members/fold-[13]/**/*")
    }
    broken.clear()
    again = train(resume=result.folder, progress=False)
    assert [line["name"] for line in again.metrics["runs"]] == ["fold-1", "fold-2", "fold-3"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert RunFolder(result.folder).state == "finished"


def test_a_run_without_any_model_has_failed(tmp_path, monkeypatch):
    def fails(self, batch, batch_idx):
        raise RuntimeError("no")

    monkeypatch.setattr(TrainingModule, "training_step", fails)
    with pytest.raises(TrainingError, match="none of 2 models was trained; fold-1: no; fold-2: no"):
        tiny_run(tmp_path, folds=2, jobs=1, epochs=1)
    assert RunFolder(tmp_path / "run").state == "failed"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, "folds = 1, expected at least 2"),
        ({"folds": 3, "fold": 4}, "fold = 4, expected 1 to folds"),
        ({"fold": 1}, "fold = 1, expected 1 to folds"),
        ({"folds": 3, "fold": 1, "repeats": 2}, "fold and repeats are given"),
        ({"folds": 3, "split": "time:gap"}, "folds draw splits"),
        ({"folds": 30}, "choose fewer folds|choose fewer --folds|cannot be"),
        ({"folds": 3, "devices": "2"}, "one device"),
        ({"data": "mini", "targets": None, "fractions": None, "folds": 3}, "folds is for a file"),
        ({"data": "mini", "targets": None, "fractions": None, "repeats": 3}, "repeats is for a"),
    ],
)
def test_folds_that_cannot_be_are_refused_and_leave_no_folder(tmp_path, settings, message):
    write_table(tmp_path / "table.csv", 20)
    with pytest.raises(ValueError, match=message):
        tiny_run(tmp_path, **{"jobs": 1, **settings})
    assert not (tmp_path / "run").exists()


def test_repeats_are_random_splits_with_other_seeds(tmp_path):
    write_table(tmp_path / "table.csv", 60)
    result = tiny_run(tmp_path, repeats=2, jobs=1, epochs=1)
    assert [line["split_seed"] for line in result.metrics["runs"]] == [0, 1]
    assert str(result).endswith("(2 repeats)")
    known = np.load(result.folder / "molecules.npz", allow_pickle=False)
    each = [np.load(result.folder / "members" / f"repeat-{n}" / "molecules.npz") for n in (1, 2)]
    trained = np.union1d(each[0]["train"], each[1]["train"])
    np.testing.assert_array_equal(known["train"], trained)
    assert not np.isin(known["test"], trained).any()


def test_the_forest_has_the_rows_of_the_model_and_never_fails_a_run(three_folds, monkeypatch):
    forest = three_folds.metrics["forest"]
    assert forest["rows"] < 40
    assert 0 < forest["test"] < 3
    assert forest["test"] == pytest.approx(
        np.mean([line["forest"] for line in three_folds.metrics["runs"]])
    )

    def fails(dataset, test):
        raise ImportError("no forest here")

    monkeypatch.setattr("slicegraph.train.results._forest", fails)
    found = folds.results.forest_of(None, None)
    assert found == {"reason": "no forest here"}
    line = folds.results.forest_line({"metric": "MAE", "forest": found})
    assert line == "forest  not trained: no forest here"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the process is forked")
def test_models_side_by_side_are_those_trained_one_by_one_also_after_a_kill(tmp_path):
    write_table(tmp_path / "table.csv", 60)
    alone = tiny_run(tmp_path, folds=2, jobs=1, epochs=3, out=str(tmp_path / "alone"))
    config = tiny_config(tmp_path, folds=2, jobs=2, epochs=3)
    # A fork, as it only starts and watches the processes that train.
    context, options = multiprocessing.get_context("fork"), {"progress": False}
    process = context.Process(target=train, args=(config,), kwargs=options)
    process.start()
    members = tmp_path / "run" / "members"
    while process.is_alive() and not list(members.glob("*/config.yaml")):
        time.sleep(0.05)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    result = train(resume=tmp_path / "run", progress=False)
    assert [line["test"] for line in result.metrics["runs"]] == [
        line["test"] for line in alone.metrics["runs"]
    ]
    for fold in (1, 2):
        found, expected = (
            slicegraph.load(folder / "members" / f"fold-{fold}").state_dict()
            for folder in (result.folder, alone.folder)
        )
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=0, atol=0)


@pytest.fixture(scope="module")
def mini_tables(tmp_path_factory) -> tuple[Path, Path, pd.DataFrame]:
    """A folder, the CSV of 1,200 molecules of the shipped data set, and 4,000 others."""
    folder = tmp_path_factory.mktemp("mini")
    source = Path(slicegraph.__file__).parents[1] / "datasets" / "mini" / "mini.csv.gz"
    rows = pd.read_csv(source)[["smiles", "homolumogap"]].sample(5200, random_state=0)
    rows[:1200].to_csv(folder / "table.csv", index=False)
    return folder, folder / "table.csv", rows[1200:]


SMALL: dict = {"targets": ("homolumogap",), "batch_size": 50, "jobs": 1, "dropout": 0.0}


def predicted_by_each(model, rows: pd.DataFrame) -> np.ndarray:
    """The values of each model, of which `predict_interval` makes the intervals: `[N, models]`."""
    values = np.stack([member.predict(rows["smiles"]) for member in model.members], 1)
    expected = model.calibration.intervals(values[:20, :, None], 0.8)[:, 0]
    found = model.predict_interval(rows["smiles"][:20], 0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    return values


def covered(calibration, values: np.ndarray, rows: pd.DataFrame, level: float) -> float:
    low, high = calibration.intervals(values[:, :, None], level)[:, 0].T
    true = rows["homolumogap"].to_numpy()
    return float(((low <= true) & (true <= high)).mean())


@pytest.mark.slow
def test_intervals_of_an_ensemble_cover_real_molecules_as_often_as_asked(mini_tables):
    folder, _, rows = mini_tables
    options = SMALL | {"ensemble": 2, "epochs": 4, "fractions": (0.5, 0.4, 0.1)}
    model = slicegraph.load(tiny_run(folder, **options, out=str(folder / "ensemble")).folder)
    # 480 molecules of valid would let the coverage vary by 1.4 points: calibrate on 2,000 others.
    every, labels = predicted_by_each(model, rows), rows["homolumogap"].to_numpy()[:2000, None]
    values, own = every[:2000], model.calibration
    wide = replace(
        own,
        labels=labels,
        values=values.mean(1, keepdims=True),
        std=values.std(1, ddof=1, keepdims=True),
        group=np.zeros(len(labels), int),
    )
    for level in (0.8, 0.9, 0.95):
        found = covered(wide, every[2000:], rows[2000:], level)
        assert found == pytest.approx(level, abs=0.02)
        spread = (level * (1 - level) * (1 / 480 + 1 / 4000)) ** 0.5
        found = covered(own, every, rows, level)
        assert found == pytest.approx(level, abs=0.005 + 3 * spread)


def test_intervals_of_the_default_head_cover_real_molecules_as_often_as_asked(mini_tables):
    folder, table, rows = mini_tables
    frame, rows, random = pd.read_csv(table)[:500], rows[:1000], np.random.default_rng(0)
    options = {"fractions": (0.7, 0.2, 0.1), "split": "random", "progress": False}
    options |= {"root": str(folder / "data"), "out": str(folder / "kernel")}
    run = train(data=frame, target="homolumogap", threads=1, accelerator="cpu", **options)
    model, own = slicegraph.load(run.folder), slicegraph.load(run.folder).calibration
    found = model.predict_rows(rows["smiles"].tolist(), interval=0.9)
    std, low, high = (column[:, None] for column in found.more.values())
    true, values = rows[["homolumogap"]].to_numpy(), found.values
    first = own.intervals(values[:, None], 0.9, std[:, None])[:, 0]
    np.testing.assert_allclose(first, np.hstack([low, high]), rtol=1e-6)

    def inside(calibration, level, chosen):
        ends = calibration.intervals(values[chosen, None], level, std[chosen, None])[:, 0]
        return (ends[:, 0] <= true[chosen, 0]) & (true[chosen, 0] <= ends[:, 1])

    doubtful, every = std[:, 0] >= np.quantile(std, 2 / 3), np.arange(len(true))
    for level in (0.8, 0.9, 0.95):
        # 100 molecules of valid let the coverage vary by 3 points; halves of the others do not.
        spread = (level * (1 - level) * (1 / 100 + 1 / 1000)) ** 0.5
        assert inside(own, level, every).mean() == pytest.approx(level, abs=0.01 + 2 * spread)
        covered = {"all": [], "doubtful": [], "equal width": []}
        for _ in range(20):
            half, test = np.split(random.permutation(every), 2)
            more = {"group": np.zeros(500, int), "std": std[half]}
            fitted = replace(own, labels=true[half], values=values[half], **more)
            equal = replace(fitted, std=np.empty((0, 1)))
            covered["all"].append(inside(fitted, level, test).mean())
            far = test[doubtful[test]]
            covered["doubtful"].append(inside(fitted, level, far).mean())
            covered["equal width"].append(inside(equal, level, far).mean())
        mean = {name: np.mean(each) for name, each in covered.items()}
        assert mean["all"] == pytest.approx(level, abs=0.02)
        assert mean["equal width"] < mean["doubtful"] < level + 0.05


@pytest.mark.slow
def test_intervals_of_folds_cover_real_molecules_as_often_as_asked(mini_tables):
    folder, _, rows = mini_tables
    options = SMALL | {"folds": 5, "epochs": 4}
    model = slicegraph.load(tiny_run(folder, **options, out=str(folder / "folds")).folder)
    values = predicted_by_each(model, rows)
    for level in (0.8, 0.9, 0.95):
        found = covered(model.calibration, values, rows, level)
        assert found == pytest.approx(level, abs=0.02)
