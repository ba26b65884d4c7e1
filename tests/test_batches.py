"""Prediction as a map: every row once and in place, whatever takes the batches, and who dies."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.molecule_tables import random_smiles
from support.small_models import save_model, small_model

from slicegraph.cli import main
from slicegraph.predict import BatchPredictor, batches, load_predictor, predictor
from slicegraph.predict.table import value_columns

SMILES = ["CCO", "C1CC", None, "c1ccccc1", "", "[Na+].[Cl-]"]
GOOD = [0, 3, 5]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_model(tmp_path_factory.mktemp("saved") / "model"))


def assert_rows(found: dict, model: str) -> None:
    values = np.array(found["homolumogap_pred"], dtype=np.float64)
    expected = load_predictor(model).predict([SMILES[i] for i in GOOD])
    np.testing.assert_allclose(values[GOOD], expected, atol=1e-5)
    assert np.isnan(values[[1, 2, 4]]).all()
    errors = list(found["error"])
    assert [bool(error) for error in errors] == [False, True, True, False, True, False]
    assert errors[2] == errors[4] == "no SMILES"
    assert list(found["warning"]) == ["", "", "", "", "", "metal (Na); no carbon"]
    assert list(found["n"]) == list(range(6))


def test_arrays_and_frames_keep_their_rows(model):
    predict = BatchPredictor(model)
    arrays = {"n": np.arange(6), "smiles": np.array(SMILES, object)}
    found = predict(arrays)
    assert list(found) == ["n", "smiles", *predict.columns]
    assert_rows(found, model)
    frame = pd.DataFrame(arrays, index=list("abcdef"))
    found = predict(frame)
    assert list(found.index) == list(frame.index)
    assert_rows(found, model)
    assert list(frame) == ["n", "smiles"]


def test_an_iterator_of_frames_is_what_spark_hands_over(model):
    frame = pd.DataFrame({"n": range(6), "smiles": SMILES})
    found = BatchPredictor(model)(iter([frame[:2], frame[2:2], frame[2:]]))
    parts = [next(found) for _ in range(3)]
    assert [len(part) for part in parts] == [2, 0, 4]
    assert_rows(pd.concat(parts), model)


def test_an_arrow_table_has_typed_columns(model):
    pyarrow = pytest.importorskip("pyarrow")
    predict = BatchPredictor(model)
    table = predict(pyarrow.table({"n": range(6), "smiles": SMILES}))
    assert_rows(table.to_pydict(), model)
    assert table.schema.field("homolumogap_pred").type == pyarrow.float64()
    assert table["homolumogap_pred"].null_count == 3
    assert predict(table.schema.empty_table().select(["n", "smiles"])).schema == table.schema


def test_only_the_path_is_pickled_and_a_model_can_be_given(model):
    content = pickle.dumps(BatchPredictor(model))
    assert len(content) < 1000
    arrays = {"n": np.arange(6), "smiles": np.array(SMILES, object)}
    assert_rows(pickle.loads(content)(arrays), model)
    own = BatchPredictor(load_predictor(model))
    assert_rows(pickle.loads(pickle.dumps(own))(arrays), model)


@pytest.mark.parametrize("names", [(), ("low", "mid", "high")])
def test_classes_have_a_word_and_probabilities(names):
    model = small_model(
        task="multiclass", num_classes=3, num_targets=2, target_names=("a", "b"), class_names=names
    )
    predict = BatchPredictor(model, smiles="text")
    found = predict({"text": np.array(["CCO", "C1"], object)})
    assert list(found)[1:-2] == value_columns(model.config)
    words = [name for name, kind in predict.columns.items() if kind == "string"]
    assert words == ["a_pred", "b_pred", "warning", "error"]
    chances = model.predict("CCO")[0]
    for target, own in zip("ab", chances, strict=True):
        labels = names or ("0", "1", "2")
        assert list(found[f"{target}_pred"]) == [labels[own.argmax()], ""]
        columns = [name for name in found if name.startswith(f"{target}_p") and "pred" not in name]
        np.testing.assert_allclose([found[name][0] for name in columns], own, atol=1e-6)
        assert np.isnan([found[name][1] for name in columns]).all()


def test_columns_that_are_missing_or_taken_are_named(model):
    with pytest.raises(ValueError, match="no column 'smiles', there are mol, n"):
        BatchPredictor(model)({"mol": np.array(["C"]), "n": np.array([1])})
    with pytest.raises(ValueError, match="there is a column 'error' already; rename it"):
        BatchPredictor(model)(pd.DataFrame({"smiles": ["C"], "error": [0]}))


def write_parts(folder: Path, parts: int, rows: int) -> list[str]:
    """Files a.parquet, b.parquet, ... with the columns n and mol; the SMILES of all of them."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    base = [*random_smiles(199, seed=3), "C1CC"]
    smiles = (base * (parts * rows // len(base) + 1))[: parts * rows]
    for number in range(parts):
        own = slice(number * rows, (number + 1) * rows)
        table = {"n": list(range(parts * rows))[own], "smiles": smiles[own]}
        parquet.write_table(pyarrow.table(table), folder / f"part-{number:02d}.parquet")
    return smiles


def assert_complete(out: Path, smiles: list[str], model: str) -> None:
    """Nothing is lost, nothing is there twice, and every row has its own value."""
    paths = sorted(out.iterdir())
    assert {path.suffix for path in paths} == {".parquet"}
    found = pd.concat([pd.read_parquet(path) for path in paths])
    assert list(found["n"]) == list(range(len(smiles)))
    assert list(found["smiles"]) == smiles
    assert list(found["error"] != "") == [text == "C1CC" for text in smiles]
    each = dict.fromkeys(smiles)
    values = dict(zip(each, load_predictor(model).predict(list(each), on_error="nan"), strict=True))
    expected = [values[text] for text in smiles]
    np.testing.assert_allclose(found["homolumogap_pred"], expected, atol=1e-5)


def predict_folder(*words: object) -> int:
    try:
        return main(["predict", *map(str, words)])
    except SystemExit as exit:
        return exit.code


def test_a_folder_is_predicted_and_goes_on_where_it_was(model, tmp_path, capsys, monkeypatch):
    smiles = write_parts(tmp_path / "in", parts=3, rows=210)
    out, words = tmp_path / "out", [model, tmp_path / "in", "--out", tmp_path / "out"]
    on_arrow = BatchPredictor.on_arrow

    def interrupted(self, table, careful=False):
        if len(table) and table["n"][0].as_py() == 210:
            raise OSError("the disk is full")
        return on_arrow(self, table, careful)

    monkeypatch.setattr(BatchPredictor, "on_arrow", interrupted)
    assert predict_folder(*words) == 2
    assert (out / "part-00.parquet").is_file()
    assert not (out / "part-01.parquet").exists()
    before = (out / "part-00.parquet").stat().st_mtime_ns
    monkeypatch.setattr(BatchPredictor, "on_arrow", on_arrow)
    capsys.readouterr()
    assert predict_folder(*words) == 3
    assert "630 rows in" in (said := capsys.readouterr().err)
    assert "(420 now in" in said
    assert "3 with an error" in said
    assert (out / "part-00.parquet").stat().st_mtime_ns == before
    assert_complete(out, smiles, model)


def test_a_text_that_ended_its_process_costs_itself_alone(model, tmp_path, monkeypatch):
    write_parts(tmp_path / "in", parts=1, rows=30)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-00.parquet.host-1-abc.draft").touch()  # of the process that died
    texts = pd.read_parquet(tmp_path / "in" / "part-00.parquet")["smiles"]
    read_graph = predictor.read_graph
    monkeypatch.setattr(
        predictor, "read_graph", lambda t, *s: os._exit(1) if t == texts[7] else read_graph(t, *s)
    )
    assert predict_folder(model, tmp_path / "in", "--out", tmp_path / "out") == 3
    (path,) = (tmp_path / "out").iterdir()
    errors = pd.read_parquet(path)["error"]
    expected = [text == texts[7] for text in texts]
    assert [error.startswith("reading it ended the process") for error in errors] == expected


def test_results_of_another_model_or_another_part_are_refused(model, tmp_path, capsys):
    write_parts(tmp_path / "in", parts=1, rows=5)
    words = [tmp_path / "in", "--out", tmp_path / "out"]
    assert predict_folder(model, *words) == 0
    other = save_model(tmp_path / "other", seed=1)
    assert predict_folder(other, *words) == 2
    assert "part-00.parquet was predicted from another model" in capsys.readouterr().err
    (tmp_path / "in" / "part-00.parquet").unlink()
    (tmp_path / "in").rmdir()
    write_parts(tmp_path / "in", parts=1, rows=6)
    assert predict_folder(model, *words) == 2
    assert "from another part-00.parquet" in capsys.readouterr().err
    (tmp_path / "out" / "part-00.parquet").write_bytes(b"something else")
    assert predict_folder(model, *words) == 2
    assert "is not a result of predict" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in"], "--out is missing: a folder"),
        (["empty", "--out", "out"], "'empty' is a folder, expected SMILES or .csv"),
        (["in", "--out", "out", "--workers", "0"], "--workers 0, expected at least 1"),
        (["CCO", "--engine", "ray"], "--engine ray is for a folder of .parquet files"),
    ],
)
def test_folders_that_cannot_be_predicted_are_named(
    model, tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("in").mkdir()
    Path("in", "part.parquet").touch()
    assert predict_folder(model, *words) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_ray_that_is_not_installed_is_named(model, tmp_path, monkeypatch, capsys):
    write_parts(tmp_path / "in", parts=1, rows=1)
    monkeypatch.setattr(batches, "find_spec", lambda package: None)
    words = [tmp_path / "in", "--out", tmp_path / "out", "--engine", "ray"]
    assert predict_folder(model, *words) == 2
    assert 'pip install "slicegraph[ray]"' in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_of_ray_that_is_killed_loses_nothing_and_repeats_nothing(model, tmp_path):
    pytest.importorskip("ray")
    smiles, out = write_parts(tmp_path / "in", parts=8, rows=1500), tmp_path / "out"
    words = ["predict", model, tmp_path / "in", "--out", out, "--engine", "ray", "--workers", 2]
    command = [sys.executable, "-m", "slicegraph", *map(str, words)]
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    # Ray starts workers with niceness 15: on a busy machine they would get no time at all.
    env = os.environ | {"PYTHONPATH": path, "RAY_worker_niceness": "0"}
    with open(tmp_path / "said.txt", "w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=tmp_path, env=env)
        killed = None
        try:
            while process.poll() is None and killed is None:
                done, drafts = list(out.glob("*.parquet")), list(out.glob("*.draft"))
                if done and drafts:
                    killed = drafts[0]
                    os.kill(int(killed.name.split("-")[-2]), signal.SIGKILL)
                time.sleep(0.01)
            assert process.wait(timeout=300) == 3, (tmp_path / "said.txt").read_text()
        finally:
            process.kill()
    assert killed is not None
    assert "12,000 rows in" in (tmp_path / "said.txt").read_text()
    assert_complete(out, smiles, model)
