"""Folders that are no whole store are recognised, named and never read."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.small_store import chain, random_graph, write_json, write_meta, write_store

from slicegraph.data.store.layout import StoreError, array_types, meta_bytes, read_meta, sha256_of
from slicegraph.data.store.molecule_store import MoleculeStore

GRAPHS = [chain(4), random_graph(5, 6, 0), chain(2)]
ARRAYS = [
    *("atoms.npy", "atom_ptr.npy", "bonds.npy", "bond_features.npy", "bond_ptr.npy"),
    *("labels.npy", "rows.npy", "smiles.npy", "smiles_ptr.npy"),
]
FILES = [*ARRAYS, "rejected.csv"]
fuzzed = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    labels, smiles = [[1.0], [2.0], [3.0]], ["CCCC", "O", "CC"]
    return write_store(tmp_path / "molecules", GRAPHS, labels, smiles)


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    whole = path.read_bytes()
    content = bytearray(whole)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    yield
    path.write_bytes(whole)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_missing_file_is_named(folder: Path, name: str, verify: bool) -> None:
    (folder / name).unlink()
    with pytest.raises(StoreError, match=f"molecules': {name} is missing; copy it again"):
        MoleculeStore(folder, verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_truncated_file_is_named(folder: Path, name: str, verify: bool) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    message = f"{name} is truncated: {len(content) - 1} bytes, expected {len(content)}"
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder, verify)


@pytest.mark.parametrize("verify", [True, False])
def test_file_that_has_grown_is_named(folder: Path, verify: bool) -> None:
    with open(folder / "atoms.npy", "ab") as file:
        file.write(b"\0")
    with pytest.raises(StoreError, match=r"atoms\.npy is too long"):
        MoleculeStore(folder, verify)


@fuzzed
@given(name=st.sampled_from(FILES), data=st.data())
def test_every_flipped_bit_is_found(folder: Path, name: str, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * (folder / name).stat().st_size - 1))
    message = f"{name} is damaged: its SHA-256 is"
    with flipped(folder / name, bit), pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


@fuzzed
@given(data=st.data())
def test_flipped_bit_in_meta_is_found_or_changes_nothing(folder: Path, data: st.DataObject) -> None:
    before, path = read_meta(folder), folder / "meta.json"
    with flipped(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1))):
        try:
            after = read_meta(folder)
        except StoreError:
            after = before
    assert {key: after[key] for key in before} == before


@fuzzed
@given(name=st.sampled_from(ARRAYS), bit=st.integers(0, 8 * 128 - 1))
def test_damaged_header_is_named_or_harmless_without_verifying(
    folder: Path, name: str, bit: int
) -> None:
    with flipped(folder / name, bit):
        try:
            found = MoleculeStore(folder, verify=False).batch([0, 1, 2])
        except StoreError as error:
            found = None
            assert name in str(error)  # noqa: PT017
    for array, expected in zip(found or (), MoleculeStore(folder).batch([0, 1, 2]), strict=False):
        assert np.array_equal(array, expected)


def test_half_written_folder_is_named_with_the_remedy(folder: Path) -> None:
    (folder / "meta.json").unlink()
    with pytest.raises(StoreError, match=r"half-written: it has no meta\.json.*prepare` again"):
        MoleculeStore(folder)


def test_folder_that_has_only_unfinished_parts_is_half_written(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    with pytest.raises(StoreError, match="is half-written"):
        MoleculeStore(tmp_path)


def test_folder_of_something_else_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(StoreError, match=r"is no store: it has no meta\.json"):
        MoleculeStore(tmp_path)


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere': there is no such folder; make it with"):
        MoleculeStore(tmp_path / "nowhere")


def test_file_in_place_of_the_folder_is_named(folder: Path) -> None:
    with pytest.raises(StoreError, match="is a file, expected the folder"):
        MoleculeStore(folder / "meta.json")


@pytest.mark.parametrize(
    "text", ["", "{", "\xff\xfe", "[" * 100_000, '{"format": "slicegraph-molecules",']
)
def test_meta_that_is_not_json_is_named(folder: Path, text: str) -> None:
    (folder / "meta.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StoreError, match=r"meta\.json is not JSON"):
        MoleculeStore(folder)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "{}", '{"format": "parquet"}'])
def test_foreign_meta_is_named(folder: Path, text: str) -> None:
    (folder / "meta.json").write_text(text)
    with pytest.raises(StoreError, match=r"is foreign: meta\.json says format .*, expected"):
        MoleculeStore(folder)


def change(folder: Path, **values: Any) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    del meta["checksum"]
    write_json(folder, {**meta, **values})


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("has version 2, newer than 1; update slicegraph", {"version": 2}),
        ("has version 0, expected 1", {"version": 0}),
        ("has version True, expected 1", {"version": True}),
        ("has version '1', expected 1", {"version": "1"}),
        ("molecules = -1, expected int", {"molecules": -1}),
        ("atoms = None, expected int", {"atoms": None}),
        ("labels = 'gap', expected list", {"labels": "gap"}),
        ("wrong atom_vocabulary", {"atom_vocabulary": [0]}),
        ("wrong bond_vocabulary", {"bond_vocabulary": [1 << 40, 1 << 40]}),
        ("bond_vocabulary = ..many.., expected ints", {"bond_vocabulary": ["many"]}),
        ("labels = .1., expected strs", {"labels": [1]}),
        ("no sha256 and bytes of 'atoms.npy'", {"files": {}}),
    ],
)
def test_meta_with_a_wrong_value_is_named(
    folder: Path, message: str, values: dict[str, Any]
) -> None:
    change(folder, **values)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def test_file_outside_the_folder_is_refused(folder: Path) -> None:
    files = json.loads((folder / "meta.json").read_text())["files"]
    change(folder, files={**files, "../atoms.npy": files["atoms.npy"]})
    with pytest.raises(StoreError, match=r"'\.\./atoms\.npy'"):
        MoleculeStore(folder)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (r"atoms\.npy holds uint32 \[11\], expected uint32 \[12\]", {"atoms": 12}),
        (r"bonds\.npy holds uint16 \[10, 2\], expected uint16 \[9, 2\]", {"bonds": 9}),
        (r"labels\.npy holds float32 \[3, 1\], expected float32 \[3, 2\]", {"labels": ["a", "b"]}),
        (r"atoms\.npy holds uint32 \[11\], expected uint8 \[11\]", {"atom_vocabulary": [119]}),
    ],
)
def test_array_that_differs_from_meta_is_named(
    folder: Path, message: str, values: dict[str, Any]
) -> None:
    change(folder, **values)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def rewrite(folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    """Another array in place of one, with its right checksum."""
    meta = json.loads((folder / "meta.json").read_text())
    np.save(folder / name, edit(np.load(folder / name)), allow_pickle=True)
    write_meta(folder, {key: meta[key] for key in meta if key not in ("files", "checksum")})


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("atom_ptr.npy", [0, 4, 9, 10], r"atom_ptr\.npy goes from 0 to 10, expected 0 to 11"),
        ("bond_ptr.npy", [1, 3, 9, 10], r"bond_ptr\.npy goes from 1 to 10, expected 0 to 10"),
        ("smiles_ptr.npy", [0, 4, 5, 6], r"smiles_ptr\.npy goes from 0 to 6, expected 0 to 7"),
        ("atom_ptr.npy", [0, 9, 4, 11], r"must not descend, but 4 follows 9 at position 1"),
    ],
)
def test_wrong_pointers_are_named(folder: Path, name: str, values: list[int], message: str) -> None:
    rewrite(folder, name, lambda _: np.array(values))
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("labels.npy", lambda a: a.astype(object), r"labels\.npy is no npy file"),
        ("rows.npy", lambda a: a.astype("<i4"), r"rows\.npy holds int32"),
        ("rows.npy", lambda a: a.astype(">i8"), r"rows\.npy holds >i8"),
        ("bonds.npy", np.asfortranarray, r"bonds\.npy holds uint16 .* in C order"),
    ],
)
def test_array_of_another_kind_is_named(
    folder: Path, name: str, edit: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    rewrite(folder, name, edit)
    with pytest.raises(StoreError, match=message):
        MoleculeStore(folder)


def test_another_file_of_the_same_name_is_named(folder: Path, tmp_path: Path) -> None:
    other = write_store(tmp_path / "other", [GRAPHS[1], GRAPHS[0], GRAPHS[2]], [[1.0]] * 3)
    shutil.copy(other / "atoms.npy", folder)
    with pytest.raises(StoreError, match=r"atoms\.npy is damaged"):
        MoleculeStore(folder)


def test_meta_written_by_the_package_reads_back(folder: Path) -> None:
    meta = read_meta(folder)
    (folder / "meta.json").write_bytes(meta_bytes(meta))
    assert read_meta(folder) == meta


def test_checksum_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(tmp_path / "abc") == expected


def test_type_of_codes_follows_the_vocabulary() -> None:
    types = array_types([28], [300, 2], labels=3)
    assert types["atoms.npy"] == (np.dtype("u1"), ())
    assert types["bond_features.npy"] == (np.dtype("<u2"), ())
    assert types["labels.npy"] == (np.dtype("<f4"), (3,))
