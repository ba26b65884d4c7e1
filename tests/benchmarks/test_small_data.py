"""The study of small tables: which molecules are learned from, and what the table compares."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.json_lines import JsonLines
from benchmarks.small_data import ROWS, main, read, sets_in, tables


@pytest.fixture
def folder(tmp_path):
    """One set of MoleculeACE without a valid part, and ESOL with one."""
    (tmp_path / "moleculeace").mkdir()
    rows = pd.DataFrame({"smiles": [f"{'C' * n}O" for n in range(1, 61)]})
    rows["y [pEC50/pKi]"] = np.arange(60.0)
    rows["split"] = np.where(np.arange(60) % 4 == 0, "test", "train")
    rows.to_csv(tmp_path / "moleculeace" / "ace.csv", index=False)
    rows = rows.rename(columns={"y [pEC50/pKi]": "measured log solubility in mols per litre"})
    rows.loc[1:8, "split"] = "val"
    rows.to_csv(tmp_path / "ogbg_molesol.csv", index=False)
    return tmp_path


def test_the_test_part_is_that_of_the_file_at_every_size(folder):
    files = sets_in(folder)
    assert list(files) == ["esol", "ace"]
    rows = pd.read_csv(files["ace"])
    expected = rows.loc[rows["split"] == "test", "smiles"].tolist()
    for size in ("10", "all"):
        table = read("ace", files["ace"], size, seed=0)
        assert np.array(table.smiles)[table.part == "test"].tolist() == expected


def test_a_larger_table_has_all_molecules_of_a_smaller_one(folder):
    file = sets_in(folder)["ace"]
    small, large = (read("ace", file, size, seed=1) for size in ("10", "20"))
    assert (small.part == "train").sum() == 10
    assert set(small.smiles) <= set(large.smiles)
    assert "valid" in small.part


def test_a_finished_run_is_not_repeated_and_means_are_over_shared_sets(folder, capsys):
    out = folder / "out.jsonl"
    words = ["--data-folder", str(folder), "--out", str(out), "--sizes", "all", "--seeds", "0"]
    main([*words, "--rows", "boosting", "svm"])
    assert len(out.read_text().splitlines()) == 4
    main([*words, "--rows", "boosting", "svm"])
    assert len(out.read_text().splitlines()) == 4
    lines = JsonLines(out).lines
    extra = {"row": "forest", "settings": ROWS["forest"].settings, "set": "esol", "test": 0.1}
    text = tables([*lines, {**lines[0], **extra}], list(ROWS))
    assert "| esol |" in text
    assert "Over the sets that all these rows have (2)" in text
    assert "Over the sets that all these rows have (1)" in text
    capsys.readouterr()


def test_the_default_is_compared_with_each_row_on_the_sets_that_both_have():
    def lines(row, **errors):
        usual = {"row": row, "settings": ROWS[row].settings, "size": "all", "seed": 0}
        return [
            usual | {"set": name, "test": x, "cpu_seconds": 10 * x} for name, x in errors.items()
        ]

    found = tables(
        [*lines("default", esol=1.0, one=0.5, two=0.7), *lines("svm", esol=2.0, one=0.4)],
        list(ROWS),
    )
    assert "| SVM, ECFP counts | 2 | 1 | 0.500 against 0.400 | 8 against 12 |" in found
