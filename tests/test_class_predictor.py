"""`predict` of sequences and images: what it is given is taken as it is meant, or refused."""

import re

import numpy as np
import pytest
import torch
from support.tiny_run import MODEL

from slicegraph.class_predictor import SequencePredictor, VisionPredictor
from slicegraph.data.sequences.contents import join
from slicegraph.data.sequences.sequence_set import SequenceSet
from slicegraph.data.sequences.sequence_store import write_sequences
from slicegraph.models import SequenceSliceformerConfig, VisionSliceformerConfig

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


def test_a_series_of_text_is_refused_by_its_number():
    model = sequences(vocabulary=None, in_channels=1)
    with pytest.raises(ValueError, match=r"sequences\[1\] = .*'b'.*, expected numbers of shape"):
        model.predict([[1.0, 2.0], ["a", "b"]])


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


def test_a_pair_may_be_an_array():
    model, pairs = sequences(towers=2), np.arange(24).reshape(3, 2, 4)
    expected = model.predict([(list(a), list(b)) for a, b in pairs])
    np.testing.assert_array_equal(model.predict(pairs), expected)


def test_pairs_may_come_one_after_another():
    model, first, second = sequences(towers=2), [[1, 2], [3]], [[4], [5, 6]]
    expected = model.predict(list(zip(first, second, strict=True)))
    np.testing.assert_array_equal(model.predict(zip(first, second, strict=True)), expected)


def test_a_series_of_one_channel_may_be_a_column_or_not():
    model, series = sequences(vocabulary=None, in_channels=1), np.linspace(0, 1, 6)
    mixed = model.predict([series, series[:, None]])
    np.testing.assert_array_equal(mixed[0], mixed[1])


@pytest.mark.parametrize("length", [3, 4])
def test_a_series_without_channels_is_refused_where_there_are_several(length):
    model = sequences(vocabulary=None, in_channels=3)
    with pytest.raises(
        ValueError, match=r"sequences\[0\] = .*, expected numbers of shape \[length, 3"
    ):
        model.predict([np.zeros(length)])


def test_large_images_are_predicted_together(monkeypatch):
    model = VisionPredictor(VisionSliceformerConfig(**MODEL, num_classes=3))
    sizes = []
    monkeypatch.setattr(model, "forward", lambda x: sizes.append(len(x)) or torch.zeros(len(x), 3))
    model.predict(np.zeros((8, 3, 224, 224), np.uint8), batch_size=4)
    assert sizes == [4, 4]


def test_samples_of_a_set_are_batched_by_what_is_read_of_them(tmp_path, monkeypatch):
    parts = [np.zeros(1 << 17, np.uint8)] * 4
    store = write_sequences(tmp_path, join(parts, [0, 1, 0, 1]), {"test": 4}, ["a", "b"], 256)
    model, sizes = sequences(max_length=16), []
    whole = model.forward
    monkeypatch.setattr(model, "forward", lambda x, mask: sizes.append(len(x)) or whole(x, mask))
    model.predict_set(SequenceSet("text", store), np.arange(4))
    assert sizes == [4]


@pytest.mark.parametrize("mixer", ["sort", "qkv"])
def test_empty_samples_of_a_set_are_predicted_as_among_others(tmp_path, mixer):
    parts = [np.zeros(0, np.uint8), np.arange(5, dtype=np.uint8), np.zeros(0, np.uint8)]
    store = write_sequences(tmp_path, join(parts, [0, 1, 0]), {"test": 3}, ["a", "b"], 256)
    model, dataset = sequences(mixer=mixer), SequenceSet("text", store)
    together = model.predict_set(dataset, np.arange(3))
    alone = model.predict_set(dataset, np.arange(3), batch_size=1)
    np.testing.assert_allclose(alone, together, atol=1e-6)
    np.testing.assert_allclose(model.predict_set(dataset, np.array([2, 0])), together[[2, 0]])
