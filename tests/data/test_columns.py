"""What the columns of a table hold, how they are read, and which one is the target."""

import json
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.molecule_tables import write_csv

from slicegraph.data.cells import CensoredError, ColumnFormat
from slicegraph.data.columns import (
    AmbiguousTargets,
    ColumnProfile,
    choose_targets,
    profile_table,
    quoted_names,
    read_bounds,
    read_column,
    split_names,
)

COMMAND = "slicegraph train --data csv:a.csv"


def table(folder: Path, **columns: list[str]) -> Path:
    rows = [[*cells, "C"] for cells in zip(*columns.values(), strict=True)]
    return write_csv(folder / "a.csv", rows, [*columns, "smiles"])


def profile_of(folder: Path, values: list[str], name: str = "y") -> ColumnProfile:
    return profile_table(table(folder, **{name: values}))[name]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("columns")


@pytest.mark.parametrize(
    ("text", "value", "bound"),
    [
        ("1.5", 1.5, 0),
        (" 1e-5 ", 1e-5, 0),
        ("\u22125", -5, 0),
        ("\u00a012\u00a0", 12, 0),
        ("'3.5", 3.5, 0),
        ("'3.5'", 3.5, 0),
        ("\ufeff7", 7, 0),
        ("=10", 10, 0),
        ("~10", 10, 0),
        (">10", 10, 1),
        ("> 10.5", 10.5, 1),
        (">=10", 10, 1),
        ("≥10", 10, 1),
        ("&gt;10", 10, 1),
        ("<0.1", 0.1, -1),
        ("<= 0.1", 0.1, -1),
        ("≤-1", -1, -1),
    ],
)
def test_a_number_is_read_with_its_bound(text, value, bound):
    assert ColumnFormat().read(text) == (value, bound)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NaN",
        "N/A",
        "n.d.",
        "ND",
        "-",
        "--",
        "?",
        "#N/A",
        "#VALUE!",
        "#NV",
        "Not determined",
    ],
)
def test_a_gap_is_nan(text):
    assert math.isnan(ColumnFormat().read(text)[0])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("high", "is not a number"),
        ("1_000", "is not a number"),
        ("10 nM", "has 'nM' after the number; keep the number alone"),
        (">10 nM", "has 'nM' after the number"),
        ("1.2 ± 0.3", "has an uncertainty"),
        ("3-5", "is a range"),
        ("2024-01-05", "is a date"),
        ("inf", "is not finite"),
        ("1e39", "is too large for float32"),
        ("45 %", "has a percent sign"),
        ("1,5", "is not a number with a decimal point"),
        ("1,234.5", "is not a number with a decimal point"),
        ("1,23,456", "is not a number"),
        ("> ", "is not a number"),
    ],
)
def test_another_text_is_an_error_with_the_problem(text, problem):
    with pytest.raises(ValueError, match=problem):
        ColumnFormat().read(text)


@pytest.mark.parametrize(
    ("values", "decimal", "thousands", "numbers"),
    [
        (["1.234", "5.678"], ".", "", [1.234, 5.678]),
        (["1,5", "2,25", "3"], ",", "", [1.5, 2.25, 3]),
        (["0,512", "1,234"], ",", "", [0.512, 1.234]),
        (["1,234", "567", "12,345"], ".", ",", [1234, 567, 12345]),
        (["1,234,567", "5.5"], ".", ",", [1234567, 5.5]),
        (["4,897,788.2", "12"], ".", ",", [4897788.2, 12]),
        (["1.234,56", "7,5"], ",", ".", [1234.56, 7.5]),
        (["1.234.567", "5"], ",", ".", [1234567, 5]),
        (["1 234,5", "7"], ",", " ", [1234.5, 7]),
        (["1\u202f234,5", "7,5"], ",", " ", [1234.5, 7.5]),
        (["1'234.5", "7"], ".", "'", [1234.5, 7]),
        (["1\u2019234", "7"], ".", "'", [1234, 7]),
        (["-1,5e-3", "2,5"], ",", "", [-0.0015, 2.5]),
    ],
)
def test_the_one_spelling_that_fits_a_column_is_used(tmp_path, values, decimal, thousands, numbers):
    found = profile_of(tmp_path, values)
    assert (found.format.decimal, found.format.thousands) == (decimal, thousands)
    assert [found.format.read(text)[0] for text in values] == pytest.approx(numbers)
    assert (found.minimum, found.maximum) == pytest.approx((min(numbers), max(numbers)))
    assert bool(found.note) == ((decimal, thousands) != (".", ""))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["1.5", "2,5"], r"mixes spellings of numbers, '1.5' \(row 0\) and '2,5' \(row 1\)"),
        (["1 234", "1,234.5"], "mixes spellings"),
        (["7,467", "8,112"], r"'7,467' \(row 0\) can be read in two ways, 7467 or 7.467; write it"),
        (["7,467", "8,112", "5"], "can be read in two ways, 7467 or 7.467"),
        (["1,234", "1500"], r"'1,234' \(row 0\) can be read in two ways"),
        (["1,234", "5.678"], "can be read in two ways"),
        (["10 nM", "12 nM"], "'10 nM' in row 0 has 'nM' after the number"),
        (["2024-01-05", "2024-02-07"], "it holds dates"),
        (["", "n.d."], "it has no values"),
        ([f"text {k} of many" for k in range(60)], "it holds text such as 'text 0 of many'"),
    ],
)
def test_a_column_that_cannot_be_read_is_refused_even_if_asked_for(tmp_path, values, problem):
    profile = profile_table(table(tmp_path, y=values))
    with pytest.raises(ValueError, match=f"'a.csv': 'y' cannot be a target: .*{problem}"):
        choose_targets(profile, ["y"], COMMAND)


def test_a_few_values_of_another_spelling_are_bad_and_the_column_is_read(tmp_path):
    found = profile_of(tmp_path, [*["1.5", "2.5"] * 30, "3,5"])
    assert (found.numbers, found.bad, found.examples) == (60, 1, ((60, "3,5"),))
    assert "not readable: 1, such as '3,5' in row 60" in found.note
    assert found.problem == found.reason == ""


def test_points_that_may_be_of_thousands_are_refused_beside_decimal_commas(tmp_path):
    columns = {"a": ["1,5", "2,5"], "b": ["1.234", "5.678"], "c": ["1.5", "2.25"]}
    profile = profile_table(table(tmp_path, **columns))
    assert "'1.234' (row 0) can be read in two ways" in profile["b"].problem
    assert profile["a"].problem == profile["c"].problem == ""


@pytest.mark.parametrize(("delimiter", "other"), [(";", "1"), (",", "1,5")])
def test_commas_that_may_be_of_thousands_are_decimal_in_a_table_with_decimal_commas(
    tmp_path, delimiter, other
):
    lines = [["smiles", "pIC50", "x"], *(["C", f"{k},{100 + k}", other] for k in range(1, 30))]
    rows = [delimiter.join(f'"{cell}"' for cell in line) for line in lines]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    found = profile_table(tmp_path / "a.csv")["pIC50"]
    assert (found.maximum, found.reason, found.problem) == (29.129, "", "")
    assert "decimal comma, as " in found.note
    assert "(1,101 is 1.101)" in found.note


def test_a_column_that_can_be_read_in_two_ways_is_not_passed_over(tmp_path):
    columns = {"pIC50": [f"{k},{100 + k}" for k in range(1, 30)], "logD": ["1.5"] * 28 + ["2"]}
    with pytest.raises(AmbiguousTargets, match=r"(?s)2 columns.*pIC50 .*1101 or 1\.101.*logD"):
        choose_targets(profile_table(table(tmp_path, **columns)), None, COMMAND)


def test_unique_integers_are_listed_with_their_range_and_the_command(tmp_path):
    profile = profile_table(table(tmp_path, IC50=[str(1000 + 7 * k) for k in range(100)]))
    with pytest.raises(AmbiguousTargets) as caught:
        choose_targets(profile, None, COMMAND)
    assert "1000 to 1693" in str(caught.value)
    assert f"for example: {COMMAND} --targets IC50" in str(caught.value)


def test_several_words_of_one_class_have_one_name(tmp_path):
    words = ["Yes", "YES", "y", "no", "n", "N", "1", "1", "1", "1"]
    assert profile_of(tmp_path, words).format.names == ("n", "yes")
    assert profile_of(tmp_path, ["b", "A", "a"]).format.names == ("a", "b")


def test_percent_signs_are_dropped_if_most_values_have_one(tmp_path):
    found = profile_of(tmp_path, ["45%", "7.5 %", "3"])
    assert (found.format.percent, found.numbers, found.bad) == (True, 2, 1)
    assert found.format.read("7.5 %") == (7.5, 0)
    assert "percent" in found.note


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["Active", "inactive ", "n.d."], "active = 1, inactive = 0; 1 x 'n.d.' are gaps"),
        (["Yes", "no"], "yes = 1, no = 0"),
        (["TRUE", "FALSE"], "true = 1, false = 0"),
        (["pos", "neg"], "pos = 1, neg = 0"),
        (["+", "-"], "+ = 1, - = 0"),
        (["toxic", "non-toxic"], "toxic = 1, non-toxic = 0"),
        (["soluble", "insoluble"], "soluble = 1, insoluble = 0"),
        (["y", "N", "1", "0"], "y = 1, 1 = 1, n = 0, 0 = 0"),
        (["ja", "nein"], "ja = 1, nein = 0"),
    ],
)
def test_words_of_two_classes_are_a_target_and_the_positive_word_is_1(tmp_path, values, note):
    found = profile_of(tmp_path, values)
    assert (found.kind, found.note, found.reason) == ("class", note, "")
    assert found.gaps + found.numbers + found.bad == found.rows == len(values)


def test_other_words_are_classes_only_if_asked_for(tmp_path):
    profile = profile_table(table(tmp_path, y=["red", "Green", "red", "blue"]))
    with pytest.raises(
        AmbiguousTargets, match=r"(?s)no column is obviously.*y +class +blue .*words"
    ):
        choose_targets(profile, None, COMMAND)
    assert choose_targets(profile, ["y"], COMMAND) == ("y",)
    assert profile["y"].format.words == (("blue", 0), ("green", 1), ("red", 2))


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("Compound No.", ["7.0", "9", "12"], "identifier"),
        ("CompoundID", ["7", "9", "7"], "identifier"),
        ("id", ["7", "9", "7"], "identifier"),
        ("Batch", ["7", "9", "7"], "identifier"),
        ("Plate number", ["7", "9", "7"], "identifier"),
        ("PubChem CID", ["7", "9", "7"], "identifier"),
        ("Molecular Weight", ["180.2", "46.1", "46.1"], "identifier"),
        ("MW (g/mol)", ["180.2", "46.1", "46.1"], "identifier"),
        ("pH", ["7.4", "6.5", "6.5"], "identifier"),
        ("Temperature (°C)", ["25", "37", "37"], "identifier"),
        ("year", ["2001", "2003", "2003"], "identifier"),
        ("fold", ["0", "1", "2"], "identifier"),
        ("Set", ["train", "test", "Train"], "class"),
        ("#", ["4", "2", "2"], "identifier"),
        ("sample", ["4", "5", "6"], "identifier"),
        ("code", ["007", "012", "003"], "identifier"),
        ("measured", ["03.01.2024", "4.1.2024", "5/1/2024"], "date"),
        ("y", [str(1000 + 7 * k) for k in range(20)], "identifier"),
        ("y", [str(k * 7 % 30) for k in range(30)], "identifier"),
        ("y", ["5", "5", "5"], "whole number"),
    ],
)
def test_what_is_not_a_measurement_is_never_a_target_unasked(tmp_path, name, values, kind):
    found = profile_of(tmp_path, values, name)
    assert found.kind == kind
    assert found.reason


@pytest.mark.parametrize(
    "name",
    ["logD pH 7.4", "Solubility (pH 7.4)", "Fold change", "Melting temperature", "Cetane number"],
)
def test_a_measurement_whose_name_has_such_a_word_is_a_candidate(tmp_path, name):
    assert profile_of(tmp_path, ["1.5", "2.5", "0.5"], name).reason == ""


def test_the_only_candidate_is_the_target(tmp_path):
    columns = {"id": ["4", "8", "9"], "logD": ["1.5", "", "2.5"], "name": ["a", "b", "c"]}
    assert choose_targets(profile_table(table(tmp_path, **columns)), None, COMMAND) == ("logD",)


def test_several_candidates_are_listed_with_the_command(tmp_path):
    columns = {
        "compound no": ["4", "8", "9", "11"],
        "logD": ["1.5", "", "2.5", "-1"],
        "IC50, nM": ["5", ">10", "7", "7"],
        "active": ["yes", "no", "yes", "no"],
    }
    with pytest.raises(AmbiguousTargets) as caught:
        choose_targets(profile_table(table(tmp_path, **columns)), None, COMMAND)
    lines = [" ".join(line.split()) for line in str(caught.value).splitlines()]
    assert lines == [
        "'a.csv': 3 columns can be the target, name one or more:",
        "logD number -1 to 2.5 25 % gaps",
        "IC50, nM whole number 5 to 10 no gaps bounds: 1, such as '>10'",
        "active class yes / no no gaps yes = 1, no = 0",
        "passed over:",
        "compound no identifier 4 to 11 no gaps an identifier or condition, by its name",
        f"for example: {COMMAND} --targets logD",
        f"""or for all: {COMMAND} --targets 'logD,"IC50, nM",active'""",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("logd", "no column 'logd'; did you mean 'logD'"),
        ("smiles", "'smiles' cannot be a target: it holds the molecules"),
    ],
)
def test_a_target_that_is_no_label_is_refused_by_name(tmp_path, given, message):
    profile = profile_table(table(tmp_path, logD=["1.5", "2.5"]))
    with pytest.raises(ValueError, match=message):
        choose_targets(profile, [given], COMMAND)


def test_measurements_are_listed_first_and_descriptors_last(tmp_path):
    numbers = ["1.5", "2.5", "0.5"]
    path = table(tmp_path, TPSA=numbers, colour=numbers, NumHDonors=numbers, pIC50=numbers)
    with pytest.raises(AmbiguousTargets) as error:
        choose_targets(profile_table(path), None, COMMAND)
    lines = str(error.value).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["pIC50", "colour", "TPSA", "NumHDonors"]
    assert lines[5:] == [
        f"for example: {COMMAND} --targets pIC50",
        f"or for all: {COMMAND} --targets pIC50,colour",
    ]


def test_an_identifier_is_no_example(tmp_path):
    path = table(tmp_path, ID=["17", "12", "31"], weight=["1.5", "2.5", "0.5"])
    with pytest.raises(AmbiguousTargets, match=f"for example: {COMMAND} --targets weight"):
        choose_targets(profile_table(path), None, COMMAND)
    with pytest.raises(AmbiguousTargets) as error:
        choose_targets(profile_table(table(tmp_path, ID=["17", "12", "31"])), None, COMMAND)
    assert "for example" not in str(error.value)


def test_a_constant_is_no_example(tmp_path):
    with pytest.raises(AmbiguousTargets) as error:
        choose_targets(profile_table(table(tmp_path, y=["5"] * 4)), None, COMMAND)
    assert "for example" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "values", "note"),
    [
        ("Set", ["Training set", "Test set"], "looks like a split: --split column:Set"),
        ("my part", ["TRN", "external"], "looks like a split: --split 'column:my part'"),
        ("is_test", ["0", "1"], "looks like a split: --split column:is_test"),
        ("measured on", ["2024-01-02", "2024-05-06"], "has dates: --split 'time:measured on'"),
    ],
)
def test_a_column_that_could_be_the_split_is_a_note(tmp_path, name, values, note):
    profile = profile_table(table(tmp_path, y=["1.5", "2.5"], **{name: values}))
    assert profile.notes == (f"column {name!r} {note}",)
    assert choose_targets(profile, None, COMMAND) == ("y",)


def test_other_columns_with_molecules_are_a_note(tmp_path):
    path = table(tmp_path, **{"salt SMILES": ["CC", "CO"], "y": ["1", "2"]})
    (note,) = profile_table(path).notes
    assert note == "molecules from column 'smiles', not from 'salt SMILES' (--smiles to change)"
    assert not profile_table(path, "smiles").notes


def test_words_that_are_gaps_are_counted(tmp_path):
    column = profile_of(tmp_path, ["1.5", "Inconclusive", "ND", "ND", "NaN", "", "unspecified"])
    assert column.note == "2 x 'ND', 1 x 'Inconclusive', 1 x 'unspecified' are gaps"
    assert column.gaps == 6


def test_a_header_in_the_middle_is_no_class(tmp_path):
    path = table(tmp_path, y=["low", "high", "y", "high"])
    path.write_text(path.read_text().replace("y,C", "y,smiles"))
    profile = profile_table(path)
    assert profile["y"].format.names == ("low", "high")
    assert profile.broken == 1


def test_a_repeated_name_is_refused_only_if_it_is_asked_for(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["C", 1.5, 2, 3.5]], ["smiles", "a", "a", "b"])
    profile = profile_table(path)
    assert choose_targets(profile, ["b"], COMMAND) == ("b",)
    assert choose_targets(profile, ["a (column 3)"], COMMAND) == ("a (column 3)",)
    with pytest.raises(ValueError, match=r"more than one column 'a': .*'a \(column 2\)'"):
        choose_targets(profile, ["a"], COMMAND)


def test_names_with_commas_survive_the_command_line():
    names = ("logS", "IC50, nM", 'a "quoted" name')
    (argument,) = shlex.split(quoted_names(names))
    assert split_names(argument) == names
    assert split_names("a, b") == ("a", "b")


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("logD", ["1.5", "2.5", "0.2"] * 9 + ["-999"] * 3, "-999 (3 times)"),
        ("logD", ["1,5", "2,5", "0,2"] * 9 + ["9999"] * 2, "9999 (2 times)"),
        ("active", ["0", "1", "9"], "9 (1 times)"),
        ("active", ["0", "1", "-1"], "-1 (1 times)"),
        ("IC50_nM", ["1.5", "200", "-1"], "1 negative values"),
        ("Ki", ["1.5", "200", "-3"], "1 negative values"),
        ("pIC50", ["1.5", "7", "-1"], ""),
        ("log IC50", ["1.5", "7", "-1"], ""),
        ("logD", ["1.5", "2.5", "0.2"] * 9 + ["-999"], ""),  # an outlier
        ("score", ["0", "50", "9", "9", "9", "99", "99", "99", "100"], ""),
        ("sign", ["1", "-1"] * 4, ""),
    ],
)
def test_numbers_that_may_mean_missing_are_a_warning(tmp_path, name, values, says):
    warnings = profile_table(table(tmp_path, **{name: values})).warnings
    assert len(warnings) == bool(says)
    assert all(says in one and "empty these cells if they mean missing" in one for one in warnings)


@pytest.mark.parametrize("name", ["Unit", "Standard Units", "Einheit", "IC50_unit"])
def test_values_in_different_units_are_a_warning(tmp_path, name):
    units = {"IC50": ["1.5", "2", "7"], name: ["nM", "µM", "uM"]}
    (warning,) = profile_table(table(tmp_path, **units)).warnings
    assert "different units" in warning
    assert "nM, uM" in warning
    assert not profile_table(table(tmp_path, **units | {name: ["uM", "µM", "uM"]})).warnings


def test_a_column_of_relations_is_a_warning(tmp_path):
    columns = {"Standard Relation": ["'>'", "'='", "'='"], "Standard Value": ["10", "3.5", "4"]}
    (warning,) = profile_table(table(tmp_path, **columns)).warnings
    assert "'Standard Relation' has 1 relations" in warning


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["1,5", "1.5", "1,234", ">3", "", "-", "+", "yes", "no", "x", "45 %"]),
            st.text(alphabet="0123456789.,' -+eE><%~", max_size=8),
            st.floats(allow_nan=False).map(str),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_the_counts_of_a_profile_are_those_that_its_format_reads(scratch, values):
    found = profile_of(scratch, values)
    gaps = numbers = bad = bounds = 0
    for text in values:
        try:
            value, bound = found.format.read(text)
        except ValueError:
            bad += 1
        else:
            gaps, numbers = gaps + math.isnan(value), numbers + (not math.isnan(value))
            bounds += bound != 0
    if not found.problem:
        assert (found.gaps, found.numbers, found.bad) == (gaps, numbers, bad)
        assert found.censored >= bounds


def test_a_format_survives_json():
    made = ColumnFormat(",", ".", words=(("yes", 1), ("no", 0)), censored="loss")
    assert ColumnFormat.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"censored": "keep"}, "censored = 'keep', expected stop"), ({"decimal": "x"}, "'x' and ''")],
)
def test_a_wrong_format_is_refused_with_the_choices(fields, message):
    with pytest.raises(ValueError, match=message):
        ColumnFormat(**fields)


def test_a_bound_becomes_an_error_a_gap_or_its_value():
    with pytest.raises(CensoredError):
        ColumnFormat().label(">10")
    assert math.isnan(ColumnFormat(censored="drop").label(">10"))
    assert ColumnFormat(censored="value").label(">10") == 10
    assert ColumnFormat(censored="loss").label("<10") == 10


def test_bounds_and_columns_have_the_rows_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,a,b\nC,>1,2\n\nbad\nCC,3,<4\nCC,x,5\n")
    bounds = read_bounds(tmp_path / "a.csv", ["a", "b"], {})
    assert bounds.dtype == np.int8
    assert bounds.tolist() == [[1, 0], [0, 0], [0, -1], [0, 0]]
    assert read_column(tmp_path / "a.csv", "b") == ["2", "", "<4", "5"]
    profile = profile_table(tmp_path / "a.csv")
    assert (profile.rows, profile.broken, profile["a"].rows) == (4, 1, 3)


def test_the_number_of_texts_that_are_remembered_is_limited(tmp_path):
    found = profile_of(tmp_path, [f"w{k}" for k in range(12_000)])
    assert (found.many, len(found.words)) == (True, 1000)
    assert found.distinct < 12_000
