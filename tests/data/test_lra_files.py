"""The official files of the Long Range Arena, from small ones of the same layout."""

import numpy as np
import pytest

from slicegraph.data.sequences.listops import decode
from slicegraph.data.sequences.lra_files import (
    count_lines,
    list_pathfinder,
    read_aan,
    read_imdb,
    read_listops,
    read_pathfinder,
)

Image = pytest.importorskip("PIL.Image")


def texts(sequences) -> list[bytes]:
    return [one.tobytes() for one in sequences]


def write_table(folder, text):
    """The table of pictures of a Pathfinder folder."""
    (folder / "metadata").mkdir()
    (folder / "metadata" / "0.npy").write_text(text)


def test_listops(tmp_path):
    path = tmp_path / "basic_train.tsv"
    path.write_text(
        "Source\tTarget\n( ( ( [MAX 3 ) ( ( ( [SM 4 ) 8 ) ] ) ) ] )\t3\n( ( ( [MED 9 ) 7 ) ] )\t8\n"
    )
    listops = read_listops(path)
    assert [decode(one) for one in listops] == ["[MAX 3 [SM 4 8 ] ]", "[MED 9 7 ]"]
    assert listops.labels.tolist() == [3, 8]


def test_a_line_that_is_no_expression_is_named(tmp_path):
    path = tmp_path / "basic_train.tsv"
    path.write_text("Source\tTarget\n( ( [AVG 3 ) ] )\t3\n")
    with pytest.raises(ValueError, match=r"basic_train\.tsv line 2: unknown word '\[AVG'"):
        read_listops(path)
    path.write_text("[MAX 3 4 ] 4\n")
    with pytest.raises(ValueError, match="line 1: 1 fields between tabs, expected 2"):
        read_listops(path)
    path.write_text("[MAX 3 4 ]\tfour\n")
    with pytest.raises(ValueError, match="line 1: 'four' is no label"):
        read_listops(path)


@pytest.mark.parametrize(
    "text",
    [
        *("", "( )", "[MAX 3 4", "[MAX 3 4 ] ]", "[MAX ]", "[MAX 3 [MIN ] ]", "]", "] [MAX 3"),
        *("3 4", "[MAX 3 4 ] [MIN 1 2 ]", "[MAX 3 4 ] 5", "5 [MAX 3 4 ]"),
    ],
)
def test_what_is_not_one_whole_expression_is_named(tmp_path, text):
    path = tmp_path / "basic_train.tsv"
    path.write_text(f"Source\tTarget\n[MAX 3 4 ]\t4\n{text}\t3\n")
    with pytest.raises(ValueError, match=r"basic_train\.tsv line 3: '.*' is no expression"):
        read_listops(path)


def test_a_digit_is_an_expression(tmp_path):
    (tmp_path / "basic_train.tsv").write_text("7\t7\n")
    assert [decode(one) for one in read_listops(tmp_path / "basic_train.tsv")] == ["7"]


@pytest.mark.parametrize("label", ["10", "-1", "255", "1.5", "nan", "inf"])
def test_a_value_that_is_no_digit_is_named(tmp_path, label):
    path = tmp_path / "basic_train.tsv"
    path.write_text(f"[MAX 3 4 ]\t4\n[MAX 3 4 ]\t{label}\n")
    message = rf"basic_train\.tsv line 2: '{label}' is no label, expected 0 to 9"
    with pytest.raises(ValueError, match=message):
        read_listops(path)


def test_a_label_of_a_pair_or_of_a_picture_is_0_or_1(tmp_path):
    pairs = tmp_path / "new_aan_pairs.train.tsv"
    pairs.write_text("1\ta\tb\tc\td\n2\ta\tb\tc\td\n")
    with pytest.raises(ValueError, match=r"train\.tsv line 2: '2' is no label, expected 0 to 1"):
        read_aan(pairs)
    write_table(tmp_path, "imgs a.png 0 1\nimgs b.png 1 2\n")
    with pytest.raises(ValueError, match=r"0\.npy line 2: '2' is no label, expected 0 to 1"):
        list_pathfinder(tmp_path)


def test_a_table_of_pathfinder_without_a_row_is_named(tmp_path):
    write_table(tmp_path, "\n")
    with pytest.raises(ValueError, match=r"0\.npy lists no picture"):
        list_pathfinder(tmp_path)


def test_aan_pairs_are_bytes(tmp_path):
    path = tmp_path / "new_aan_pairs.train.tsv"
    path.write_bytes(
        b'1.0\tP1\tP2\tna\xc3\xafve "text"\tother\n0.0\tP3\tP4\t' + b"a" * 5000 + b"\t\xff\n"
    )
    pairs = read_aan(path)
    assert texts(pairs) == [b'na\xc3\xafve "text"', b"other", b"a" * 5000, b"\xff"]
    assert pairs.labels.tolist() == [1, 0]


def test_an_empty_text_of_a_pair_is_a_space(tmp_path):
    path = tmp_path / "new_aan_pairs.train.tsv"
    path.write_text("1\ta\tb\t\tsecond\n0\ta\tb\tfirst\t\n")
    assert texts(read_aan(path)) == [b" ", b"second", b"first", b" "]


def test_imdb_reviews_are_bytes(tmp_path):
    for name, reviews in {"pos": ["good" * 2000], "neg": ["bad", ""]}.items():
        (tmp_path / name).mkdir()
        for i, text in enumerate(reviews):
            (tmp_path / name / f"{i}_1.txt").write_text(text)
    reviews = read_imdb(tmp_path)
    assert texts(reviews) == [b"bad", b" ", b"good" * 2000]
    assert reviews.labels.tolist() == [0, 0, 1]


def test_pathfinder_pictures_are_pixels(tmp_path):
    images = np.arange(2 * 16, dtype=np.uint8).reshape(2, 4, 4)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "imgs" / "0").mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "imgs" / "0" / f"sample_{i}.png")
    lines = [f"imgs/0 sample_{i}.png {i} {1 - i} 1.8 6" for i in range(2)]
    (tmp_path / "metadata" / "0.npy").write_text("\n".join(lines) + "\n")
    pathfinder = read_pathfinder(tmp_path)
    assert np.array_equal(pathfinder.elements, images.ravel())
    assert pathfinder.lengths.tolist() == [16, 16]
    assert pathfinder.labels.tolist() == [1, 0]


ROWS = [["imgs/0", "sample_0.png", "0", "1", "1.8"], ["imgs/1", "sample 1.png", "1", "0", "1.8"]]


@pytest.mark.parametrize("kind", ["U", "S"])
def test_the_table_of_pathfinder_may_be_an_array_of_texts(tmp_path, kind):
    (tmp_path / "metadata").mkdir()
    np.save(tmp_path / "metadata" / "0.npy", np.array(ROWS).astype(kind))
    assert list_pathfinder(tmp_path) == [
        (tmp_path / "imgs" / "0" / "sample_0.png", 1),
        (tmp_path / "imgs" / "1" / "sample 1.png", 0),
    ]


def test_the_table_of_pathfinder_may_be_an_array_of_lines(tmp_path):
    (tmp_path / "metadata").mkdir()
    np.save(tmp_path / "metadata" / "0.npy", np.array([" ".join(ROWS[0])]))
    assert list_pathfinder(tmp_path) == [(tmp_path / "imgs" / "0" / "sample_0.png", 1)]


def test_a_table_of_pathfinder_that_is_neither_is_named(tmp_path):
    path = tmp_path / "metadata" / "0.npy"
    path.parent.mkdir()
    message = r"0\.npy is neither lines of text nor rows of texts"
    for array in (np.zeros((2, 4)), np.array(ROWS, object), np.array("a b c 1")):
        np.save(path, array, allow_pickle=True)
        with pytest.raises(ValueError, match=message):
            list_pathfinder(tmp_path)
    np.save(path, np.array(ROWS))
    for content in (b"\xff\xfe\x00", path.read_bytes()[:-9], path.read_bytes()[:20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            list_pathfinder(tmp_path)


def test_a_row_of_pathfinder_without_a_label_is_named(tmp_path):
    write_table(tmp_path, "imgs a.png 0 1\n\nimgs b.png 1\n\n")
    with pytest.raises(ValueError, match=r"0\.npy line 2: \[\] names no picture"):
        list_pathfinder(tmp_path)


def test_blank_lines_at_the_end_are_skipped_and_those_between_are_not(tmp_path):
    path = tmp_path / "basic_test.tsv"
    path.write_text("Source\tTarget\n[MAX 3 4 ]\t4\n\r\n  \n\n")
    assert read_listops(path).labels.tolist() == [4]
    assert count_lines(path) == 2
    path.write_text("[MAX 3 4 ]\t4\n\n[MAX 3 5 ]\t5\n")
    with pytest.raises(ValueError, match=r"basic_test\.tsv line 2: 1 fields between tabs"):
        read_listops(path)
    path.write_text("[MAX 3 4 ]\t4\n\t\n")
    with pytest.raises(ValueError, match=r"basic_test\.tsv line 2: '' is no label"):
        read_listops(path)


@pytest.mark.parametrize("read", [read_imdb, read_pathfinder])
def test_a_folder_without_the_files_is_named(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"has no (neg|metadata)"):
        read(tmp_path)
