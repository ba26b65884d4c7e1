"""Every notebook of the examples runs from beginning to end, and is committed without outputs."""

import json
import os
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["chemist", "pyg_layer"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_has_no_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path, tmp_path, monkeypatch):
    nbclient, nbformat = map(pytest.importorskip, ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel")
    # The kernel of this interpreter, and the commands that are installed next to it.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    if path.stem == "chemist":
        text = "".join(
            output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])
        )
        assert "1 rejected" in text
        pages = [
            output["data"]["text/html"]
            for cell in notebook.cells
            for output in cell.get("outputs", [])
            if "text/html" in output.get("data", {})
        ]
        assert sum(page.count("contribution") > 0 for page in pages) == 1  # the table of atoms
        assert max(page.count("<svg") for page in pages) == 2  # a picture of each molecule
        assert "Model card" in pages[-1]
        assert "epoch 20/20" in text  # in the bar, which is the only line of the training
        (training,) = (cell for cell in notebook.cells if "estimator.fit" in cell["source"])
        printed = "".join(output.get("text", "") for output in training["outputs"])
        assert not any(line.startswith("epoch") for line in printed.split("\n"))  # bars only
        assert (tmp_path / "runs" / "chemist" / "report.html").is_file()
