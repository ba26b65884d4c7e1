"""`slicegraph analyze`: which samples it looks at, and whether they fit the model."""

from pathlib import Path

import numpy as np
import pytest
from support.quick_analysis import make_analysis_quick, numbers
from support.small_models import save_model, small_model, write_checkpoint
from support.stripes import write_stripes
from support.task_files import write_reviews
from support.tiny_run import write_table
from support.traced_models import image_model, sequence_model

from slicegraph.cli import main
from slicegraph.tasks.store import SequenceStore, join, write_sequences
from slicegraph.train import TrainConfig

WORDS = ("<pad>", "<unk>", "fine")
MODELS = {
    "images of 1 x 8 x 8": image_model,
    "sequences of 16 tokens": sequence_model,
    "sequences of bytes": lambda: sequence_model(vocabulary=256),
    "sequences of words": lambda: sequence_model(vocabulary=300, words=WORDS),
    "sequences of numbers": lambda: sequence_model(vocabulary=None, in_channels=1),
    "pairs of sequences of 16 tokens": lambda: sequence_model(towers=2),
}
STORES = {
    "images of 1 x 8 x 8": {"vocabulary": 256, "shape": (1, 8, 8)},
    "sequences of 16 tokens": {"vocabulary": 16},
    "sequences of bytes": {"vocabulary": 256},
    "sequences of words": {"vocabulary": 300, "words": WORDS},
    "sequences of numbers": {"vocabulary": None},
    "pairs of sequences of 16 tokens": {"vocabulary": 16, "towers": 2},
}


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_analysis_quick(monkeypatch)


def write_store(kind: str, **others) -> None:
    """Four samples of 64 elements of zero."""
    options = STORES[kind] | others
    dtype = np.float32 if options["vocabulary"] is None else np.uint8
    count = 4 * options.get("towers", 1)
    sequences = join([np.zeros(64, dtype)] * count, np.zeros(4, np.int64))
    write_sequences("store", sequences, {"valid": 4}, list("0123456789"), **options)


def make_run(model, /, **settings) -> None:
    """The folder of a run, as far as the settings and the model go."""
    model.save("run/model")
    Path("run/config.yaml").write_text(TrainConfig(**settings).resolved().to_yaml())


def facts(place: str = "run") -> dict:
    return numbers(Path(place) / "analysis")["facts"]


@pytest.mark.parametrize(
    ("own", "theirs"),
    [*zip(MODELS, STORES, strict=True), *zip(MODELS, [*STORES][1:] + [*STORES][:1], strict=True)],
)
def test_a_model_takes_data_of_its_kind_and_no_other(capsys, own, theirs):
    MODELS[own]().save("model")
    write_store(theirs)
    status = main(["analyze", "model", "--data", "store"])
    told = capsys.readouterr().err
    assert status == (0 if own == theirs else 2), told
    if own != theirs:
        assert "error: model is a model of " in told
        assert "; name data that it takes with --data" in told


def test_a_model_of_words_is_not_analysed_on_bytes(capsys):
    write_reviews(Path("reviews"), 10)
    sequence_model(vocabulary=300, words=WORDS).save("model")
    assert main(["analyze", "model", "--task", "text", "--data", "reviews"]) == 2
    told = capsys.readouterr().err
    assert "model of texts with vocabulary = 300, and reviews has vocabulary = 256; " in told


@pytest.mark.parametrize("kind", ["graph", "image"])
def test_a_task_that_there_is_not_is_refused_with_those_that_there_are(capsys, kind):
    save_model(Path("model")) if kind == "graph" else image_model().save("model")
    assert main(["analyze", "model", "--task", "bogus"]) == 2
    assert "there is no task 'bogus'; there are listops, text, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "words", "message"),
    [
        ("image", ["--data", "mini"], "is a model of images, and mini has molecules"),
        ("image", ["--data", "csv:x"], "is a model of images, and csv:x has molecules"),
        ("image", ["--data", "csv:x", "--task", "images"], "and csv:x has molecules"),
        ("graph", ["--data", "digits"], "is a model of molecules, and digits is a task of"),
        ("graph", ["--task", "images", "--data", "x"], "and images is a task of"),
    ],
)
def test_molecules_and_tasks_are_kept_apart(capsys, model, words, message):
    save_model(Path("model")) if model == "graph" else image_model().save("model")
    assert main(["analyze", "model", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("turned", [False, True])
def test_a_checkpoint_is_the_twin_of_the_folder_of_a_run(turned):
    image_model("sort").save("mine/model")
    write_checkpoint(Path("other/checkpoints/best.ckpt"), image_model("qkv"))
    write_store("images of 1 x 8 x 8")
    first, twin = sorted(["mine", "other/checkpoints/best.ckpt"], reverse=turned)
    assert main(["analyze", first, "--twin", twin, "--data", "store", "--out", "analysis"]) == 0
    assert facts(".")["model"] == "VisionSliceformer"


@pytest.mark.parametrize("words", [[], ["--data", "listops"]])
def test_a_generated_task_has_as_many_examples_as_in_the_run(capsys, words):
    make_run(sequence_model(max_length=600), task="listops", examples=40)
    assert main(["analyze", "run", *words]) == 0
    (folder,) = Path("dataset/tasks").iterdir()
    assert len(SequenceStore(folder)) == 40
    assert (facts()["data"], facts()["samples"]) == ("listops, valid", 4)


def test_the_number_of_sequences_that_are_cut_is_printed(capsys):
    lengths = [3, 70, 60, 61, 64]
    sequences = join([np.ones(length, np.uint8) for length in lengths], np.zeros(5, np.int64))
    write_sequences("store", sequences, {"train": 1, "valid": 4}, list("0123456789"), vocabulary=16)
    sequence_model(max_length=60).save("model")
    assert main(["analyze", "model", "--data", "store"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "note    3 of 4 sequences, the longest of 70, are longer than max_length = 60 and are cut "
        "after it"
    )
    assert main(["analyze", "model", "--data", "store", "--split", "train"]) == 0
    assert "note" not in capsys.readouterr().out


def test_a_sample_of_pairs_is_a_pair(capsys):
    elements = [np.arange(length, dtype=np.uint8) for length in (5, 9, 7, 11)]
    sequences = join(elements, np.zeros(2, np.int64))
    write_sequences("store", sequences, {"valid": 2}, list("0123456789"), vocabulary=16, towers=2)
    sequence_model(towers=2, readout="mean").save("model")
    assert main(["analyze", "model", "--data", "store", "--sample", "1"]) == 0
    assert len(numbers(Path("model/analysis"))["permutation"]["sources"]) == 7
    found = facts("model")
    assert (found["samples"], found["rows of a text"]) == (2, "5 to 11")
    assert main(["analyze", "model", "--data", "store", "--sample", "2"]) == 2
    assert "there is no sample 2, they are 0..1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "words"),
    [("run", []), ("run", ["--data", "images"]), ("run/model", ["--data", "pictures"])],
)
def test_pictures_of_the_run_are_analysed_at_the_size_of_the_model(place, words):
    write_stripes(Path("pictures"))
    model = {"image_size": 16, "patch_size": 4}
    make_run(image_model(**model, image_channels=3), task="images", data="pictures", model=model)
    assert main(["analyze", place, *words]) == 0
    found = facts(place)
    assert (found["data"], found["samples"]) == ("pictures, valid", 6)
    (folder,) = Path("dataset/tasks").iterdir()
    assert SequenceStore(folder).shape == (3, 16, 16)


def test_a_folder_of_pictures_takes_the_place_of_those_of_the_run():
    write_stripes(Path("pictures"))
    write_stripes(Path("others"), 50)
    model = {"image_size": 8, "patch_size": 2}
    make_run(image_model(**model, image_channels=3), task="images", data="pictures", model=model)
    assert main(["analyze", "run", "--data", "others"]) == 0
    assert (facts()["data"], facts()["samples"]) == ("others, valid", 10)


def test_the_task_of_a_folder_is_named_for_a_model_outside_a_run(capsys):
    write_stripes(Path("pictures"))
    image_model(image_channels=3).save("model")
    assert main(["analyze", "model", "--data", "pictures"]) == 2
    told = capsys.readouterr().err
    assert "--data pictures is of no known task: model is not in the folder of a run" in told
    assert main(["analyze", "model", "--data", "pictures", "--task", "images"]) == 0
    assert facts("model")["data"] == "pictures, valid"


@pytest.mark.parametrize("task", ["image", "retrieval"])
def test_a_task_without_data_asks_for_its_folder(capsys, task):
    image_model().save("model")
    assert main(["analyze", "model", "--data", task]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"slicegraph: error: task {task!r} has no data of its own; name ")
    assert told.endswith(f" with --data and --task {task}\n")


def test_molecules_of_the_run_are_analysed_without_data():
    table = write_table(Path("table.csv"))
    fractions = (0.5, 0.4, 0.1)
    make_run(small_model(target_names=("gap",)), data=f"csv:{table}", fractions=fractions)
    assert main(["analyze", "run"]) == 0
    assert (facts()["data"], facts()["samples"]) == ("csv:table.csv, valid", 16)
