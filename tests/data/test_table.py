import csv
import datetime
import gzip
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem

from slicegraph.data import table as table_module
from slicegraph.data.columns import profile_table
from slicegraph.data.table import MAX_CHARACTERS, MAX_LINES, Row, cut, open_table, printable
from slicegraph.predict.table import open_whole

PLAIN = "smiles,gap\nCCO,1.5\nCC,2\n"
_BLANK = re.compile(rb'[ \t]*|("[ \t]*"|[ \t]*)(,("[ \t]*"|[ \t]*))+')  # no row
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
        ("packed.csv.gz", gzip.compress(PLAIN.encode(), mtime=0)),
        ("packed.csv", gzip.compress(PLAIN.encode(), mtime=0)),
        (
            "members.csv.gz",
            gzip.compress(PLAIN[:20].encode(), mtime=0)
            + gzip.compress(PLAIN[20:].encode(), mtime=0),
        ),
    ],
)
def test_spellings_of_one_table_have_the_same_rows(tmp_path, name, content):
    assert rows(tmp_path, content, name) == ROWS


@pytest.mark.parametrize("value", ["-8,56", "59,2 %", "1 100,5"])
def test_the_header_has_the_delimiter_too(tmp_path, value):
    lines = ["Structure;logS", f"CCO;{value}", f"CCC;{value}", "CC=O;2"]
    found = table(tmp_path, "\n".join(lines))
    assert found.columns == ("Structure", "logS")
    assert [row.text for row in found.rows()] == ["CCO", "CCC", "CC=O"]


def test_a_title_with_a_comma_above_semicolons_and_decimal_commas_is_skipped(tmp_path):
    lines = ["Solubility, batch 3", "Structure;logS", *[f"{'C' * n};-{n},5" for n in range(1, 9)]]
    assert table(tmp_path, "\n".join(lines)).columns == ("Structure", "logS")


def test_decimal_commas_in_every_row_of_a_comma_file_are_refused(tmp_path):
    with pytest.raises(ValueError, match="every row has 3 fields, the header 2: perhaps decimal"):
        table(tmp_path, "smiles,logD\nCC,1,5\nCO,2,5\n")


def test_formulas_without_values_are_named(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["smiles", "nM", "pIC50", "note"], ["CCO", 10, "=9-LOG10(B2)"], ["CC", 5, "=B3"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    assert open_table(tmp_path / "a.xlsx").formulas == {"pIC50"}
    reason = profile_table(tmp_path / "a.xlsx")["pIC50"].reason
    assert reason == "formulas without saved values; open the file in Excel and save it"
    (warning,) = profile_table(tmp_path / "a.xlsx").warnings
    assert warning.startswith("2 cells of column 'pIC50' are read as gaps")


def test_molecules_that_are_formulas_without_values_are_refused(tmp_path):
    path = workbook(tmp_path / "a.xlsx", S=[["smiles", "y"], ['="CC"', 1.5], ['="CO"', 2.5]])
    for read in (profile_table, open_whole):
        with pytest.raises(ValueError, match="column 'smiles' has formulas without saved values"):
            read(path)


def test_some_formulas_without_values_are_a_warning(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    lines = [
        ["smiles", "nM", "pIC50"],
        ["CCO", 10, 8.0],
        ["CC", 5, "=B3"],
        ["C", 5, "=9-LOG10(B2)"],
    ]
    for line in lines:
        book.active.append(line)
    book.save(tmp_path / "a.xlsx")
    (warning,) = profile_table(tmp_path / "a.xlsx").warnings
    assert warning.startswith("2 cells of column 'pIC50' are read as gaps: they have formulas")
    assert not open_table(tmp_path / "a.xlsx").formulas


def test_an_sdf_is_searched_once_for_its_properties(tmp_path, monkeypatch):
    opened = []
    lines = table_module._TextFile._lines
    monkeypatch.setattr(
        table_module._TextFile, "_lines", lambda self: opened.append(1) or lines(self)
    )
    first = table(tmp_path, SDF, "once.sdf", labels=["gap"])
    assert open_table(tmp_path / "once.sdf", labels=["gap"]).columns == first.columns
    assert len(opened) == 1
    assert "new" in table(tmp_path, f"{SDF}\n> <new>\n1\n", "once.sdf", labels=["gap"]).columns


def test_rows_below_a_header_in_another_order_are_read_in_that_order(tmp_path):
    content = "smiles,a,b\nCCO,1,2\nb, Smiles,A\n4,CC,3\nsmiles,a,b\nC,5,6\n"
    first, again, second, last_header, last = rows(tmp_path, content, labels=["a", "b"])
    assert [first, second, last] == [
        Row("CCO", ("1", "2")),
        Row("CC", ("3", "4")),
        Row("C", ("5", "6")),
    ]
    assert "in another order" in again.problem
    assert last_header.problem


def test_a_header_with_other_names_does_not_mix_columns(tmp_path):
    content = "smiles,logD,b\nCCO,1,2\nb,smiles,pIC50\n8,CC,9\nsmiles,pIC50,b\nC,7,6\n"
    second = "smiles,logD,b\nCCO,1,2\nSmiles,pIC50,b\nCC,9,8\nsmiles,logD,b\nC,5,6\n"
    for text, last in ((content, ("", "6")), (second, ("5", "6"))):
        found = rows(tmp_path, text, labels=["logD", "b"])
        assert [row.labels for row in found[::2]] == [("1", "2"), ("", "8"), last]
        assert "a header with other names" in found[1].problem
        assert [row.text for row in found[::2]] == ["CCO", "CC", "C"]
    (tmp_path / "second.csv").write_text(second)
    column = profile_table(tmp_path / "second.csv")["logD"]
    assert (column.minimum, column.maximum, column.gaps, column.bad) == (1, 5, 1, 0)


def test_a_label_that_is_the_name_of_its_column_is_no_header(tmp_path):
    found = rows(tmp_path, "smiles,active\nCCO,active\nCC,inactive\n", labels=["active"])
    assert [(row.labels, row.problem) for row in found] == [
        (("active",), None),
        (("inactive",), None),
    ]


def test_a_header_in_the_middle_is_no_row(tmp_path):
    content = "\ufeffsmiles,class\nCCO,low\n\ufeffSMILES , class\nCC,high\n"
    found = rows(tmp_path, content, labels=["class"])
    assert [row.problem for row in found] == [None, "repeats the header", None]
    assert found[1].text == "SMILES , class"


def test_smi_has_molecules_and_names_and_no_labels(tmp_path):
    smi = "CCO ethanol\n\n  CC\tethane gas\nC"
    assert rows(tmp_path, smi, "a.smi") == [Row("CCO"), Row("CC"), Row("C")]
    assert rows(tmp_path, gzip.compress(smi.encode(), mtime=0), "a.smi.gz")[0] == Row("CCO")


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
    marks = str.maketrans("", "", "\0\ufeff")  # a byte order mark is dropped wherever it is
    drawn = [(name.translate(marks), "C" * atoms, str(atoms)) for name, atoms in drawn]
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
    assert len(found) == sum(not _BLANK.fullmatch(line) for line in lines)
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
        (PLAIN, {"smiles": "SMILES"}, "no column 'SMILES'; did you mean 'smiles'. its columns are"),
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
    with pytest.raises(ValueError, match=r"'a.docx' has no known ending, expected .csv, .tsv"):
        table(tmp_path, PLAIN, "a.docx")


def test_the_position_goes_from_nothing_to_all(tmp_path):
    found = table(tmp_path, gzip.compress(PLAIN.encode(), mtime=0), "a.csv.gz")
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
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"'a\.parquet' needs pyarrow; .*slicegraph\[parquet\]"):
        open_table(tmp_path / "a.parquet")


def test_long_texts_are_taken_fewer_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "CHUNK_CHARACTERS", 100)
    content = "\n".join(["smiles", *("C" * size for size in (60, 60, 1, 99, 300, 1))])
    chunks = list(cut(table(tmp_path, content), 4))
    assert [(chunk.first_row, len(chunk.rows)) for chunk in chunks] == [(0, 2), (2, 3), (5, 1)]


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("a.csv", PLAIN.encode("utf-16"), "encoding UTF-16"),
        ("a.csv", PLAIN.encode("utf-16-le"), "encoding UTF-16"),
        ("a.csv", PLAIN.encode("utf-16-be"), "encoding UTF-16"),
        ("a.csv.gz", gzip.compress(PLAIN.encode("utf-16"), mtime=0), "encoding UTF-16"),
        ("a.csv", PLAIN.encode("utf-32"), "encoding UTF-32"),
        ("a.csv", PLAIN.replace(",", ";").encode(), "fields separated by semicolons"),
        ("a.csv", b"sep=;\n" + PLAIN.replace(",", ";").encode(), "fields separated by semicolons"),
        ("a.csv", PLAIN.replace(",", "\t").encode(), "fields separated by tabs"),
        ("a.tsv", PLAIN.replace(",", ";").encode(), "fields separated by semicolons"),
        ("a.csv", PLAIN.replace("\n", "\r").encode(), "lines end as on old Macs (CR)"),
        (
            "a.csv",
            PLAIN.replace("\n", ",,\n").encode(),
            "empty fields at the end of rows are ignored",
        ),
        ("a.csv", (PLAIN + ",\n,\n").encode(), None),
        ("a.csv", b"# of the LIMS, v2\n# 2024\n" + PLAIN.encode(), "that are skipped: 2"),
        ("a.csv", b"Project X\n\n" + PLAIN.encode(), "that are skipped: 1"),
        ("a.csv", b",Assay\n" + PLAIN.encode(), "that are skipped: 1"),
        ("a.csv", b"#" + PLAIN.encode(), None),
        ("a.csv", b"smiles,gap\n\xef\xbb\xbfCCO,1.5\nCC,2\n", None),
    ],
)
def test_what_is_not_plain_is_read_with_one_note(tmp_path, name, content, note):
    found = table(tmp_path, content, name, labels=["gap"])
    assert list(found.rows()) == ROWS
    assert len(found.notes) == (note is not None)
    assert note is None or note in found.notes[0]


def test_bytes_that_are_not_utf8_are_windows_1252(tmp_path):
    found = table(tmp_path, "näme,smiles,IC50 µM\né,C,1\n".encode("cp1252"), labels=["näme"])
    assert found.columns == ("näme", "smiles", "IC50 µM")
    assert list(found.rows()) == [Row("C", ("é",))]
    assert found.notes == ("encoding Windows-1252 (it is not UTF-8)",)


def test_a_stray_byte_in_utf8_costs_its_own_field(tmp_path):
    content = "smiles,name\nC,é\nCC,".encode() + b"\xe9\n"
    assert [printable(row.labels[0]) for row in rows(tmp_path, content, labels=["name"])] == [
        "é",
        r"\xe9",
    ]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("smiles;logS\nCCO;1,5\nCC;2,5\n", ("smiles", "logS")),
        ("smiles;a, b\nCCO;1,5\nCC;2,5\n", ("smiles", "a, b")),
        ('smiles,"a, b"\nCCO,1\n', ("smiles", "a, b")),
        ("smiles,a;b;c\nCCO,1\nCC,2\n", ("smiles", "a;b;c")),
        ("what;other, more;y\nCCO;a, b;1\nCCC;c;2\n", ("what", "other, more", "y")),
    ],
)
def test_the_delimiter_splits_header_and_rows_alike(tmp_path, content, columns):
    assert table(tmp_path, content).columns == columns


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (" smiles , a\u00a0,a", ("smiles", "a (column 2)", "a (column 3)")),
        ("smiles,,x", ("smiles", "column 2", "x")),
        ('smiles,"IC50\r\n(nM)",x', ("smiles", "IC50 (nM)", "x")),
    ],
)
def test_names_of_columns_are_trimmed_and_unique(tmp_path, header, columns):
    assert table(tmp_path, f"{header}\nC,1,2\n").columns == columns


def test_two_columns_of_smiles_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"more than one column 'smiles': name one of"):
        table(tmp_path, "smiles,SMILES\nC,CC\n")


def test_row_names_of_r_are_a_column_of_their_own(tmp_path):
    content = '"smiles"\t"gap"\n"1"\t"CCO"\t1.5\n"2"\t"CC"\t2\n'
    assert rows(tmp_path, content, labels=["gap"]) == ROWS


def test_unquoted_decimal_commas_are_named_as_the_likely_cause(tmp_path):
    (note,) = table(tmp_path, "smiles,gap\nCCO,1,5\nC,2\nCC,2,5\n").notes
    assert note.startswith("2 of the first 3 rows have not as many fields")


@pytest.mark.parametrize(
    ("start", "message"),
    [(b"PK\x03\x04", "name it .xlsx"), (b"\xd0\xcf\x11\xe0", "save it as .xlsx or CSV")],
)
def test_a_workbook_that_is_called_csv_is_named(tmp_path, start, message):
    with pytest.raises(ValueError, match=f"'table.csv' is .*{message}"):
        table(tmp_path, start + b"...")


INCHI = "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"


@pytest.mark.parametrize(
    ("content", "column", "structure"),
    [
        (f'InChI,y\n"{INCHI}",1\n', "InChI", "InChI"),
        (f'what,y\n"{INCHI}",1\n', "what", "InChI"),
        (f'InChI,smiles\n"{INCHI}",CCO\n', "smiles", "SMILES"),
        (f'what,other\n"{INCHI}",CCCO\n', "other", "SMILES"),
    ],
)
def test_a_column_of_inchi_is_found_if_there_are_no_smiles(tmp_path, content, column, structure):
    found = table(tmp_path, content)
    assert (found.smiles, found.structure) == (column, structure)


def workbook(path: Path, **sheets: list[list[object]]) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, lines in sheets.items():
        sheet = book.create_sheet(name)
        for line in lines:
            sheet.append(line)
    book.save(path)
    return path


def test_the_sheet_with_molecules_is_read_without_empty_rows_and_columns(tmp_path):
    lines = [
        ["smiles", "gap", "n", "when", "flag", None, " "],
        ["CCO", 1.5, 3.0, datetime.datetime(2024, 1, 3), True, None],
        [None, None, None],
        ["CC", "#N/A", None, datetime.datetime(2024, 1, 3, 12, 30), False],
        [" ", None],
    ]
    path = workbook(tmp_path / "a.xlsx", README=[["made"], ["by hand"]], Data=lines)
    found = open_table(path, labels=["gap", "n", "when", "flag"])
    assert list(found.rows()) == [
        Row("CCO", ("1.5", "3", "2024-01-03", "1")),
        Row("CC", ("#N/A", "", "2024-01-03 12:30:00", "0")),
    ]
    assert found.columns == ("smiles", "gap", "n", "when", "flag")
    assert found.notes == ("sheet 'Data', one of 2",)


def test_a_title_above_the_header_of_a_sheet_is_skipped(tmp_path):
    lines = [["Project X"], [], ["smiles", "gap"], ["CCO", 1.5], ["CC", 2]]
    assert list(open_table(workbook(tmp_path / "a.xlsx", S=lines), labels=["gap"]).rows()) == ROWS


def test_a_workbook_without_molecules_or_damaged_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"'a.xlsx' has no column that looks like SMILES"):
        open_table(workbook(tmp_path / "a.xlsx", S=[["a", "b"], ["x", "y"]]))
    content = (tmp_path / "a.xlsx").read_bytes()
    for wrong in (b"smiles,gap\n", content[: len(content) // 2]):
        with pytest.raises(ValueError, match=r"'b.xlsx' is damaged, encrypted, or not"):
            table(tmp_path, wrong, "b.xlsx")


def test_a_workbook_with_a_damaged_sheet_is_named(tmp_path):
    path = workbook(tmp_path / "a.xlsx", S=[["smiles", "y"], ["C", 1]])
    with zipfile.ZipFile(path) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    parts["xl/worksheets/sheet1.xml"] = parts["xl/worksheets/sheet1.xml"][:-60]
    with zipfile.ZipFile(path, "w") as cut_off:
        for name, content in parts.items():
            cut_off.writestr(name, content)
    with pytest.raises(ValueError, match=r"'a.xlsx' is damaged"):
        open_table(path)


def test_xlsx_without_openpyxl_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"'a\.xlsx' needs openpyxl; .*slicegraph\[xlsx\]"):
        table(tmp_path, b"PK", "a.xlsx")


def molblock(smiles: str, title: str = "") -> str:
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    mol.SetProp("_Name", title)
    return Chem.MolToMolBlock(mol, kekulize=False)


SDF = (
    f"{molblock('OCC', 'ethanol')}>  <gap>  (1)\n>10\n\n> <note>\ntwo\nlines\n\n$$$$\n"
    f"{molblock('CN(C)(C)(C)C', 'five')}> <gap>\n2\n\n$$$$\n"
    "title\n\n\nno block\n> <gap>\n3\n\n> <late>\nx\n\n$$$$\n"
    f"{molblock('[2H]C')}> <gap>\n4\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sdf", SDF.encode()),
        ("a.sd", SDF.replace("\n", "\r\n").encode()),
        ("a.sdf.gz", gzip.compress(SDF.encode(), mtime=0)),
    ],
)
def test_an_sdf_has_its_properties_as_columns_and_a_bad_record_costs_itself(
    tmp_path, name, content
):
    found = table(tmp_path, content, name, labels=["gap", "note", "name"])
    assert found.columns == ("smiles", "name", "gap", "note", "late")
    assert (found.smiles, found.structure) == ("smiles", "molblock")
    first, charged, broken, last = found.rows()
    assert first == Row("CCO", (">10", "two\nlines", "ethanol"))
    assert last == Row("[2H]C", ("4", "", ""))
    assert "valence for atom # 1 N" in charged.problem
    assert (broken.text, broken.problem) == ("title", "RDKit cannot read this molblock")


def test_a_property_of_an_sdf_can_be_the_smiles(tmp_path):
    content = f"{molblock('C')}> <SMILES>\nCCO\n\n> <y>\n1.5\n\n$$$$\n"
    assert table(tmp_path, content, "a.sdf").columns == ("structure", "SMILES", "y")
    content = content.replace("M  END", "damaged")
    assert rows(tmp_path, content, "a.sdf", smiles="SMILES") == [Row("CCO", ("1.5",))]
