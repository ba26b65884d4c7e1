import multiprocessing
import os
import signal
import sys
import time

import pytest
from support.molecule_tables import contents, molecule_csv, write_csv

from slicegraph.cli import main
from slicegraph.data.prepare import prepare
from slicegraph.data.store import MoleculeStore


@pytest.fixture
def source(tmp_path):
    return molecule_csv(tmp_path / "molecules.csv", 60)


def test_it_prints_the_columns_and_what_became_of_the_rows(source, tmp_path, capsys):
    assert main(["prepare", str(source), "--out", str(tmp_path / "store")]) == 0
    printed = capsys.readouterr()
    assert "molecules.csv: SMILES 'smiles' (guessed), labels 'gap' (guessed)" in printed.err
    assert "100%" in printed.err
    store = MoleculeStore(tmp_path / "store")
    assert f"{len(store)} molecules in {tmp_path / 'store'}, " in printed.out
    assert f"{store.meta['duplicates']} of them are duplicates" in printed.out
    assert f"8 rows rejected, see {tmp_path / 'store' / 'rejected.csv'}" in printed.out


def test_the_options_are_those_of_the_function(tmp_path):
    rows = [["C", "OCC", 1, ""], ["C", "CO", "", ""]]
    source = write_csv(tmp_path / "a.csv", rows, ["x", "y", "p", "q,r"])
    options = ["--smiles", "y", "--labels", 'p,"q,r"', "--unlabelled", "--keep-order"]
    assert main(["prepare", str(source), "--out", str(tmp_path / "cli"), *options]) == 0
    prepare(
        *(source, tmp_path / "function"),
        smiles="y",
        labels=["p", "q,r"],
        unlabelled=True,
        canonical=False,
    )
    assert contents(tmp_path / "cli") == contents(tmp_path / "function")


def test_the_label_is_chosen_as_in_training_or_the_command_is_given(tmp_path, capsys):
    header = ["compound number", "smiles", "logD", "active"]
    rows = [[7 + 3 * n, "C" * (n + 1), n / 7, "yes" if n % 2 else "no"] for n in range(30)]
    source = write_csv(tmp_path / "a.csv", rows, header)
    command = ["prepare", str(source), "--out", str(tmp_path / "store")]
    assert main(command) == 2
    printed = capsys.readouterr().err
    assert f"for example: slicegraph {' '.join(command)} --labels logD" in printed
    assert f"or for none: slicegraph {' '.join(command)} --labels ''" in printed
    assert not (tmp_path / "store").exists()
    write_csv(source, [[row[0], row[1], row[3]] for row in rows], ["id", "smiles", "active"])
    assert main(command) == 0
    store = MoleculeStore(tmp_path / "store")
    assert store.label_names == ("active",) or list(store.label_names) == ["active"]
    assert store.labels[:, 0].tolist() == [n % 2 for n in range(30)]


def test_a_label_by_name_is_read_as_in_training(tmp_path, capsys):
    rows = [["C" * (n + 1), f"{1234.5 * n:,.1f}", "yes" if n % 2 else "no"] for n in range(30)]
    source = write_csv(tmp_path / "a.csv", rows, ["smiles", "nM", "active"])
    command = ["prepare", str(source), "--labels", "nM,active", "--out", str(tmp_path / "store")]
    assert main(command) == 0
    labels = MoleculeStore(tmp_path / "store").labels
    assert labels.tolist() == [[1234.5 * n, n % 2] for n in range(30)]
    assert "'nM' (thousands separator ','), 'active' (yes = 1, no = 0)" in capsys.readouterr().err
    limits = [[row[0], ">10" if row[2] == "no" else 7.5] for row in rows]
    write_csv(source, limits, ["smiles", "nM"])
    assert main(["prepare", str(source), "--labels", "nM", "--out", str(tmp_path / "b")]) == 2
    assert "15 values of 'nM' are limits" in capsys.readouterr().err


def test_no_labels_can_be_asked_for(source, tmp_path):
    assert main(["prepare", str(source), "--out", str(tmp_path / "store"), "--labels", ""]) == 0
    assert MoleculeStore(tmp_path / "store").labels.shape[1] == 0


def test_a_complete_folder_is_said_to_be_complete(source, tmp_path, capsys):
    for _ in range(2):
        assert main(["prepare", str(source), "--out", str(tmp_path / "store")]) == 0
    assert "is complete already: nothing to do" in capsys.readouterr().out


def test_strict_names_the_first_bad_row(source, tmp_path, capsys):
    assert main(["prepare", str(source), "--out", str(tmp_path / "store"), "--strict"]) == 2
    assert "slicegraph: error: row 5: 'C1CC': " in capsys.readouterr().err


def test_an_interrupted_run_of_another_source_is_restarted_on_request(source, tmp_path, capsys):
    arguments = ["prepare", str(source), "--out", str(tmp_path / "store")]
    assert main([*arguments, "--strict"]) == 2
    molecule_csv(source, 70, seed=1)
    assert main(arguments) == 2
    assert "--restart" in capsys.readouterr().err
    assert main([*arguments, "--restart"]) == 0


@pytest.mark.parametrize("source", ["missing.csv", "no-such-set"])
def test_a_source_that_is_not_there_is_an_error_line(tmp_path, capsys, source):
    assert main(["prepare", source, "--out", str(tmp_path / "store")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("slicegraph: error: ")
    assert repr(source) in printed
    assert not (tmp_path / "store").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the process is forked")
def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(tmp_path):
    source = molecule_csv(tmp_path / "molecules.csv", 3000)
    arguments = ["prepare", str(source), "--out", str(tmp_path / "store"), "--chunk-rows", "50"]
    words = [*arguments, "--workers", "2"]
    with open(tmp_path / "errors", "w") as errors:
        process = multiprocessing.get_context("fork").Process(target=command, args=(words, errors))
        process.start()
        while process.is_alive() and log_size(tmp_path / "store") < 20_000:
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGINT)
        process.join()
    assert process.exitcode == 130
    assert "slicegraph: stopped; finished work is kept in " in (tmp_path / "errors").read_text()
    assert main(arguments) == 0
    prepare(source, tmp_path / "fresh")
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")


def log_size(store) -> int:
    log = store / "parts" / "parts.log"
    return log.stat().st_size if log.exists() else 0


def command(words: list[str], errors) -> None:
    sys.stderr = errors
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(words))


@pytest.mark.skipif(sys.platform != "linux", reason="the process is forked")
def test_the_command_is_killed_and_goes_on(tmp_path, capfd):
    source = molecule_csv(tmp_path / "molecules.csv", 1500)
    words = ["prepare", str(source), "--out", str(tmp_path / "store")]
    words += ["--workers", "2", "--chunk-rows", "50"]
    with open(os.devnull, "w") as errors:
        process = multiprocessing.get_context("fork").Process(target=command, args=(words, errors))
        process.start()
        while process.is_alive() and log_size(tmp_path / "store") < 20_000:
            time.sleep(0.001)
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    capfd.readouterr()
    assert main(words) == 0
    assert "rows were done before" in capfd.readouterr().out
    prepare(source, tmp_path / "fresh")
    assert contents(tmp_path / "store") == contents(tmp_path / "fresh")
