"""Several processes give what one process gives."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_run import MODEL, write_table

ROOT = Path(__file__).parents[2]
MOLECULES = 41
"""25 to train on, in batches of 12, 7 and 6; 10 to validate, which 3 ranks cannot share evenly."""


def train_on(ranks: int, folder: Path) -> list[dict[str, str]]:
    settings = {
        "data": f"csv:{folder / 'table.csv'}",
        "root": folder / "dataset",
        "out": folder / f"ranks{ranks}",
        "target": "gap",
        "fractions": "0.6,0.25,0.15",
        "batch-size": 12,
        "epochs": 3,
        "lr": 1e-3,
        "dropout": 0,
        "accelerator": "cpu",
        "devices": ranks,
        "threads": 1,
        **{f"model.{name}": value for name, value in MODEL.items()},
    }
    flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "slicegraph", "train", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test MAE") == 1
    with open(folder / f"ranks{ranks}" / "predictions" / "valid.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    write_table(folder / "table.csv", MOLECULES)
    return folder, train_on(1, folder)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_a_part_of_the_batch_are_one_process_with_all_of_it(one_process, ranks):
    folder, expected = one_process
    found = train_on(ranks, folder)
    assert [row["index"] for row in found] == [row["index"] for row in expected]
    assert len({row["index"] for row in found}) == len(found)
    for one, several in zip(expected, found, strict=True):
        assert float(several["gap_pred"]) == pytest.approx(float(one["gap_pred"]), abs=1e-5)
