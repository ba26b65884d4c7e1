"""`slicegraph datasets`: what there is, and what is here."""

import os
import signal
import subprocess
import sys

import pytest
from support.ogb_folders import write_lsc, write_mol

from slicegraph.cli import main
from slicegraph.data.datasets import load_dataset, names, source
from slicegraph.tasks import TASKS


@pytest.fixture
def lines(capsys, tmp_path):
    def run() -> dict[str, str]:
        assert main(["datasets", "--root", str(tmp_path)]) == 0
        return {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}

    return run


def test_every_data_set_has_a_line(lines):
    found = lines()
    assert set(names()) <= set(found)
    assert "name" in found
    assert "csv:PATH" in found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mini", ["12,000", "regression, eV", "MAE", "yes", "installed with slicegraph"]),
        ("pcqm4m-v2", ["3,746,620", "regression, eV", "MAE", "no", "OGB-LSC/pcqm4m-v2.zip"]),
        ("pcqm4m", ["3,803,453", "regression, eV", "MAE", "no", "OGB-LSC/pcqm4m_kddcup2021.zip"]),
        ("ogbg-molpcba", ["437,929", "binary, 128 targets", "AP", "no", "pcba.zip"]),
        ("ogbg-molesol", ["1,128", "regression", "RMSE", "no", "esol.zip"]),
        ("zinc", ["12,000", "regression", "MAE", "no", "downloaded by PyG"]),
    ],
)
def test_line_has_size_task_metric_presence_and_origin(lines, name, words):
    columns = [part.strip() for part in lines()[name].split("  ") if part.strip()]
    assert columns[0] == name
    assert columns[1:-1] == words[:-1]
    assert words[-1] in columns[-1]


def test_files_that_are_here_are_told_from_prepared_molecules(lines, tmp_path):
    write_lsc(tmp_path, "pcqm4m")
    write_lsc(tmp_path, "pcqm4m-v2")
    write_mol(tmp_path, "ogbg-molhiv", 1)
    load_dataset("pcqm4m-v2", tmp_path, workers=1, progress=False)
    found = lines()
    assert " yes " in found["pcqm4m"]
    assert " prepared " in found["pcqm4m-v2"]
    assert " yes " in found["ogbg-molhiv"]


@pytest.mark.parametrize(("folder", "here"), [(None, " no "), ("anywhere", " yes ")])
def test_qm9_is_here_when_its_package_is_installed(lines, monkeypatch, folder, here):
    monkeypatch.setattr(source, "qm9_folder", lambda: folder)
    assert here in lines()["qm9-gap"]


def test_the_last_line_names_the_tasks(lines):
    *_, last = lines().values()
    assert last.endswith(f"slicegraph train --task: {', '.join(TASKS)}")


def test_nothing_is_written(lines, tmp_path):
    lines()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_the_command_without_an_error():
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as pipe:
        command = [sys.executable, "-m", "slicegraph", "datasets"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
