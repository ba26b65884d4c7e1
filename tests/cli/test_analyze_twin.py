"""`slicegraph analyze --twin`: two models of the same samples."""

import numpy as np
import pytest
from support.quick_analysis import make_analysis_quick, numbers
from support.small_models import save_model
from support.traced_models import image_model, sequence_model

from slicegraph.cli import main
from slicegraph.data.sequences.contents import join
from slicegraph.data.sequences.sequence_store import write_sequences

FINE, DULL = ("<pad>", "<unk>", "fine"), ("<pad>", "<unk>", "dull")


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_analysis_quick(monkeypatch)


def write_store(lengths, vocabulary: int = 16, words=()) -> None:
    """Tokens, a sequence of each of these lengths."""
    elements = [np.arange(length, dtype=np.uint8) % 16 for length in lengths]
    sequences = join(elements, np.zeros(len(lengths), np.int64))
    splits, classes = {"valid": len(lengths)}, list("0123456789")
    write_sequences("store", sequences, splits, classes, vocabulary, words=words)


@pytest.mark.parametrize(
    ("kind", "own", "other", "message"),
    [
        (
            sequence_model,
            {"vocabulary": 16},
            {"vocabulary": 256},
            "it is a model of sequences of bytes, and mine of sequences of 16 tokens",
        ),
        (
            sequence_model,
            {"vocabulary": 3, "words": FINE},
            {"vocabulary": 3, "words": DULL},
            "it is a model of sequences of other words, and mine of sequences of words",
        ),
        (
            sequence_model,
            {"vocabulary": None, "in_channels": 1},
            {"vocabulary": None, "in_channels": 3},
            "it is a model of sequences of vectors of 3, and mine of sequences of numbers",
        ),
        (
            sequence_model,
            {"towers": 1},
            {"towers": 2},
            "it is a model of pairs of sequences of 16 tokens, and mine of sequences of 16 tokens",
        ),
        (
            image_model,
            {"image_size": 8},
            {"image_size": 16},
            "it is a model of images of 1 x 16 x 16, and mine of images of 1 x 8 x 8",
        ),
    ],
)
def test_a_twin_that_reads_other_samples_is_refused(capsys, kind, own, other, message):
    kind("sort", **own).save("mine")
    kind("qkv", **other).save("other")
    assert main(["analyze", "mine", "--twin", "other", "--data", "store"]) == 2
    told = capsys.readouterr().err
    assert f"--twin other reads other samples: {message}; give a twin that was trained" in told


def test_a_twin_that_was_saved_without_its_words_is_taken():
    write_store([5, 6], vocabulary=300, words=FINE)
    sequence_model("sort", vocabulary=300, words=FINE).save("mine")
    sequence_model("qkv", vocabulary=300).save("other")
    for words in (["mine", "--twin", "other"], ["other", "--twin", "mine"]):
        assert main(["analyze", *words, "--data", "store"]) == 0


def test_a_twin_of_other_words_than_the_data_is_refused(capsys):
    write_store([5, 6], vocabulary=300, words=FINE)
    sequence_model("sort", vocabulary=300).save("mine")
    sequence_model("qkv", vocabulary=300, words=DULL).save("other")
    assert main(["analyze", "mine", "--twin", "other", "--data", "store"]) == 2
    message = "other is a model of sequences of words, and store has sequences of other words; "
    assert message in capsys.readouterr().err


def test_a_twin_of_other_features_of_atoms_is_refused_by_name(tmp_path, capsys):
    save_model(tmp_path / "mine")
    save_model(tmp_path / "other", node_vocabulary=(5, 5))
    assert main(["analyze", "mine", "--twin", "other", "--data", "CCO"]) == 2
    assert "error: other: the model reads atom features with" in capsys.readouterr().err


@pytest.mark.parametrize("shorter", ["mine", "other"])
def test_samples_are_cut_to_the_shorter_of_two_models(tmp_path, capsys, shorter):
    write_store([3, 70, 60, 61])
    for name, mixer in (("mine", "sort"), ("other", "qkv")):
        length = 30 if name == shorter else 60
        sequence_model(mixer, max_length=length, readout="mean").save(name)
    assert main(["analyze", "mine", "--twin", "other", "--data", "store"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "note    3 of 4 sequences, the longest of 70, are longer than max_length = 30 and are cut "
        f"after it; it is that of {shorter}, the smaller of the two models'"
    )
    assert numbers(tmp_path / "mine" / "analysis")["facts"]["rows of a sample"] == "3 to 30"
