"""Sequences on disk are the sequences that were written."""

import json
import pickle

import numpy as np
import pytest

from slicegraph.data.sequences.listops import generate_listops
from slicegraph.data.sequences.sequence_store import SequenceStore, write_sequences
from slicegraph.data.sequences.sequences import Sequences
from slicegraph.data.store.layout import StoreError

DIGITS = list("0123456789")


@pytest.fixture
def listops():
    return generate_listops(10, min_length=2, max_length=40)


@pytest.fixture
def store(tmp_path, listops):
    return write_sequences(tmp_path / "store", listops, {"train": 7, "test": 3}, DIGITS, 16)


def test_samples_come_back(store, listops):
    assert len(store) == 10
    for i, expected in enumerate(listops):
        elements, label = store[i]
        assert np.array_equal(elements, expected)
        assert label == listops.labels[i]
    assert np.array_equal(store[-1][0], store[9][0])


def test_splits_follow_each_other(store):
    assert {name: rows.tolist() for name, rows in store.splits.items()} == {
        "train": [0, 1, 2, 3, 4, 5, 6],
        "test": [7, 8, 9],
    }


def test_a_batch_is_padded_with_zeros_and_has_a_mask(store):
    batch = store.batch([4, 1, 8])
    for row, i in enumerate([4, 1, 8]):
        elements, label = store[i]
        assert np.array_equal(batch.x[row, batch.mask[row]], elements)
        assert batch.mask[row].sum() == batch.mask[row, : len(elements)].sum()
        assert batch.y[row] == label
    assert not batch.x[~batch.mask].any()


def test_pairs_have_two_rows_each(tmp_path):
    elements, ptr = np.arange(1, 11, dtype=np.uint8), np.array([0, 2, 5, 6, 10])
    pairs = Sequences(elements, ptr, np.array([1, 0], np.uint8))
    store = write_sequences(tmp_path / "pairs", pairs, {"train": 2}, ["no", "yes"], 256, towers=2)
    batch = store.batch([1, 0])
    assert batch.x.tolist() == [
        [[6, 0, 0, 0], [7, 8, 9, 10]],
        [[1, 2, 0, 0], [3, 4, 5, 0]],
    ]
    assert batch.mask.shape == (2, 2, 4)
    assert [part.tolist() for part in store[1][0]] == [[6], [7, 8, 9, 10]]


def test_lengths_are_cut_as_the_sequences_of_a_batch_are(tmp_path):
    ptr = np.array([0, 2, 5, 6, 10])
    pairs = Sequences(np.arange(10, dtype=np.uint8), ptr, np.array([1, 0], np.uint8))
    store = write_sequences(tmp_path / "pairs", pairs, {"train": 2}, ["no", "yes"], 256, towers=2)
    for most in (None, 1, 2, 3):
        lengths = store.batch([1, 0], most).mask.sum((1, 2))
        assert store.lengths_read([1, 0], most).tolist() == lengths.tolist()


def test_a_store_pickles_as_its_folder(store):
    assert np.array_equal(pickle.loads(pickle.dumps(store))[3][0], store[3][0])


def test_a_store_is_written_once(store, listops):
    with pytest.raises(StoreError, match="is written already"):
        write_sequences(store.folder, listops, {"train": 10}, DIGITS, 16)


def test_a_damaged_file_is_named(store):
    path = store.folder / "elements.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"elements\.npy is damaged"):
        SequenceStore(store.folder)


def test_a_folder_that_was_not_written_to_the_end_is_named(store):
    (store.folder / "meta.json").unlink()
    with pytest.raises(StoreError, match=r"has no meta\.json"):
        SequenceStore(store.folder)


def test_a_foreign_folder_is_named(store):
    (store.folder / "meta.json").write_text(json.dumps({"format": "other", "version": 1}))
    with pytest.raises(StoreError, match="is \\('other', 1\\), expected"):
        SequenceStore(store.folder)


def test_splits_that_do_not_add_up_are_named(tmp_path, listops):
    with pytest.raises(ValueError, match="10 sequences and 10 labels for the splits"):
        write_sequences(tmp_path, listops, {"train": 7}, DIGITS, 16)


def test_a_sample_out_of_range_is_named(store):
    with pytest.raises(IndexError, match="sample 10 of 10"):
        store[10]
