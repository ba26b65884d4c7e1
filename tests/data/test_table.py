import csv
import gzip
import io
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicegraph.data import table as table_module
from slicegraph.data.table import MAX_CHARACTERS, MAX_LINES, Row, cut, open_table, printable

PLAIN = "smiles,gap\nCCO,1.5\nCC,2\n"
ROWS = [Row("CCO", ("1.5",)), Row("CC", ("2",))]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def table(folder: Path, content: str | bytes, name: str = "table.csv", **columns):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return open_table(path, **columns)


def rows(folder: Path, content: str | bytes, name: str = "table.csv", **columns) -> list[Row]:
    return list(table(folder, content, name, **columns).rows())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.csv", PLAIN.encode()),
        ("upper.CSV", PLAIN.encode()),
        ("table.txt", PLAIN.encode()),
        ("mark.csv", b"\xef\xbb\xbf" + PLAIN.encode()),
        ("windows.csv", PLAIN.replace("\n", "\r\n").encode()),
        ("mac.csv", PLAIN.replace("\n", "\r").encode()),
        ("end.csv", PLAIN.rstrip("\n").encode()),
        ("blank.csv", PLAIN.replace("\n", "\n \n\n").encode()),
        ("late.csv", b"\n\n" + PLAIN.encode()),
        ("quoted.csv", b'"smiles","gap"\n"CCO","1.5"\nCC,"2"\n'),
        ("spaced.csv", b" smiles , gap\nCCO,1.5\nCC,2\n"),
        ("tabs.tsv", PLAIN.replace(",", "\t").encode()),
        ("semicolons.csv", PLAIN.replace(",", ";").encode()),
        ("packed.csv.gz", gzip.compress(PLAIN.encode())),
        ("packed.csv", gzip.compress(PLAIN.encode())),
        ("members.csv.gz", gzip.compress(PLAIN[:20].encode()) + gzip.compress(PLAIN[20:].encode())),
    ],
)
def test_spellings_of_one_table_have_the_same_rows(tmp_path, name, content):
    assert rows(tmp_path, content, name) == ROWS


def test_smi_has_molecules_and_names_and_no_labels(tmp_path):
    smi = "CCO ethanol\n\n  CC\tethane gas\nC"
    assert rows(tmp_path, smi, "a.smi") == [Row("CCO"), Row("CC"), Row("C")]
    assert rows(tmp_path, gzip.compress(smi.encode()), "a.smi.gz")[0] == Row("CCO")


def test_smi_refuses_column_names(tmp_path):
    with pytest.raises(ValueError, match=r"'a.smi' has no columns"):
        table(tmp_path, "CCO", "a.smi", labels=["gap"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("CCC", "1 fields where the header has 2"),
        ("CCC,1,2", "3 fields where the header has 2"),
        ('"CCC"x,1', "not CSV: ',' expected after '\"'"),
        ('"CCC,1', "not CSV: a quote is not closed"),
        ('CCC,"1', "not CSV: a quote is not closed"),
        ("C" * (MAX_CHARACTERS + 5) + ",1", f"longer than {MAX_CHARACTERS:,} characters"),
        ('"' + "C" * 200_000 + '",1', "not CSV: field larger than field limit (131072)"),
    ],
)
def test_a_bad_row_is_named_and_costs_no_other(tmp_path, line, problem):
    first, bad, last = rows(tmp_path, f"smiles,gap\nCCO,1.5\n{line}\nCC,2\n")
    assert [first, last] == ROWS
    assert bad.problem == problem
    assert line.startswith(bad.text)
    assert len(bad.text) <= MAX_CHARACTERS + 1


def test_a_quote_that_is_not_closed_ends_where_a_later_one_gives_the_wrong_fields(tmp_path):
    content = 'smiles,gap\n"CCO,1.5\nC,3\n"CC",2\n'
    assert [row.text for row in rows(tmp_path, content)] == ['"CCO,1.5', "C", "CC"]


def test_an_unclosed_quote_does_not_swallow_a_long_file(tmp_path):
    lines = ["C,1"] * (3 * MAX_LINES)
    found = rows(tmp_path, "\n".join(["smiles,gap", '"bad', *lines]))
    assert found[0].problem
    assert found[1:] == [Row("C", ("1",))] * len(lines)


def test_line_breaks_in_quotes_belong_to_the_field(tmp_path):
    content = 'note,smiles,gap\n"two\nlines, and ""more""",CCO,1.5\nx,CC,2\n'
    assert rows(tmp_path, content) == ROWS


def test_bytes_that_are_not_text_stay_in_their_field(tmp_path):
    content = b"name,smiles,gap\n\xe4\x00,CCO,1.5\nx,C\xff\x00,2\n"
    good, bad = rows(tmp_path, content)
    assert good == Row("CCO", ("1.5",))
    assert printable(bad.text) == r"C\xff\x00"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.text(alphabet=st.characters(codec="utf-8")), st.integers(1, 30))))
def test_whatever_is_quoted_rightly_is_read_as_the_csv_module_reads_it(scratch, drawn):
    drawn = [(name.replace("\0", ""), "C" * atoms, str(atoms)) for name, atoms in drawn]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("name", "smiles", "gap"), *drawn])
    found = rows(scratch, text.getvalue(), smiles="smiles", labels=["name", "gap"])
    assert found == [Row(smiles, (name, gap)) for name, smiles, gap in drawn]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_line_of_any_bytes_costs_no_other_row(scratch, data):
    unquoted = st.binary(max_size=30).map(lambda line: line.translate(None, b'"\r\n'))
    anything = st.binary(max_size=30).map(lambda line: line.translate(None, b"\r\n"))
    good = [b"%s,%d" % (b"C" * size, size) for size in range(1, data.draw(st.integers(2, 12)))]
    lines = list(good)
    for line in [*data.draw(st.lists(unquoted, max_size=4)), data.draw(anything)]:
        lines.insert(data.draw(st.integers(0, len(lines))), line)
    found = rows(scratch, b"\n".join([b"smiles,gap", *lines]), smiles="smiles", labels=["gap"])
    assert len(found) == sum(bool(line.strip(b" \t")) for line in lines)
    for size in range(1, len(good) + 1):
        assert Row("C" * size, (str(size),)) in found


@settings(max_examples=150, deadline=None)
@given(
    st.binary(min_size=1, max_size=200), st.sampled_from(["a.csv", "a.tsv", "a.smi", "a.csv.gz"])
)
def test_a_file_of_any_bytes_is_read_or_refused(scratch, content, name):
    try:
        found = rows(scratch, content, name)
    except ValueError as error:
        assert repr(name) in str(error)  # noqa: PT017
    else:
        assert all(isinstance(row, Row) for row in found)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(0, 255))
def test_a_damaged_gzip_is_read_or_refused(scratch, position, value):
    content = bytearray(gzip.compress(PLAIN.encode(), mtime=0))
    content[position % len(content)] = value
    try:
        rows(scratch, bytes(content), "a.csv.gz", smiles="smiles")
    except ValueError as error:
        assert "'a.csv.gz'" in str(error)  # noqa: PT017


def test_a_gzip_that_is_cut_off_is_named(tmp_path):
    content = gzip.compress("\n".join(["smiles", *["C" * 50] * 20000]).encode(), mtime=0)
    with pytest.raises(ValueError, match=r"'a.csv.gz' is damaged or cut off"):
        rows(tmp_path, content[:-20], "a.csv.gz")


def test_utf16_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(ValueError, match=r"'table.csv' is UTF-16; save it as UTF-8"):
        table(tmp_path, PLAIN.encode("utf-16"))


@pytest.mark.parametrize(
    ("header", "values", "smiles", "labels"),
    [
        ("idx,smiles,homolumogap", "0,CCO,1.5 1,CC,2.5 2,C,1.0", "smiles", ("homolumogap",)),
        ("SMILES,a,b", "CCO,1,x CC,2,y", "SMILES", ("a",)),
        ("name,canonical_smiles,y", "C,CCO,1 N,CC,2", "canonical_smiles", ("y",)),
        ("mol,y", "CCO,1 CC,1", "mol", ("y",)),
        ("mol,text,y", "mol1,CCO,1 mol2,CC,1", "text", ("y",)),
        ("activity,what,active", "CI,CCCO,0 CM,CCC,1", "what", ("active",)),
        ("number,smiles,y", "7,C,1 8,C,5 9,C,2", "smiles", ("y",)),
        ("smiles,a,b", "C,,1 C,,x C,2,3 C,,5", "smiles", ("a", "b")),
        ("smiles,nothing", "C, C,", "smiles", ()),
        ("smiles", "C CC", "smiles", ()),
    ],
)
def test_columns_are_guessed_from_names_and_values(tmp_path, header, values, smiles, labels):
    found = table(tmp_path, "\n".join([header, *values.split(" ")]))
    assert (found.smiles, found.labels) == (smiles, labels)


def test_given_columns_are_taken(tmp_path):
    content = "smiles,other,a,b\nC,CC,1,2\n"
    assert rows(tmp_path, content, smiles="other", labels=["b", "a"]) == [Row("CC", ("2", "1"))]
    assert rows(tmp_path, content, labels=[]) == [Row("C")]


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        (PLAIN, {"smiles": "mol"}, "no column 'mol'; its columns are smiles, gap"),
        (PLAIN, {"labels": ["homo"]}, "no column 'homo'; its columns are smiles, gap"),
        ("smiles,a,a\nC,1,2\n", {"labels": ["a"]}, "more than one column 'a'"),
        ("name,y\nethanol,1\n", {}, "no column that looks like SMILES"),
        ("CCO,1.5\nCC,2\n", {}, "has no header: its first line has 'CCO'"),
        ('"smiles,gap\nC,1\n', {}, r"has no header \(not CSV: a quote is not closed\)"),
        ("\n\n", {}, "has no header"),
        ("", {}, "'table.csv' is empty"),
    ],
)
def test_a_table_without_the_columns_is_refused_by_name(tmp_path, content, columns, message):
    with pytest.raises(ValueError, match=message):
        table(tmp_path, content, **columns)


def test_an_unknown_ending_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"'a.xlsx' has no known ending, expected .csv, .tsv"):
        table(tmp_path, PLAIN, "a.xlsx")


def test_the_position_goes_from_nothing_to_all(tmp_path):
    found = table(tmp_path, gzip.compress(PLAIN.encode()), "a.csv.gz")
    assert found.size == (tmp_path / "a.csv.gz").stat().st_size
    assert list(found.rows()) == ROWS
    assert found.position == found.size


def parquet(path: Path, columns: dict[str, list[object]], **options: object) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path, **options)
    return path


def test_parquet_is_read_by_row_groups_with_gaps_numbers_and_flags(tmp_path):
    columns = {
        "name": [b"a", None, b"c"],
        "smiles": ["CCO", None, "C"],
        "gap": [1.5, None, float("nan")],
        "count": [1, 2, None],
        "flag": [True, False, None],
    }
    found = open_table(parquet(tmp_path / "a.parquet", columns, row_group_size=2))
    assert (found.smiles, found.labels) == ("smiles", ("gap", "count", "flag"))
    assert list(found.rows()) == [
        Row("CCO", ("1.5", "1", "1")),
        Row("", ("", "2", "0")),
        Row("C", ("nan", "", "")),
    ]
    assert (found.size, found.position, found.unit) == (3, 3, "rows")


def test_a_float32_column_of_parquet_keeps_its_values(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    values = [0.1, 1 / 3, 6.02e23]
    columns = {"smiles": ["C"] * 3, "gap": pyarrow.array(values, pyarrow.float32())}
    found = open_table(parquet(tmp_path / "a.pq", columns)).rows()
    single = pyarrow.array([float(row.labels[0]) for row in found], pyarrow.float32())
    assert single == columns["gap"]


def test_a_damaged_parquet_is_named(tmp_path):
    path = parquet(tmp_path / "a.parquet", {"smiles": ["C"]})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"'a.parquet' is damaged, or not Parquet"):
        open_table(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"pip install 'slicegraph\[parquet\]'"):
        open_table(tmp_path / "a.parquet")


def test_long_texts_are_taken_fewer_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "CHUNK_CHARACTERS", 100)
    content = "\n".join(["smiles", *("C" * size for size in (60, 60, 1, 99, 300, 1))])
    chunks = list(cut(table(tmp_path, content), 4))
    assert [(chunk.first_row, len(chunk.rows)) for chunk in chunks] == [(0, 2), (2, 3), (5, 1)]
