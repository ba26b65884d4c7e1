"""`predict` of sequences and images: what it is given is taken as it is meant, or refused."""

import re

import numpy as np
import pytest
import torch
from support.tiny_run import MODEL

from slicegraph.models import SequenceSliceformerConfig, VisionSliceformerConfig
from slicegraph.tasks.predictor import SequencePredictor, VisionPredictor
from slicegraph.tasks.store import SequenceSet, join, write_sequences

PIXELS = "expected integers from 0 to 255 or numbers from 0 to 1"


def images() -> VisionPredictor:
    torch.manual_seed(0)
    config = {"image_size": 8, "patch_size": 4, "image_channels": 1, "num_classes": 3}
    return VisionPredictor(VisionSliceformerConfig(**MODEL, **config))


def sequences(**fields) -> SequencePredictor:
    torch.manual_seed(0)
    return SequencePredictor(SequenceSliceformerConfig(**MODEL, **fields))


def with_value(value, dtype) -> np.ndarray:
    """Three images that are dark but for one pixel of the last."""
    pixels = np.zeros((3, 8, 8), dtype)
    pixels[2, 1, 5] = value
    return pixels


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (with_value(256, np.int64), rf"images\[2\] has 256, {PIXELS}"),
        (with_value(-1, np.int8), rf"images\[2\] has -1, {PIXELS}"),
        (with_value(1.5, np.float32), rf"images\[2\] has 1\.5, {PIXELS}"),
        (with_value(-0.5, np.float64), rf"images\[2\] has -0\.5, {PIXELS}"),
        (with_value(np.nan, np.float64), rf"images\[2\] has nan, {PIXELS}"),
        (with_value(np.inf, np.float16), rf"images\[2\] has inf, {PIXELS}"),
        (["CCO"], rf"images\[0\] has 'CCO', {PIXELS}"),
        ("CCO", rf"images\[0\] has 'CCO', {PIXELS}"),
        ([None], rf"images\[0\] has None, {PIXELS}"),
        (0.5, r"shape \[1\], expected \[B, 1, 8, 8\]"),
    ],
)
def test_what_is_no_image_is_refused_by_its_number(given, message):
    with pytest.raises(ValueError, match=message):
        images().predict(given)


def test_images_of_integers_and_of_numbers_from_0_to_1_are_the_same_ones():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    pixels[0, 0, :2] = 0, 255
    model = images()
    expected = model(torch.from_numpy(pixels / 255)[:, None].float()).softmax(-1).detach()
    for given in (pixels, pixels.astype(np.int64).tolist(), pixels / 255):
        np.testing.assert_allclose(model.predict(given), expected, atol=1e-6)


@pytest.mark.parametrize("given", [[], np.zeros((0, 8, 8)), np.zeros((0, 1, 8, 8), np.uint8)])
def test_no_images_have_no_predictions(given):
    assert images().predict(given).shape == (0, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_a_series_with_a_number_that_is_not_finite_is_refused_by_its_number(value):
    series = np.zeros((2, 90))
    series[1, 70] = value
    message = re.escape(f"sequences[1] has {value}, expected finite numbers")
    with pytest.raises(ValueError, match=message):
        sequences(vocabulary=None, in_channels=1).predict(series)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (("ab", "cd", "ef"), r"\('ab', 'cd', 'ef'\)"),
        (("ab",), r"\('ab',\)"),
        ((), r"\(\)"),
        (7, "7"),
        (np.zeros((3, 4), np.int64), "array"),
    ],
)
def test_a_sample_that_is_no_pair_is_refused_by_its_number(sample, said):
    with pytest.raises(ValueError, match=rf"sequences\[1\] = {said}(.|\n)*, expected a pair"):
        sequences(towers=2).predict([("x", "y"), sample])


def test_a_series_of_one_channel_may_be_a_column_or_not():
    model, series = sequences(vocabulary=None, in_channels=1), np.linspace(0, 1, 6)
    mixed = model.predict([series, series[:, None]])
    np.testing.assert_array_equal(mixed[0], mixed[1])


def test_large_images_are_predicted_together(monkeypatch):
    model = VisionPredictor(VisionSliceformerConfig(**MODEL, num_classes=3))
    sizes = []
    monkeypatch.setattr(model, "forward", lambda x: sizes.append(len(x)) or torch.zeros(len(x), 3))
    model.predict(np.zeros((8, 3, 224, 224), np.uint8), batch_size=4)
    assert sizes == [4, 4]


def test_samples_of_a_set_are_batched_by_what_is_read_of_them(tmp_path, monkeypatch):
    parts = [np.zeros(1 << 17, np.uint8)] * 4
    store = write_sequences(tmp_path, join(parts, [0, 1, 0, 1]), {"test": 4}, ["a", "b"])
    model, sizes = sequences(max_length=16), []
    whole = model.forward
    monkeypatch.setattr(model, "forward", lambda x, mask: sizes.append(len(x)) or whole(x, mask))
    model.predict_set(SequenceSet("text", store), np.arange(4))
    assert sizes == [4]


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
def test_empty_samples_of_a_set_are_predicted_as_among_others(tmp_path, mixer):
    parts = [np.zeros(0, np.uint8), np.arange(5, dtype=np.uint8), np.zeros(0, np.uint8)]
    store = write_sequences(tmp_path, join(parts, [0, 1, 0]), {"test": 3}, ["a", "b"])
    model, dataset = sequences(mixer=mixer), SequenceSet("text", store)
    together = model.predict_set(dataset, np.arange(3))
    alone = model.predict_set(dataset, np.arange(3), batch_size=1)
    np.testing.assert_allclose(alone, together, atol=1e-6)
    np.testing.assert_allclose(model.predict_set(dataset, np.array([2, 0])), together[[2, 0]])


def test_pairs_may_be_an_array_an_iterator_or_texts():
    model, pairs = sequences(towers=2), np.arange(24).reshape(3, 2, 4)
    expected = model.predict([(list(a), list(b)) for a, b in pairs])
    for given in (pairs, zip(pairs[:, 0], pairs[:, 1], strict=True)):
        np.testing.assert_array_equal(model.predict(given), expected)
    expected = model.predict([(list(b"one"), list(b" "))])
    np.testing.assert_array_equal(model.predict([("one", "")]), expected)


def test_a_model_of_256_tokens_reads_the_bytes_of_texts():
    model = sequences()
    expected = model.predict([list("naïve".encode()), list(b"ok")])
    np.testing.assert_array_equal(model.predict(["naïve", "ok"]), expected)
    assert model.predict([]).shape == (0, 2)


def test_a_padded_batch_gives_what_each_sequence_gives_alone():
    model, given = sequences(vocabulary=16), [[11, 3, 4, 15], [12, 1, 2, 3, 4, 5, 6, 15], [1]]
    alone = [model.predict([sequence])[0] for sequence in given]
    np.testing.assert_allclose(model.predict(given), alone, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "given", "message"),
    [
        ({"vocabulary": 16}, [[1], [16]], r"sequences\[1\] = .*expected tokens from 0 to 15"),
        ({"vocabulary": 16}, ["a text"], "its 16 tokens are not bytes"),
        ({"words": ("<pad>", "a")}, ["a text"], "lack '<unk>'"),
        ({"vocabulary": None, "in_channels": 1}, ["a text"], "its elements are numbers"),
        ({"vocabulary": None, "in_channels": 1}, [[1.0], ["b"]], r"\[1\] = .*'b'.*, expected num"),
        ({"vocabulary": None, "in_channels": 3}, [np.zeros(3)], r"numbers of shape \[length, 3"),
    ],
)
def test_a_sequence_that_the_model_cannot_take_is_refused(fields, given, message):
    with pytest.raises(ValueError, match=message):
        sequences(**fields).predict(given)


def test_more_words_than_tokens_are_refused():
    with pytest.raises(ValueError, match="3 words for vocabulary = 2"):
        SequenceSliceformerConfig(vocabulary=2, words=("<pad>", "<unk>", "a"))
