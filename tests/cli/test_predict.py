"""`slicegraph predict`: every row comes out, once and in order, with a value or a reason."""

import csv
import gzip
import io
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from support.molecule_tables import random_smiles, write_csv
from support.small_models import save_model

from slicegraph.cli import main
from slicegraph.predict import predictor
from slicegraph.predict.predictor import load_predictor


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_model(tmp_path_factory.mktemp("saved") / "model"))


def read(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def assert_predicted(rows: list[dict[str, str]], model: str, smiles: list[str]) -> None:
    assert [row["smiles"] for row in rows] == smiles
    found = [float(row["homolumogap_pred"]) for row in rows]
    np.testing.assert_allclose(found, load_predictor(model).predict(smiles), atol=1e-5)


def test_smiles_are_printed_as_a_table_with_the_unit(model, capsys):
    assert main(["predict", model, "CCO", "c1ccccc1"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["SMILES", "homolumogap", "(eV)"]
    assert [line.split()[0] for line in lines] == ["CCO", "c1ccccc1"]
    values = [float(line.split()[1]) for line in lines]
    np.testing.assert_allclose(
        values, load_predictor(model).predict(["CCO", "c1ccccc1"]), rtol=1e-4
    )


def test_a_bad_smiles_has_its_reason_in_the_table_and_status_3(model, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["predict", model, "CCO", "C1CC"])
    assert exit.value.code == 3
    head, good, bad = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "error"
    assert len(good.split()) == 2
    assert bad.split()[0] == "C1CC"
    assert len(bad.split()) > 1


def test_all_columns_of_a_file_are_kept(model, tmp_path, capsys):
    rows = [["x, y", "CCO", ""], ["two\nlines", "C", '"'], ["", "c1ccccc1", "7"]]
    source = write_csv(tmp_path / "in.csv", rows, ["note", "smiles", "n"])
    assert main(["predict", model, str(source), "--out", str(tmp_path / "out.csv")]) == 0
    found = read(tmp_path / "out.csv")
    assert list(found[0]) == ["note", "smiles", "n", "homolumogap_pred", "warning", "error"]
    assert [[row["note"], row["smiles"], row["n"]] for row in found] == rows
    assert [row["error"] for row in found] == ["", "", ""]
    assert_predicted(found, model, ["CCO", "C", "c1ccccc1"])
    assert f"3 rows in {tmp_path / 'out.csv'}, 0 with an error" in capsys.readouterr().err


def test_a_bad_row_keeps_its_place_with_the_reason(model, tmp_path):
    lines = ["id,smiles,z", "1,CCO,a", "2,C1CC,b", "3,C", "4,,d", "5,C\xff,e", "6,N,f"]
    (tmp_path / "in.csv").write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(SystemExit) as exit:
        main(["predict", model, str(tmp_path / "in.csv"), "--out", str(tmp_path / "out.csv")])
    assert exit.value.code == 3
    found = read(tmp_path / "out.csv")
    assert [row["id"] for row in found] == ["1", "2", "", "4", "5", "6"]
    assert [bool(row["homolumogap_pred"]) for row in found] == [True, *[False] * 4, True]
    assert [bool(row["error"]) for row in found] == [False, *[True] * 4, False]
    assert found[2]["smiles"] == "3,C"
    assert found[2]["error"] == "2 fields where the header has 3"
    assert found[3]["error"] == "no SMILES"
    assert found[4]["smiles"] == "C\xff"
    assert found[4]["error"] == "'\xff' (U+00FF) is not a character of SMILES"
    assert_predicted([found[0], found[5]], model, ["CCO", "N"])


def test_smi_has_its_names_kept(model, tmp_path):
    (tmp_path / "in.smi").write_text("CCO ethanol\n\nC\tmethane gas\nN\n")
    assert main(["predict", model, str(tmp_path / "in.smi"), "--out", str(tmp_path / "o.csv")]) == 0
    found = read(tmp_path / "o.csv")
    assert [row["name"] for row in found] == ["ethanol", "methane gas", ""]
    assert_predicted(found, model, ["CCO", "C", "N"])


def test_parquet_is_read(model, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"n": [1, 2], "smiles": ["CCO", "C"], "w": [0.5, None]})
    parquet.write_table(table, tmp_path / "in.parquet")
    out = tmp_path / "out.csv"
    assert main(["predict", model, str(tmp_path / "in.parquet"), "--out", str(out)]) == 0
    assert [(row["n"], row["w"]) for row in read(out)] == [("1", "0.5"), ("2", "")]
    assert_predicted(read(out), model, ["CCO", "C"])


@pytest.mark.parametrize(
    ("name", "delimiter"), [("o.csv.gz", ","), ("o.tsv", "\t"), ("O.CSV", ",")]
)
def test_the_ending_decides_the_format(model, tmp_path, name, delimiter):
    source = write_csv(tmp_path / "in.csv", [["CCO", 1]])
    assert main(["predict", model, str(source), "--out", str(tmp_path / name)]) == 0
    assert_predicted(read(tmp_path / name, delimiter), model, ["CCO"])


def test_gzip_is_read(model, tmp_path):
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(b"smiles\nCCO\n", mtime=0))
    out = tmp_path / "out.csv"
    assert main(["predict", model, str(tmp_path / "in.csv.gz"), "--out", str(out)]) == 0
    assert_predicted(read(out), model, ["CCO"])


def test_standard_output_has_the_table_and_nothing_else(model, tmp_path, capfdbinary):
    source = write_csv(tmp_path / "in.csv", [["CCO", 1], ["C", 2]])
    assert main(["predict", model, str(source), "--out", "-"]) == 0
    found = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert_predicted(found, model, ["CCO", "C"])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_chunks_and_workers_do_not_change_the_table(model, tmp_path, workers):
    smiles = random_smiles(100)
    source = write_csv(tmp_path / "in.csv", [[text, i] for i, text in enumerate(smiles)])
    out = tmp_path / "out.csv"
    words = ["--workers", workers, "--chunk-rows", "7", "--batch-size", "5"]
    assert main(["predict", model, str(source), "--out", str(out), *words]) == 0
    assert [row["gap"] for row in read(out)] == [str(i) for i in range(100)]
    assert_predicted(read(out), model, smiles)


def test_the_column_of_the_smiles_can_be_named(model, tmp_path):
    source = write_csv(tmp_path / "in.csv", [["C", "CCO"]], ["smiles", "other"])
    out = tmp_path / "out.csv"
    assert main(["predict", model, str(source), "--out", str(out), "--smiles", "other"]) == 0
    found = float(read(out)[0]["homolumogap_pred"])
    assert found == pytest.approx(load_predictor(model).predict("CCO")[0], abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({"num_targets": 2, "target_names": ("a", "b")}, ["a_pred", "b_pred"]),
        ({"num_targets": 2, "target_names": ()}, ["target0_pred", "target1_pred"]),
        ({"target_names": ()}, ["target_pred"]),
        (
            {"task": "multiclass", "num_classes": 3, "target_names": ("kind",)},
            ["kind_pred", "kind_p0", "kind_p1", "kind_p2"],
        ),
        ({"task": "binary", "class_names": ("no", "yes")}, ["homolumogap_pred"]),
    ],
)
def test_every_target_and_class_has_a_column(tmp_path, settings, columns):
    folder = save_model(tmp_path / "model", **settings)
    source = write_csv(tmp_path / "in.csv", [["CCO"]], ["smiles"])
    out = tmp_path / "out.csv"
    assert main(["predict", str(folder), str(source), "--out", str(out)]) == 0
    (row,) = read(out)
    assert list(row) == ["smiles", *columns, "warning", "error"]
    values = load_predictor(folder).predict("CCO").ravel()
    if "num_classes" in settings:
        values = [values.argmax(), *values]
    np.testing.assert_allclose([float(row[name]) for name in columns], values, atol=1e-5)


def test_the_columns_of_named_classes_have_their_names(tmp_path, capsys):
    names = {"class_names": ("low", "mid", "high"), "target_names": ("tox",), "unit": ""}
    folder = save_model(tmp_path / "model", task="multiclass", num_classes=3, **names)
    source = write_csv(tmp_path / "in.csv", [["CCO"], ["C1"]], ["smiles"])
    out = tmp_path / "out.csv"
    with pytest.raises(SystemExit):
        main(["predict", str(folder), str(source), "--out", str(out)])
    good, bad = read(out)
    chances = load_predictor(folder).predict("CCO")[0]
    assert good["tox_pred"] == names["class_names"][chances.argmax()]
    found = [float(good[f"tox_p_{name}"]) for name in names["class_names"]]
    np.testing.assert_allclose(found, chances, atol=1e-6)
    assert [bad[name] for name in ("tox_pred", "tox_p_low", "tox_p_mid", "tox_p_high")] == [""] * 4
    capsys.readouterr()
    assert main(["predict", str(folder), "CCO"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["SMILES", "tox", "tox_p_low", "tox_p_mid", "tox_p_high"]
    assert line.split()[1] == good["tox_pred"]


def test_an_unusual_molecule_is_predicted_with_a_warning(model, tmp_path, capsys):
    smiles = ["CCO", "[Na+].CC(=O)[O-]", "*C", "[He]", "C" * 1200, "C1"]
    source = write_csv(tmp_path / "in.csv", [[text] for text in smiles], ["smiles"])
    with pytest.raises(SystemExit):
        main(["predict", model, str(source), "--out", str(tmp_path / "out.csv")])
    found = read(tmp_path / "out.csv")
    expected = ["", "metal (Na)", "wildcard atom", "noble gas (He); no carbon"]
    assert [row["warning"] for row in found] == [*expected, "1,200 heavy atoms", ""]
    assert all(row["homolumogap_pred"] for row in found[:-1])
    assert "6 rows in" in (said := capsys.readouterr().err)
    assert "1 with an error, 4 with a warning" in said


def test_the_printed_table_has_warnings_only_if_there_are_some(model, capsys):
    assert main(["predict", model, "CCO", "[Fe]CC"]) == 0
    head, plain, metal = capsys.readouterr().out.splitlines()
    assert head.split() == ["SMILES", "homolumogap", "(eV)", "warning"]
    assert len(plain.split()) == 2
    assert metal.endswith("metal (Fe)")


def test_molecules_are_standardised_as_for_the_training(model, tmp_path):
    steps = ("hydrogens", "fragment", "charge")
    folder = str(save_model(tmp_path / "model", standardize=steps))
    source = write_csv(tmp_path / "in.csv", [["CC(=O)[O-].[Na+]"], ["[2H]C([2H])O"]], ["smiles"])
    out = tmp_path / "out.csv"
    assert main(["predict", folder, str(source), "--out", str(out)]) == 0
    found = read(out)
    expected = load_predictor(model).predict(["CC(=O)O", "CO"])
    np.testing.assert_allclose([float(r["homolumogap_pred"]) for r in found], expected, atol=1e-5)
    np.testing.assert_allclose(
        load_predictor(folder).predict([r["smiles"] for r in found]), expected
    )
    assert [row["warning"] for row in found] == ["", "isotopes (2H) not seen by the model"]


def test_sdf_keeps_its_properties_and_a_bad_record_costs_itself(model, tmp_path):
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles(text)) for text in ("CCO", "CCCC", "CCN")]
    blocks[1] = blocks[1].replace(" C  ", " Xx ")
    records = [f"{block}> <batch>\nB{i}\n\n$$$$\n" for i, block in enumerate(blocks)]
    (tmp_path / "in.sdf").write_text("".join(records))
    with pytest.raises(SystemExit):
        main(["predict", model, str(tmp_path / "in.sdf"), "--out", str(tmp_path / "out.csv")])
    found = read(tmp_path / "out.csv")
    assert [row["batch"] for row in found] == ["B0", "B1", "B2"]
    assert [bool(row["error"]) for row in found] == [False, True, False]
    assert_predicted([found[0], found[2]], model, ["CCO", "CCN"])


def test_xlsx_keeps_its_columns(model, tmp_path):
    book = pytest.importorskip("openpyxl").Workbook()
    for row in (["no", "SMILES", "note"], [1, "CCO", None], [2, "CCN", "x"]):
        book.active.append(row)
    book.save(tmp_path / "in.xlsx")
    out = tmp_path / "out.csv"
    assert main(["predict", model, str(tmp_path / "in.xlsx"), "--out", str(out)]) == 0
    assert [(row["no"], row["SMILES"], row["note"]) for row in read(out)] == [
        ("1", "CCO", ""),
        ("2", "CCN", "x"),
    ]


def test_an_inchi_is_the_molecule_it_names(model, tmp_path):
    for steps in ((), ("fragment",)):
        folder = str(save_model(tmp_path / f"model{len(steps)}", standardize=steps))
        found = load_predictor(folder).predict(["InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", "CCO"])
        assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_how_an_unusual_file_is_read_is_said(model, tmp_path, capsys):
    (tmp_path / "in.csv").write_bytes("smiles;note\nCCO;é\n".encode("utf-16"))
    assert main(["predict", model, str(tmp_path / "in.csv"), "--out", str(tmp_path / "o.csv")]) == 0
    assert read(tmp_path / "o.csv")[0]["note"] == "é"
    assert "in.csv: " in (said := capsys.readouterr().err)
    assert "UTF-16" in said


def test_a_row_that_ends_its_worker_costs_itself_alone(model, tmp_path, monkeypatch):
    from slicegraph.predict import table

    def read_graph(text, *options):
        return os._exit(1) if text == "CCCCCC" else predictor.read_graph(text, *options)

    monkeypatch.setattr(table, "read_graph", read_graph)
    smiles = ["CCO", "CCCCCC", "CCN", "C", "N"]
    source = write_csv(tmp_path / "in.csv", [[text] for text in smiles], ["smiles"])
    with pytest.raises(SystemExit):
        main(["predict", model, str(source), "--out", str(tmp_path / "out.csv")])
    found = read(tmp_path / "out.csv")
    assert [row["error"][:29] for row in found] == ["", "reading it ended the process:", *[""] * 3]
    assert_predicted([row for row in found if not row["error"]], model, ["CCO", "CCN", "C", "N"])


def test_a_file_is_not_replaced_unasked(model, tmp_path, capsys):
    source = write_csv(tmp_path / "in.csv", [["CCO", 1]])
    (tmp_path / "out.csv").write_text("precious")
    words = ["predict", model, str(source), "--out", str(tmp_path / "out.csv")]
    assert main(words) == 2
    assert "out.csv exists already; --force replaces it" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "precious"
    assert main([*words, "--force"]) == 0
    assert_predicted(read(tmp_path / "out.csv"), model, ["CCO"])


def test_a_failure_leaves_no_file(model, tmp_path, capsys):
    content = gzip.compress(
        "\n".join(["smiles", *random_smiles(2000)]).encode(), mtime=0
    )  # fails after 19 chunks
    (tmp_path / "in.csv.gz").write_bytes(content[:-40])
    words = [str(tmp_path / "in.csv.gz"), "--out", str(tmp_path / "out.csv")]
    assert main(["predict", model, *words, "--chunk-rows", "100"]) == 2
    assert "damaged or cut off" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv.gz"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.csv", "--out", "out.csv"], "there is no file 'missing.csv'"),
        (["in.csv"], "--out is missing"),
        (["in.csv", "CCO", "--out", "out.csv"], "'in.csv' is a file, expected no other input"),
        (["CCO", "--out", "out.csv"], "--out is for a file of molecules"),
        (["in.csv", "--out", "out.docx"], "out.docx has no known ending, expected .csv"),
        (["in.csv", "--out", "in.csv", "--force"], "in.csv is the file that is read"),
        (["in.csv", "--out", "no/such/out.csv"], "there is no folder no/such"),
        (["in.csv", "--out", "out.csv", "--smiles", "mol"], "'in.csv' has no column 'mol'"),
        (["in.csv", "--out", "out.csv", "--workers", "0"], "--workers 0, expected at least 1"),
        (["in.csv", "--out", "out.csv", "--batch-size", "0"], "--batch-size 0, expected"),
        (["CCO", "--device", "abacus"], "--device abacus cannot be used"),
        (["done.csv", "--out", "out.csv"], "already has a column 'homolumogap_pred'"),
        (["empty.csv", "--out", "out.csv"], "'empty.csv' is empty"),
    ],
)
def test_a_mistake_is_an_error_line_and_no_file(
    model, tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "in.csv", [["CCO", 1]])
    write_csv(tmp_path / "done.csv", [["CCO", 1]], ["smiles", "homolumogap_pred"])
    (tmp_path / "empty.csv").touch()
    assert main(["predict", model, *words]) == 2
    printed = capsys.readouterr().err
    assert "slicegraph: error: " in printed
    assert message in printed
    assert not Path("out.csv").exists()


def test_a_place_without_a_model_is_an_error_line(tmp_path, capsys):
    assert main(["predict", str(tmp_path), "CCO"]) == 2
    assert "slicegraph: error: load: there is no model in " in capsys.readouterr().err


def command(*words: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "slicegraph", "predict", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_leaves_no_file_and_ends_with_130(model, tmp_path):
    source = write_csv(tmp_path / "in.csv", [[text, 1] for text in random_smiles(200) * 300])
    words = [str(source), "--out", str(tmp_path / "out.csv"), "--chunk-rows", "50"]
    process = command(model, *words)
    while process.poll() is None and not list(tmp_path.glob("out.csv.*.tmp")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, process.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


# The ranks are forks of a process that has imported what they need, which takes seconds.
TWO_RANKS = """
import os, sys
import slicegraph.predict.table
from slicegraph.cli import main
ranks = []
for rank in "01":
    if not (child := os.fork()):
        os.environ.update(RANK=rank, LOCAL_RANK=rank)
        sys.exit(main(sys.argv[1:]))
    ranks.append(child)
for rank in ranks:
    print(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_two_processes_write_every_row_once_and_in_order(model, tmp_path):
    rows = 90  # 13 chunks: the second process has no share of the last turn
    smiles = [text if i % 11 != 5 else "C1CC" for i, text in enumerate(random_smiles(rows))]
    source = write_csv(tmp_path / "in.csv", [[text, i] for i, text in enumerate(smiles)])
    words = [model, str(source), "--chunk-rows", "7", "--workers", "1"]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_RANKS, "predict", *words, "--out", str(tmp_path / "two.csv")],
        env={**os.environ, "OMP_NUM_THREADS": "1", **meeting},
        capture_output=True,
        text=True,
    )
    bad = smiles.count("C1CC")
    assert done.stdout.split() == ["3", "0"], done.stderr
    two = read(tmp_path / "two.csv")
    assert [row["gap"] for row in two] == [str(i) for i in range(rows)]
    assert [row["smiles"] for row in two if row["error"]] == ["C1CC"] * bad
    good = [row for row in two if not row["error"]]
    assert_predicted(good, model, [text for text in smiles if text != "C1CC"])


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])
