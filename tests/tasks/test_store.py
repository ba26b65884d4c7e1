"""Sequences on disk are the sequences that were written."""

import json
import pickle

import numpy as np
import pytest

from slicegraph.data.store import StoreError
from slicegraph.tasks.generated import generate_listops
from slicegraph.tasks.store import Sequences, SequenceStore, write_sequences

DIGITS = list("0123456789")


@pytest.fixture
def listops():
    return generate_listops(10, min_length=2, max_length=40)


@pytest.fixture
def store(tmp_path, listops):
    return write_sequences(
        tmp_path / "store", listops, {"train": 7, "test": 3}, DIGITS, vocabulary=16
    )


@pytest.fixture
def pairs(tmp_path):
    elements, ptr = np.arange(1, 11, dtype=np.uint8), np.array([0, 2, 5, 6, 10])
    found = Sequences(elements, ptr, np.array([1, 0], np.uint8))
    return write_sequences(tmp_path / "pairs", found, {"train": 2}, ["no", "yes"], towers=2)


def test_samples_and_splits_come_back_also_from_a_pickle(store, listops):
    for found in (store, SequenceStore(store.folder), pickle.loads(pickle.dumps(store))):
        assert len(found) == 10
        for i, expected in enumerate(listops):
            elements, label = found[i]
            assert np.array_equal(elements, expected)
            assert label == listops.labels[i]
        assert np.array_equal(found[-1][0], found[9][0])
        splits = {name: rows.tolist() for name, rows in found.splits.items()}
        assert splits == {"train": [0, 1, 2, 3, 4, 5, 6], "test": [7, 8, 9]}


def test_a_batch_is_padded_with_zeros_and_has_a_mask(store):
    batch = store.batch([4, 1, 8])
    for row, i in enumerate([4, 1, 8]):
        elements, label = store[i]
        assert np.array_equal(batch.x[row, batch.mask[row]], elements)
        assert batch.mask[row].sum() == batch.mask[row, : len(elements)].sum()
        assert batch.y[row] == label
    assert not batch.x[~batch.mask].any()


def test_pairs_have_two_rows_each(pairs):
    batch = pairs.batch([1, 0])
    assert batch.x.tolist() == [[[6, 0, 0, 0], [7, 8, 9, 10]], [[1, 2, 0, 0], [3, 4, 5, 0]]]
    assert batch.mask.shape == (2, 2, 4)
    assert [part.tolist() for part in pairs[1][0]] == [[6], [7, 8, 9, 10]]
    assert pairs.lengths.tolist() == [5, 5]


@pytest.mark.parametrize("most", [None, 1, 2, 3])
def test_sizes_are_cut_as_the_sequences_of_a_batch_are(pairs, most):
    lengths = pairs.batch([1, 0], most).mask.sum((1, 2))
    assert pairs.sequences.sizes([1, 0], most).tolist() == lengths.tolist()


def test_a_store_is_written_once(store, listops):
    with pytest.raises(StoreError, match="is written already"):
        write_sequences(store.folder, listops, {"train": 10}, DIGITS, vocabulary=16)


def flip_last_bit(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


FOREIGN = json.dumps({"format": "other", "version": 1})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("elements.npy", flip_last_bit, r"elements\.npy is damaged"),
        ("labels.npy", lambda path: path.unlink(), r"labels\.npy is damaged or missing"),
        ("meta.json", lambda path: path.unlink(), r"has no meta\.json"),
        ("meta.json", lambda path: path.write_text("{"), r"meta\.json is not JSON"),
        ("meta.json", lambda path: path.write_text(FOREIGN), r"is \('other', 1\), expected"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(store, name, damage, message):
    damage(store.folder / name)
    with pytest.raises(StoreError, match=message):
        SequenceStore(store.folder)


def test_splits_and_samples_that_cannot_be_are_named(tmp_path, listops, store):
    with pytest.raises(ValueError, match="10 sequences and 10 labels for the splits"):
        write_sequences(tmp_path, listops, {"train": 7}, DIGITS, vocabulary=16)
    with pytest.raises(IndexError, match="sample 10 of 10"):
        store[10]
