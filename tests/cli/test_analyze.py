"""`slicegraph analyze`: models of every kind, twins, and mistakes."""

from pathlib import Path

import numpy as np
import pytest
from support.quick_analysis import make_analysis_quick, numbers
from support.small_models import save_model, small_model, write_checkpoint
from support.tiny_run import write_table
from support.traced_models import image_model, sequence_model

from slicegraph.analysis import Samples, measures
from slicegraph.cli import main
from slicegraph.tasks.generated import generate_listops
from slicegraph.tasks.store import join, write_sequences

SMILES = ["CCO", "c1ccccc1O", "CC(=O)NC"]
FINE, DULL = ("<pad>", "<unk>", "fine"), ("<pad>", "<unk>", "dull")


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_analysis_quick(monkeypatch)


@pytest.fixture
def molecules(tmp_path) -> Path:
    return save_model(tmp_path / "mine", mixer="sort_attn")


@pytest.fixture
def listops(tmp_path) -> Path:
    sequences = generate_listops(10, min_length=2, max_length=50)
    splits = {"train": 6, "valid": 4}
    write_sequences(tmp_path / "lists", sequences, splits, list("0123456789"), vocabulary=16)
    return tmp_path / "lists"


def test_smiles_are_analysed_and_the_ranks_printed(molecules, capsys):
    assert main(["analyze", str(molecules), "--data", *SMILES]) == 0
    head, *rows, page, file = capsys.readouterr().out.splitlines()
    told = numbers(molecules / "analysis")
    columns = [column.strip() for column in head.split("  ")]
    assert columns == ["layer", "mine rank", "mine first share", "mine block rank"]
    ranks = [layer["mixed"]["effective_rank"] for layer in told["models"][0]["layers"]]
    assert [row.split()[:2] for row in rows] == [
        *([str(number), f"{rank:.3f}"] for number, rank in enumerate(ranks, start=1)),
        ["mean", f"{sum(ranks) / len(ranks):.3f}"],
    ]
    assert page == f"page    {molecules / 'analysis' / 'analysis.html'}"
    assert file == f"numbers {molecules / 'analysis' / 'analysis.json'}"
    assert told["facts"]["samples"] == 3


def test_twin_is_shown_next_to_it(tmp_path, molecules):
    twin = save_model(tmp_path / "twin", mixer="qkv")
    out = tmp_path / "look"
    command = ["analyze", str(molecules), "--twin", str(twin), "--data", *SMILES, "--out", str(out)]
    assert main([*command, "--layer", "2", "--channel", "3", "--sample", "1"]) == 0
    told = numbers(out)
    assert [model["mixer"] for model in told["models"]] == ["sort_attn ascending", "qkv"]
    chosen = {name: told["permutation"][name] for name in ("layer", "channel", "sample")}
    assert chosen == {"layer": 2, "channel": 3, "sample": 1}
    assert len(told["permutation"]["sources"]) == 7  # the atoms of phenol


def test_models_of_one_name_are_told_apart_by_their_mixers(tmp_path, molecules):
    twin = save_model(tmp_path / "other" / "mine", mixer="attn")
    assert main(["analyze", str(molecules), "--twin", str(twin), "--data", "CCO"]) == 0
    names = [model["name"] for model in numbers(molecules / "analysis")["models"]]
    assert names == ["mine sort_attn", "mine attn"]


def test_the_preset_of_molecules_has_a_permutation(tmp_path):
    model = save_model(tmp_path / "mine", preset="mini")
    assert main(["analyze", str(model), "--data", *SMILES, "--layer", "2", "--sample", "1"]) == 0
    told = numbers(model / "analysis")
    assert told["models"][0]["mixer"] == "quantile_attn"
    assert sorted(told["permutation"]["sources"]) == list(range(7))  # the atoms of phenol


def test_a_model_is_not_its_own_twin(molecules, capsys):
    command = ["analyze", str(molecules), "--twin", str(molecules), "--data", "CCO"]
    assert main(command) == 2
    assert "has the name and the mixer of" in capsys.readouterr().err


def test_checkpoint_of_a_run_is_analysed_under_the_name_of_the_run(tmp_path):
    file = write_checkpoint(tmp_path / "run" / "checkpoints" / "best.ckpt", small_model())
    out = tmp_path / "look"
    assert main(["analyze", str(file), "--data", "CCO", "--out", str(out)]) == 0
    assert numbers(out)["models"][0]["name"] == "run"


def test_split_of_a_file_is_analysed(tmp_path):
    table = write_table(tmp_path / "t.csv")
    model = save_model(tmp_path / "m", target_names=("gap",))
    options = ["--root", str(tmp_path / "dataset"), "--split", "train", "--samples", "5"]
    assert main(["analyze", str(model), "--data", f"csv:{table}", *options]) == 0
    facts = numbers(model / "analysis")["facts"]
    assert (facts["samples"], facts["data"]) == (5, f"csv:{table}, train")


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
def test_sequences_of_a_folder_are_analysed(tmp_path, listops, mixer):
    sequence_model(mixer).save(tmp_path / "model")
    assert main(["analyze", str(tmp_path), "--data", str(listops), "--samples", "3"]) == 0
    told = numbers(tmp_path / "analysis")
    assert told["facts"]["samples"] == 3
    assert told["facts"]["model"] == "SequenceSliceformer"
    assert (told["permutation"] is None) == (mixer == "qkv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "mimi"], "--data 'mimi' is neither a data set"),
        (["--data", "CCO", "C("], "--data 'C(' is neither a data set"),
        (["--data", "CCO", "--layer", "3"], "mine has no layer 3, they are 1..2"),
        (["--data", "CCO", "--channel", "16"], "there is no channel 16, they are 0..15"),
        (["--data", "CCO", "--sample", "1"], "there is no sample 1, they are 0..0"),
        (["--data", "CCO", "--samples", "0"], "--samples 0, expected at least 1"),
        (["--data", "csv:nowhere.csv"], "nowhere.csv"),
        (["--data", "CCO", "--twin", "nowhere"], "there is no model in nowhere"),
    ],
)
def test_mistake_is_named_and_nothing_written(molecules, capsys, options, message):
    assert main(["analyze", str(molecules), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (molecules / "analysis").exists()


def test_data_is_required_for_a_model_outside_a_run(molecules, capsys):
    assert main(["analyze", str(molecules)]) == 2
    told = capsys.readouterr().err
    assert "--data is missing: " in told
    assert "mine is not in the folder of a run" in told


def test_layer_of_a_model_that_does_not_sort_is_refused(tmp_path, capsys):
    model = save_model(tmp_path / "graphormer", mixer="qkv")
    assert main(["analyze", str(model), "--data", "CCO", "--channel", "0"]) == 2
    told = capsys.readouterr().err
    assert "--channel: graphormer has no layers that sort (its mixer is qkv)" in told


def test_twin_of_another_kind_is_refused(tmp_path, molecules, capsys):
    sequence_model().save(tmp_path / "words")
    twin = ["--twin", str(tmp_path / "words")]
    assert main(["analyze", str(molecules), *twin, "--data", "CCO"]) == 2
    told = capsys.readouterr().err
    assert "words is a model of sequences of tokens or numbers, and " in told
    assert "mine of molecules; give a twin that was trained on the same data" in told


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["nowhere"], "--data nowhere is neither a task (listops, "),
        (["lists", "lists"], "only SMILES can be several"),
        (["lists", "--split", "test"], "has no split 'test', expected train, valid"),
    ],
)
def test_mistake_with_sequences_is_named(tmp_path, listops, monkeypatch, capsys, data, message):
    monkeypatch.chdir(tmp_path)
    sequence_model().save("words")
    assert main(["analyze", "words", "--data", *data]) == 2
    assert message in capsys.readouterr().err


def test_sequences_are_cut_to_the_length_of_the_model(tmp_path, listops):
    sequence_model(max_length=3, readout="mean").save(tmp_path / "words")
    assert main(["analyze", str(tmp_path / "words"), "--data", str(listops)]) == 0
    assert numbers(tmp_path / "words" / "analysis")["facts"]["rows of a sample"] == "3"


def test_images_of_a_task_by_name_are_analysed_with_a_twin(tmp_path):
    for mixer in ("sort", "qkv"):
        image_model(mixer).save(tmp_path / mixer)
    twin = ["--twin", str(tmp_path / "qkv"), "--root", str(tmp_path / "dataset")]
    assert main(["analyze", str(tmp_path / "sort"), *twin, "--data", "digits"]) == 0
    facts = numbers(tmp_path / "sort" / "analysis")["facts"]
    assert (facts["model"], facts["rows of a sample"]) == ("VisionSliceformer", "17")


def test_the_spectra_of_a_twin_are_printed_layer_by_layer(tmp_path, capsys):
    image_model("sort", num_layers=2).save(tmp_path / "mine")
    image_model("qkv", num_layers=1).save(tmp_path / "other")
    twin = ["--twin", str(tmp_path / "other"), "--root", str(tmp_path / "dataset")]
    assert main(["analyze", str(tmp_path / "mine"), *twin, "--data", "digits"]) == 0
    head, *rows, last, _, _ = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert head.split() == ["layer", "model", "rank", "s2/s1", "s4/s1", "s8/s1", "s16/s1", "area"]
    told = {
        model["name"]: model["layers"]
        for model in numbers(tmp_path / "mine" / "analysis")["models"]
    }
    assert [row.split()[:2] for row in rows] == [["1", "mine"], ["1", "other"], ["2", "mine"]]
    for number, name, *values in map(str.split, rows):
        layer = told[name][int(number) - 1]["mixed"]
        shown = [layer["spectrum"][k - 1] for k in (2, 4, 8, 16)]
        expected = [layer["effective_rank"], *shown, sum(layer["spectrum"])]
        assert [float(value) for value in values] == pytest.approx(expected, rel=5e-3)
    slower = sum(told["mine"][0]["mixed"]["spectrum"]) > sum(told["other"][0]["mixed"]["spectrum"])
    said = "the spectrum of mine decays more slowly than that of other in"
    assert last.startswith(f"{said} {int(slower)} of 1 layers, by the area")


def test_samples_that_the_model_cannot_read_are_refused(tmp_path, listops, capsys):
    sequence_model(vocabulary=3).save(tmp_path / "words")
    assert main(["analyze", str(tmp_path / "words"), "--data", str(listops)]) == 2
    message = "tokens or numbers with vocabulary = 3, and lists has vocabulary = 16; name data"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (16_384, [[0], [1], [2]]),
        (8_000, [[0, 1], [2]]),
        (20, [[0, 1, 2]]),
    ],
)
def test_long_samples_go_one_at_a_time_and_short_ones_together(size, expected):
    samples = Samples(lambda numbers: (numbers.tolist(),), np.array([3, size, 5]), "some")
    assert [inputs[0] for inputs in samples.batches()] == expected


def test_the_size_of_the_batches_does_not_change_the_numbers(molecules, monkeypatch):
    told = []
    for most in (1, 1000):
        monkeypatch.setattr(measures, "_MAX_ELEMENTS", most)
        assert main(["analyze", str(molecules), "--data", *SMILES, "--sample", "2"]) == 0
        told.append(numbers(molecules / "analysis"))
    one, other = told
    assert (one["permutation"], one["facts"]) == (other["permutation"], other["facts"])
    layers = zip(*(each["models"][0]["layers"] for each in told), strict=True)
    for first, second in layers:
        assert first["mixed"]["spectrum"] == pytest.approx(second["mixed"]["spectrum"], abs=1e-5)


def write_store(lengths, vocabulary: int = 16, words=()) -> None:
    """Tokens, a sequence of each of these lengths."""
    elements = [np.arange(length, dtype=np.uint8) % 16 for length in lengths]
    sequences = join(elements, np.zeros(len(lengths), np.int64))
    splits, classes = {"valid": len(lengths)}, list("0123456789")
    write_sequences("store", sequences, splits, classes, vocabulary=vocabulary, words=words)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"vocabulary": 256}, "with vocabulary = 256, and store has vocabulary = 300"),
        ({"words": DULL}, f"with words = {DULL}, and store has words = {FINE}"),
        ({"vocabulary": None, "in_channels": 3, "words": ()}, "with in_channels = 3, and store"),
        ({"towers": 2}, "with towers = 2, and store has towers = 1"),
    ],
)
def test_a_twin_that_reads_other_samples_is_refused(capsys, other, message):
    write_store([5, 6], vocabulary=300, words=FINE)
    fields = {"vocabulary": 300, "words": FINE}
    sequence_model("sort", **fields).save("mine")
    sequence_model("qkv", **(fields | other)).save("other")
    assert main(["analyze", "mine", "--twin", "other", "--data", "store"]) == 2
    told = capsys.readouterr().err
    assert "error: other is a model of " in told
    assert message in told


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
        f"after it; this is the max_length of {shorter}, the smaller of the two"
    )
    assert numbers(tmp_path / "mine" / "analysis")["facts"]["rows of a sample"] == "3 to 30"
