"""Models of texts keep their words: other data and texts are read as they were trained to read."""

import csv
import json
import re
import shutil
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.tiny_run import MODEL

import slicegraph
from slicegraph import models
from slicegraph.cli import main
from slicegraph.tasks import load_task, texts
from slicegraph.tasks.domain import analysis_samples
from slicegraph.train import TrainConfig, train


def write_reviews(folder, negative: str, positive: str, count: int = 30):
    """A folder like aclImdb; every text has a word of its own."""
    for split in ("train", "test"):
        for label, text in (("neg", negative), ("pos", positive)):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                path = folder / split / label / f"{number}_1.txt"
                path.write_text(f"{text} {folder.name}{number}")
    return folder


def settings(place, data: str, out: str, **others) -> TrainConfig:
    defaults = {
        "task": "imdb",
        "data": str(place / data),
        "root": str(place / "root"),
        "out": str(place / out),
        "model": {**MODEL, "max_length": 16},
        "batch_size": 8,
        "epochs": 10,
        "lr": 1e-2,
        "accelerator": "cpu",
        "threads": 1,
    }
    return TrainConfig(**(defaults | others))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two folders of reviews, in which the words have other numbers, and a run on the first."""
    place = tmp_path_factory.mktemp("reviews")
    write_reviews(place / "first", "Dull, dull, dull film", "Fine film")
    write_reviews(place / "second", "Dull film", "Fine, fine, fine film")
    train(settings(place, "first", "run"), progress=False)
    return place


def own_words(place, data: str) -> list[str]:
    return load_task("imdb", place / "root", place / data).store.meta["words"]


def texts_of(place, data: str) -> list[str]:
    folders = [place / data / "test" / label for label in ("neg", "pos")]
    return [path.read_text() for folder in folders for path in sorted(folder.iterdir())]


def tokens(text: str, words: list[str]) -> list[int]:
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [words.index(word if word in words else "<unk>") for word in found]


@torch.no_grad()
def classes(place, texts: list[str], words: list[str]) -> list[int]:
    """By the model of the run, of texts that are encoded here."""
    model = models.load(place / "run" / "model")
    return [int(model(torch.tensor([tokens(text, words)])).argmax()) for text in texts]


def predicted(path) -> list[int]:
    with open(path, newline="") as file:
        return [int(float(row["class_pred"])) for row in csv.DictReader(file)]


def evaluate(run, place, *words: str) -> int:
    return main(["evaluate", str(run), "--split", "test", "--root", str(place / "root"), *words])


@pytest.fixture
def wordless(place, tmp_path):
    """The run, with a model that was saved without its words."""
    shutil.copytree(place / "run", tmp_path / "wordless")
    path = tmp_path / "wordless" / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["words"]
    path.write_text(json.dumps(config))
    return tmp_path / "wordless"


def test_a_model_is_saved_with_the_words_of_its_training_split(place):
    for part in ("", "model", "checkpoints/best.ckpt"):
        words = slicegraph.load(place / "run" / part).config.words
        assert words == tuple(own_words(place, "first"))


def test_other_data_is_evaluated_in_the_words_of_the_model(place, tmp_path, capsys):
    out = tmp_path / "table.csv"
    assert evaluate(place / "run", place, "--data", str(place / "second"), "--out", str(out)) == 0
    texts = texts_of(place, "second")
    expected = classes(place, texts, own_words(place, "first"))
    assert predicted(out) == expected
    right = np.equal(expected, np.repeat([0, 1], len(texts) // 2)).mean()
    assert capsys.readouterr().out.startswith(f"test accuracy {right:.4g}\n")
    assert classes(place, texts, own_words(place, "second")) != expected


def test_the_models_own_data_is_evaluated_as_in_the_run_and_not_written_again(place, capsys):
    before = sorted((place / "root" / "tasks").iterdir())
    assert evaluate(place / "run", place) == 0
    score = json.loads((place / "run" / "metrics.json").read_text())["test"]
    assert capsys.readouterr().out == f"test accuracy {score:.4g}\n"
    assert sorted((place / "root" / "tasks").iterdir()) == before


def test_a_run_that_starts_from_a_model_goes_on_in_its_words(place, tmp_path):
    init = {"init": str(place / "run"), "lr": 1e-9, "epochs": 1}
    result = train(settings(place, "second", str(tmp_path / "tuned"), **init), progress=False)
    words = own_words(place, "first")
    assert slicegraph.load(result.folder).config.words == tuple(words)
    expected = classes(place, texts_of(place, "second"), words)
    assert predicted(result.folder / "predictions" / "test.csv") == expected


def test_a_model_is_analysed_in_its_words(place, tmp_path, monkeypatch):
    monkeypatch.setattr(texts, "_packaged", lambda task: [("Fine film", 1)] * 20)
    model = slicegraph.load(place / "run")
    model.save(tmp_path / "model")  # outside the run, whose own data are others
    named = {"model": str(tmp_path / "model"), "data": ["imdb"], "task": None}
    args = Namespace(**named, root=str(tmp_path), split="test", samples=2)
    ((x, _),) = analysis_samples({args.model: model}, args).batches()
    assert x.tolist() == [tokens("fine film", own_words(place, "first"))] * 2


def test_a_model_of_words_starts_no_run_of_other_tokens(place, tmp_path):
    config = settings(place, "first", str(tmp_path / "run"), init=str(place / "run"))
    config = replace(config, task="listops", data=None, examples=20)
    with pytest.raises(ValueError, match="reads words, and task 'listops' has none"):
        train(config, progress=False)


def test_a_model_without_words_is_not_evaluated_on_words(place, wordless, capsys):
    assert evaluate(wordless, place) == 2
    assert "with words = (), and imdb has words = ('<pad>', " in capsys.readouterr().err


def test_a_run_that_starts_from_a_model_without_words_says_what_is_not_known(
    place, wordless, tmp_path, capsys
):
    init = {"init": str(wordless), "epochs": 1}
    result = train(settings(place, "second", str(tmp_path / "tuned"), **init), progress=False)
    assert f"{wordless} was saved without its words" in capsys.readouterr().out
    assert slicegraph.load(result.folder).config.words == tuple(own_words(place, "second"))


def test_texts_are_predicted_by_the_words_of_the_model(place):
    model, words = slicegraph.load(place / "run"), own_words(place, "first")
    texts = ["A <br /> FINE film!", "dull unheard-of film"]
    expected = model.predict([tokens("a fine film", words), tokens("dull unheard of film", words)])
    np.testing.assert_allclose(model.predict(texts), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict(texts[0]), expected[:1], atol=1e-6)
    assert abs(expected[0] - expected[1]).max() > 1e-3
    with pytest.warns(UserWarning, match="1 of 1 sequences, the longest of 600, .* = 16 and"):
        found = model.predict(["fine " * 600])
    np.testing.assert_allclose(found, model.predict(["fine " * 16]), atol=1e-6)
