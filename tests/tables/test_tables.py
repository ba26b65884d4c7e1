"""Ugly tables from end to end: the exit status, the console and the report of each file.

`make.py` writes the files. A table is used as its owner meant it, or the run says what it did, or
it stops with the remedy.
"""

import json
import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tiny_run import MODEL

from slicegraph.cli import main
from slicegraph.data import load
from slicegraph.data.molecules import molecule_keys

FILES = Path(__file__).parent / "files"
QUICK = ["--epochs", "1", "--batch-size", "32", "--accelerator", "cpu"]
QUICK += [text for name, value in MODEL.items() for text in (f"--model.{name}", str(value))]


class Case(NamedTuple):
    """What is typed after `train --data csv:FILE` or `check FILE`, and what must be there."""

    file: str
    flags: str = ""
    status: int = 0
    says: tuple[str, ...] = ()  # on the console, and on the page if there is one


CHECKED = [
    Case(
        "multi.csv",
        "",
        2,
        ("logD", "Papp", "-1.39 to 2.44", "no gaps", "compound number", "batch", "--targets logD"),
    ),
    Case("one_target.csv", "", 0, ("'logD'", "--targets")),
    Case("two_scales.csv", "", 2, ("logP", "counts", "--targets")),
    Case("thousands.csv", "", 0, ("thousands", "200 read", "0 rejected")),
    Case("german.csv", "", 0, ("decimal comma", "thousands", "0 rejected")),
    Case("censored.csv", "", 2, ("'>10'", "--censored drop", "--censored value", "loss")),
    Case("censored.csv", "--censored drop", 0, ("left out",)),
    Case("censored.csv", "--censored value", 0, ("taken as values",)),
    Case("censored.csv", "--censored loss", 0, ("trained as limits",)),
    Case("replicates.csv", "", 0, ("0 molecules in two splits",)),
    Case("replicates.csv", "--replicates mean", 0, ("160 replicate rows merged by mean",)),
    Case("salts.csv", "--split scaffold", 0, ("0 molecules in two splits",)),
    Case("salts.csv", "--standardize", 0, ("hydrogens, fragment, charge, tautomer",)),
    Case("own_split.csv", "--split column:Set", 0, ("left out",)),
    Case("own_split.csv", "--split column:set_", 2, ("'set_'", "Set")),
    Case("dates.csv", "--split time:measured_on", 2, ("measured on",)),
    Case("series.csv", "--split group:series", 0, ("0 molecules in two splits",)),
    Case("series.csv", "--split half", 2, ("half", "scaffold", "column:NAME", "time:NAME")),
    Case("series.csv", "--fractions 0.5,0.5", 2, ("three",)),
    Case("three_actives.csv", "", 0, ("stratified",)),
    Case("one_class.csv", "", 2, ("no split can help",)),
    Case("no_labels.csv", "--targets logD", 2, ("logD", "no values")),
    Case("words_active.csv", "", 0, ("active", "inactive")),
    Case("words_yes.csv", "", 0, ("yes", "no")),
    Case("words_true.csv", "", 0, ("true", "false")),
    Case("gaps.csv", "", 0, ("10 without a label, 0 rejected",)),
    Case("classes.csv", "", 0, ("regression", "--task multiclass")),
    Case("classes.csv", "--task multiclass", 0, ("multiclass",)),
    Case("one_two.csv", "--task binary", 0, ("classes 1, 2",)),
    Case("utf16.csv", "", 0, ("UTF-16",)),
    Case("latin1.csv", "", 0, ("Löslichkeit",)),
    Case("semicolon.csv", "", 0, ("decimal comma",)),
    Case("excel.csv", "", 0, ("decimal comma",)),
    Case("old_mac.csv", "", 0, ("120 read",)),
    Case("comma_name.csv", "", 0, ("logD (pH 7.4, shake flask)",)),
    Case("few_broken.csv", "", 0, ("3 rejected", "not a molecule")),
    Case("many_broken.csv", "", 2, ("30 of 120", "see notebook", "--allow-rejected 0.25")),
    Case("many_broken.csv", "--allow-rejected 0.25", 0, ("30 rejected",)),
    Case("inchi.csv", "", 0, ("InChI",)),
    Case("molecules.sdf", "", 0, ("60 read",)),
    Case("table.xlsx", "", 0, ("'data'",)),
]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLICEGRAPH_CACHE", str(tmp_path / "cache"))


def words_of(page: Path) -> str:
    """The text of a page, without tags."""
    body = page.read_text("utf-8").split("<body", 1)[1]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def typed(capsys, *words: str) -> tuple[int, str]:
    """Run a command; return its status and all that it printed, blanks collapsed."""
    try:
        status = main(list(words))
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: f"{case.file} {case.flags}".strip())
def test_check_says_what_was_done_or_stops(case, capsys):
    status, printed = typed(capsys, "check", str(FILES / case.file), *case.flags.split())
    assert status == case.status, printed
    for words in case.says:
        assert words in printed
    page = Path(f"{Path(case.file).stem}-check.html")
    assert page.is_file() == (case.status == 0)
    if case.status == 0:
        assert f"slicegraph train --data csv:{FILES / case.file}" in printed
        text = words_of(page)
        for words in case.says:
            assert words.split()[-1] in text
    assert not Path("dataset").exists()


def summary(file: str, **options) -> dict:
    return load(f"csv:{FILES / file}", progress=False, **options).summary


def numbers(file: str, **options) -> np.ndarray:
    data = load(f"csv:{FILES / file}", progress=False, split="all", **options)
    return data.labels(data.splits["all"])[:, 0]


def test_every_way_to_write_a_number_gives_the_same_labels():
    plain = numbers("comma_name.csv")
    for file in ("semicolon.csv", "excel.csv", "utf16.csv", "latin1.csv", "old_mac.csv"):
        assert np.array_equal(numbers(file), plain), file
    assert np.array_equal(numbers("inchi.csv"), plain)
    assert np.array_equal(numbers("molecules.sdf"), plain[:60])
    assert np.array_equal(numbers("table.xlsx"), plain[:60])


def test_words_are_classes_and_the_positive_word_is_1():
    plain = numbers("words_true.csv")
    assert set(plain) == {0.0, 1.0}
    for file in ("words_active.csv", "words_yes.csv"):
        assert np.array_equal(numbers(file), plain), file


def test_thousands_separators_are_read():
    values = numbers("thousands.csv")
    assert (len(values), values[0]) == (200, 36_000.0)
    assert numbers("german.csv")[1] == pytest.approx(21_200.0)


@pytest.mark.parametrize("censored", ["drop", "value", "loss"])
def test_limits_are_left_out_taken_or_trained(censored):
    data = load(f"csv:{FILES / 'censored.csv'}", progress=False, censored=censored, split="all")
    everything = data.splits["all"]
    known = ~np.isnan(data.labels(everything)[:, 0])
    assert len(everything) == (105 if censored == "drop" else 120)
    assert known.sum() == (120 if censored == "value" else 105)
    if censored == "loss":
        assert set(np.unique(data.store.bounds)) == {-1, 0, 1}
        assert data.store.labels[~known].min() == -0.5


LAWFUL = ["replicates.csv", "salts.csv", "words_active.csv"]
SPLITS = ["random", "stratified", "scaffold", "cluster"]
WITH_COLUMN = [
    ("own_split.csv", "column:Set"),
    ("dates.csv", "time:measured on"),
    ("series.csv", "group:series"),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("file", "split"),
    [(file, split) for file in LAWFUL for split in SPLITS] + WITH_COLUMN,
)
def test_no_molecule_is_on_two_sides_and_every_row_is_used_once(file, split, seed):
    data = load(f"csv:{FILES / file}", progress=False, split=split, seed=seed)
    texts = [data.store.smiles(i) for i in range(len(data.store))]
    assert np.array_equal(data.keys, molecule_keys(texts))
    sides = [set(data.keys[part].tolist()) for part in data.splits.values()]
    assert all(sides)
    assert sum(map(len, sides)) == len(set.union(*sides))
    used = np.concatenate(list(data.splits.values()))
    assert len(used) == len(set(used.tolist()))
    facts = data.summary
    rejected = sum(one["count"] for one in facts["rejected"])
    lines = len((FILES / file).read_text("utf-8").splitlines()) - 1
    assert len(used) + rejected == facts["rows"] == lines
    assert facts["overlap"] == 0


def test_a_scaffold_split_has_both_classes_on_every_side_for_every_seed():
    parts = []
    for seed in range(5):
        data = load(f"csv:{FILES / 'scaffolds.csv'}", progress=False, split="scaffold", seed=seed)
        for part in data.splits.values():
            assert set(data.labels(part)[:, 0]) == {0.0, 1.0}
        parts.append(tuple(data.splits["test"]))
    assert len(set(parts)) > 1


def train(capsys, file: Path, *flags: str) -> tuple[int, str]:
    return typed(capsys, "train", "--data", f"csv:{file}", "--out", "run", *QUICK, *flags)


def test_training_prints_the_summary_and_leaves_nothing_behind(capsys):
    status, printed = train(capsys, FILES / "few_broken.csv")
    assert status == 0
    assert "3 rejected" in printed
    assert "not a molecule" in printed
    assert re.search(r"test MAE \d", printed)
    assert "weight_decay" not in printed  # the settings are in the file
    assert sorted(path.name for path in Path().iterdir()) == ["cache", "run"]
    page = words_of(Path("run/report.html"))
    assert "not a molecule" in page
    for path in Path("run").rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path


def test_each_target_is_named_and_the_epoch_is_chosen_on_the_standardised_loss(capsys):
    status, printed = train(capsys, FILES / "two_scales.csv", "--targets", "logP,counts")
    assert status == 0
    assert re.search(r"logP \d", printed)
    assert re.search(r"counts \d", printed)
    found = json.loads(Path("run/metrics.json").read_text())
    assert "loss" in found["chosen_by"]
    assert {"train", "valid", "test"} == set(found["splits"])
    assert set(found["splits"]["test"]["logP"]) >= {"mae", "rmse", "r2", "spearman"}


def test_a_test_of_two_molecules_has_an_interval_and_a_warning(capsys):
    status, printed = train(capsys, FILES / "twenty.csv")
    assert status == 0
    assert "only 2 molecules" in printed
    assert "interval" in printed


def test_a_reordered_file_is_scored_by_molecule(capsys):
    file = FILES / "gaps.csv"
    assert train(capsys, file)[0] == 0
    _, own = typed(capsys, "evaluate", "run")
    header, *rows = file.read_text().splitlines()
    Path("edited.csv").write_text("\n".join([header, *reversed(rows)]) + "\n")
    status, edited = typed(capsys, "evaluate", "run", "--data", "csv:edited.csv", "--split", "test")
    score = re.compile(r"test MAE [\d.]+")
    assert status == 0
    assert score.search(own)[0] == score.search(edited)[0]
    found = json.loads(Path("run/metrics.json").read_text())
    assert float(score.search(own)[0].split()[-1]) == pytest.approx(found["test"], rel=1e-3)
    status, everything = typed(capsys, "evaluate", "run", "--data", "csv:edited.csv")
    assert "left out, because the run has seen these molecules" in everything


def test_quoted_target_names(capsys):
    name = "logD (pH 7.4, shake flask)"
    for spelt in (f'"{name}"', name):
        data = load(f"csv:{FILES / 'comma_name.csv'}", progress=False, targets=spelt)
        assert data.task.target_names == (name,)
    status, printed = train(capsys, FILES / "comma_name.csv", "--targets", f'"{name}"')
    assert status == 0
    assert name in printed


def write(name: str, header: str, rows: list[str]) -> str:
    Path(name).write_text("\n".join([header, *rows]) + "\n")
    return f"csv:{name}"


def chains(count: int, start: int = 1) -> list[str]:
    return ["C" * n + "O" for n in range(start, start + count)]


def test_a_run_does_not_go_on_with_an_edited_table(capsys):
    Path("table.csv").write_bytes((FILES / "gaps.csv").read_bytes())
    assert train(capsys, Path("table.csv"))[0] == 0
    before = Path("run/molecules.npz").read_bytes()
    header, *rows = Path("table.csv").read_text().splitlines()
    write("table.csv", header, ["OCCCCCCCCN,0.5", *rows])
    status, printed = typed(capsys, "train", "--resume", "run")
    assert status == 2
    assert "have changed since run began" in printed
    assert Path("run/molecules.npz").read_bytes() == before


def test_replicates_are_merged_within_a_part():
    rows = [f"{s},{n}.5,{('train', 'valid', 'test')[n % 3]}" for n, s in enumerate(chains(30))]
    rows += ["CCCCO,10,test", "OCCCC,1,train", "CCCCCCO,3,test", "CCCCCCO,4.5,test"]
    name = write("own.csv", "smiles,y,Set", rows)
    data = load(name, progress=False, split="column:Set", replicates="mean", allow_rejected=0.1)
    texts = {part: [data.store.smiles(int(i)) for i in data.splits[part]] for part in data.splits}
    test = dict(zip(texts["test"], data.labels(data.splits["test"])[:, 0], strict=True))
    assert test["CCCCO"] == 10  # not the mean with the labels of train
    assert not {"CCCCO", "OCCCC"} & {*texts["train"]}
    assert test["CCCCCCO"] == pytest.approx((5.5 + 3 + 4.5) / 3)
    assert any("left out" in text for text in data.summary["warnings"])
    assert data.summary["conflicts"] == 2


@pytest.mark.parametrize(
    ("cells", "label", "bound"),
    [
        (["", ">10"], 10, 1),
        ([">10", ">100"], 100, 1),
        (["<1", "<0.5"], 0.5, -1),
        ([">50", "<1"], None, 0),
        ([">10", "12"], 12, 0),
    ],
)
def test_merged_limits_stay_limits(cells, label, bound):
    rows = [f"{s},{n}.5,7" for n, s in enumerate(chains(30, 3))]
    rows += [f"CO,{cell},7.5" for cell in cells]
    name = write("limits.csv", "smiles,y,z", rows)
    options = {"censored": "loss", "replicates": "mean", "targets": ["y", "z"], "split": "all"}
    data = load(name, progress=False, **options)
    (position,) = [i for i in data.splits["all"] if data.store.smiles(int(i)) == "CO"]
    found = data.store[[int(position)]]
    assert found.bounds[0, 0] == bound
    assert np.isnan(found.labels[0, 0]) if label is None else found.labels[0, 0] == label


def test_words_of_several_targets_are_classes():
    rows = [f"{s},{('yes', 'No')[n % 2]},{('active', 'inactive')[n % 3 == 0]}" for n, s in
            enumerate(chains(40))]  # fmt: skip
    data = load(write("two.csv", "smiles,a,b", rows), progress=False, targets=["a", "b"])
    assert (data.task.kind, data.task.class_names) == ("binary", ())
    mixed = [f"{row},{('low', 'mid', 'top')[n % 3]}" for n, row in enumerate(rows)]
    with pytest.raises(ValueError, match="train one at a time"):
        load(write("mixed.csv", "smiles,a,b,c", mixed), progress=False, targets=["a", "c"])


def test_spellings_of_one_class_are_one_class(capsys):
    words = ("yes", "no", "Y", "n", "Yes", "NO")
    rows = [f"{s},{words[n % 6]}" for n, s in enumerate(chains(60))]
    data = load(write("spelt.csv", "smiles,hit", rows), progress=False)
    assert (data.task.kind, set(data.task.class_names)) == ("binary", {"no", "yes"})
    assert numbers_of(data) == [1.0, 0.0] * 30
    assert train(capsys, Path("spelt.csv"))[0] == 0


def numbers_of(data) -> list[float]:
    return np.array(data.store.labels)[:, 0].tolist()


def test_the_classes_of_a_second_file_are_those_of_the_model():
    rows = [f"{s},{(10, 30)[n % 2]}" for n, s in enumerate(chains(20))]
    first = load(write("a.csv", "smiles,c", rows), progress=False, task="binary")
    assert first.task.class_names == ("10", "30")
    known = {"task": "binary", "class_names": ("10", "30"), "split": "all", "progress": False}
    only = load(write("b.csv", "smiles,c", ["CO,30", "CCO,30"]), targets="c", **known)
    assert numbers_of(only) == [1.0, 1.0]
    words = known | {"class_names": ("inactive", "active")}
    numbered = load(write("d.csv", "smiles,c", ["CO,1", "CCO,0"]), targets="c", **words)
    assert numbers_of(numbered) == [1.0, 0.0]
    assert any("classes 0 and 1 are" in text for text in numbered.summary["notes"])
    three = words | {"task": "multiclass", "class_names": ("high", "low", "medium")}
    with pytest.raises(ValueError, match="class 0, the model knows high, low, medium"):
        load(write("e.csv", "smiles,c", ["CO,1", "CCO,0", "O,2"]), targets="c", **three)
    for other in ("20", "0"):
        with pytest.raises(ValueError, match=f"class {other}, the model knows 10, 30"):
            load(write("c.csv", "smiles,c", ["CO,30", f"CCO,{other}"]), targets="c", **known)


def test_a_column_of_relations_makes_limits():
    rows = [f"{s};{'>' if n % 5 == 0 else '='};{n}.5" for n, s in enumerate(chains(40))]
    name = write("chembl.csv", "Smiles;Standard Relation;Standard Value", rows)
    with pytest.raises(ValueError, match="8 values of 'Standard Value' are limits"):
        load(name, progress=False)
    trained = load(name, progress=False, censored="loss")
    assert (np.array(trained.store.bounds)[:, 0] == 1).sum() == 8
    dropped = load(name, progress=False, censored="drop")
    assert sum(map(len, dropped.splits.values())) == 32
    assert sum(one["count"] for one in dropped.summary["rejected"]) == 8


def test_a_cell_that_cannot_be_read_costs_that_target_only():
    rows = [f"{s},{n}.5,{'see notes' if n == 3 else n / 4}" for n, s in enumerate(chains(40))]
    data = load(write("cell.csv", "smiles,a,b", rows), progress=False, targets=["a", "b"])
    assert len(data.store) == 40
    assert np.isnan(data.store.labels[3]).tolist() == [False, True]
    assert any("'see notes'" in text for text in data.summary["warnings"])


def test_standardised_salt_and_acid_are_predicted_alike(capsys):
    assert train(capsys, FILES / "salts.csv", "--standardize")[0] == 0
    status, printed = typed(capsys, "predict", "run", "CC(=O)O", "CC(=O)[O-].[Na+]", "[Fe+2]")
    assert status == 0
    acid, salt = re.findall(r"CC\(=O\)\S+ (-?[\d.]+)", printed)
    assert acid == salt
    assert "metal" in printed


def test_isotopes_stay_with_their_molecule_and_out_of_its_graph(capsys):
    smiles = chains(30)
    marked = [f"[2H]{text}" for text in smiles[:10]]
    lines = [f"{text},{n % 7}.5" for n, text in enumerate(smiles + marked)]
    path = Path("isotopes.csv")
    path.write_text("\n".join(["smiles,logD", *lines]) + "\n")
    data = load(f"csv:{path}", progress=False, standardize=["all"])
    texts = [data.store.smiles(i) for i in range(40)]
    assert all(text.startswith("[2H]") for text in texts[30:])
    assert data.store.num_atoms[30:].tolist() == data.store.num_atoms[:10].tolist()
    assert data.keys[30:].tolist() == data.keys[:10].tolist()
    assert data.summary["odd"]["counts"]["isotopes"] == 10
    assert (data.summary["duplicates"], data.summary["overlap"]) == (10, 0)
    merged = load(f"csv:{path}", progress=False, standardize=["all"], replicates="mean")
    assert merged.summary["left_out"] == 0
    assert train(capsys, path, "--standardize")[0] == 0
    status, printed = typed(capsys, "predict", "run", "CCCC", "[2H]CCCC")
    assert status == 0
    plain, heavy = re.findall(r"CCCC (-?[\d.]+)", printed)
    assert plain == heavy
    assert "isotopes (2H) not seen by the model" in printed
    page = words_of(Path("run/report.html"))
    assert "isotopologues are one molecule" in page
    assert "10 isotopes" in page


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--split", "all"], "nothing to test on"), (["--split", ""], "split = ''")],
)
def test_splits_that_cannot_be_trained_on(capsys, flags, words):
    status, printed = train(capsys, FILES / "gaps.csv", *flags)
    assert status == 2
    assert words in printed


def test_evaluate_finds_the_table_from_another_folder(capsys, monkeypatch, tmp_path):
    Path("table.csv").write_bytes((FILES / "two_scales.csv").read_bytes())
    assert train(capsys, Path("table.csv"), "--targets", "logP,counts")[0] == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    status, printed = typed(capsys, "evaluate", "../run")
    assert status == 0
    assert re.search(r"test MAE logP [\d.]+ .*counts [\d,]+", printed)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    order=st.permutations(range(24)),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"]),
    delimiter=st.sampled_from([",", ";", "\t"]),
    decimal=st.sampled_from([".", ","]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    names=st.permutations(["structure", "Größe (mg/l)", "Kürzel"]),
)
def test_a_table_written_in_any_way_is_the_same_table(
    tmp_path_factory, order, encoding, delimiter, decimal, end, names
):
    smiles, values = chains(24), [0.25 * n - 1.7 for n in range(24)]
    cells = {
        "structure": [smiles[n] for n in order],
        "Größe (mg/l)": [f"{values[n]:.2f}".replace(".", decimal) for n in order],
        "Kürzel": [f"Prüfung {n % 5}" for n in order],
    }
    quote = '"' if delimiter == "," else ""
    lines = [delimiter.join(names)]
    lines += [delimiter.join(f"{quote}{cells[name][row]}{quote}" for name in names) for row in
              range(24)]  # fmt: skip
    path = tmp_path_factory.mktemp("any") / "table.csv"
    path.write_bytes((end.join(lines) + end).encode(encoding))
    data = load(f"csv:{path}", progress=False, split="all")
    assert data.task.target_names == ("Größe (mg/l)",)
    assert [data.store.smiles(i) for i in range(24)] == [smiles[n] for n in order]
    np.testing.assert_allclose(data.store.labels[:, 0], [values[n] for n in order], atol=1e-6)
