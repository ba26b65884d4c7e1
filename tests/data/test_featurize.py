"""Graphs of SMILES: OGB's arrays, one graph a molecule, and errors that say why."""

import copy
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ogb.utils import smiles2graph
from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims
from rdkit import Chem, rdBase
from support.molecules import ALPHABET, CHIRAL, MOLECULES, broken_texts, spellings
from torch_geometric.data import Batch, Data

from slicegraph.data.molecule import canonical_order, feature_rows, graph_data
from slicegraph.data.molecule.feature_rows import OgbFeatures
from slicegraph.data.molecule.featurize import SmilesError, featurize, read_smiles
from slicegraph.data.molecule.mol_records import Records, records_of
from slicegraph.data.molecule.molecule_graph import MoleculeGraph, directed
from slicegraph.ops.backends import cpu_molecule

each_molecule = pytest.mark.parametrize("smiles", MOLECULES, ids=lambda text: text[:40])


def texts(smiles: str) -> list[str]:
    return spellings(smiles, 2 if len(smiles) > 120 else 10)


def assert_same(data: Data, graph: dict[str, np.ndarray]) -> None:
    for ours, ogbs in (
        ("x", "node_feat"),
        ("edge_index", "edge_index"),
        ("edge_attr", "edge_feat"),
    ):
        np.testing.assert_array_equal(data[ours].numpy(), graph[ogbs], err_msg=ours)


@each_molecule
def test_without_the_kernels_it_is_ogbs_graph_in_both_orders(
    smiles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_molecule, "_molecule_keys", None)
    unnumbered = re.sub(r":\d+]", "]", smiles)
    for text in texts(unnumbered)[:3]:
        assert_same(featurize(text, canonical=False), smiles2graph(text))
        assert_same(featurize(text), smiles2graph(Chem.CanonSmiles(unnumbered)))


@each_molecule
def test_in_the_order_of_the_text_it_is_ogbs_graph(smiles: str) -> None:
    for text in texts(smiles)[:4]:
        data = featurize(text, canonical=False)
        assert_same(data, smiles2graph(text))
        assert {data.x.dtype, data.edge_index.dtype, data.edge_attr.dtype} == {torch.int64}


@each_molecule
def test_every_spelling_gives_the_same_graph(smiles: str) -> None:
    expected, *others = [read_smiles(text) for text in texts(smiles)]
    for graph in others:
        for ours, first in zip(graph, expected, strict=True):
            np.testing.assert_array_equal(ours, first)


@each_molecule
def test_in_canonical_order_it_is_ogbs_graph_of_the_canonical_smiles(smiles: str) -> None:
    unnumbered = re.sub(r":\d+]", "]", smiles)
    for text in texts(unnumbered)[:3]:
        assert_same(featurize(text), smiles2graph(Chem.CanonSmiles(unnumbered)))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("smiles", CHIRAL)
def test_canonical_order_of_a_chiral_molecule_is_found_without_reading_its_text(
    smiles: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = smiles2graph(Chem.CanonSmiles(smiles))
    if not compiled:
        monkeypatch.setattr(cpu_molecule, "_molecule_keys", None)
    monkeypatch.delattr(canonical_order, "_read_back")
    for text in Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 20, randomSeed=3):
        assert_same(featurize(text), expected)


@pytest.mark.parametrize("smiles", ["C[S@](=O)CC", "C[Pt@SP1](F)(Cl)Br", "c1ccc2c(c1)O[Cu]<-N=C2"])
def test_what_cannot_be_worked_out_is_read_from_the_canonical_text(
    smiles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelling = next(text for text in texts(smiles) if text != Chem.CanonSmiles(smiles))
    monkeypatch.delattr(canonical_order, "_read_back")
    with pytest.raises(NameError, match="_read_back"):
        featurize(spelling)


@each_molecule
def test_numpy_graph_holds_each_bond_once(smiles: str) -> None:
    graph, data = read_smiles(smiles), featurize(smiles)
    edge_index, edge_attr = directed(graph)
    assert [part.dtype for part in graph] == [np.uint8, np.uint16, np.uint8]
    np.testing.assert_array_equal(graph.atoms, data.x)
    np.testing.assert_array_equal(edge_index, data.edge_index)
    np.testing.assert_array_equal(edge_attr, data.edge_attr)


@each_molecule
def test_features_are_within_ogbs_vocabularies(smiles: str) -> None:
    graph = read_smiles(smiles, canonical=False)
    assert (graph.atoms < get_atom_feature_dims()).all()
    assert (graph.bond_features < get_bond_feature_dims()).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("smiles", ["C[C@H](F)C(=O)[O-]", "[Na+]"])
def test_features_come_in_the_type_that_is_asked_for(smiles: str, dtype: torch.dtype) -> None:
    data, expected = featurize(smiles, dtype=dtype), featurize(smiles)
    assert data.x.dtype == data.edge_attr.dtype == dtype
    assert data.edge_index.dtype == torch.int64
    for name in ("x", "edge_index", "edge_attr"):
        assert torch.equal(data[name].long(), expected[name])


def test_another_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"dtype = torch.float32 is not torch.uint8"):
        featurize("C", dtype=torch.float32)


@pytest.mark.parametrize("is_known", [True, False])
def test_result_is_like_any_other_data_object(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert graph_data._IS_KNOWN
    monkeypatch.setattr(graph_data, "_IS_KNOWN", is_known)
    data = featurize("CC=O")
    plain = Data(x=data.x, edge_index=data.edge_index, edge_attr=data.edge_attr)
    assert vars(data).keys() == vars(plain).keys()
    assert vars(data._store).keys() == vars(plain._store).keys()
    assert data._store._parent() is data
    copies = copy.copy(data), copy.deepcopy(data), data.clone(), pickle.loads(pickle.dumps(data))
    for other in (data, *copies):
        assert other.to_dict().keys() == plain.to_dict().keys()
        assert (other.num_nodes, other.num_edges) == (plain.num_nodes, plain.num_edges) == (3, 4)
        assert str(other) == str(plain)
    batch = Batch.from_data_list([data, featurize("[Na+].[Cl-]"), featurize("O")])
    assert batch.ptr.tolist() == [0, 3, 5, 6]


def test_arrays_may_be_written_to() -> None:
    graph, data = read_smiles("CCO"), featurize("CCO")
    for array in graph:
        array += 1
    for name in ("x", "edge_index", "edge_attr"):
        data[name] += 1
    assert_same(featurize("CCO", canonical=False), smiles2graph("CCO"))
    assert read_smiles("CCO").bonds.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize("text", ["CCO ethanol", " CCO\n", "CCO\tN", "CCO |^1:0|", "CO |$a;b$|"])
def test_names_and_extensions_are_as_rdkit_has_them(text: str) -> None:
    assert_same(featurize(text, canonical=False), smiles2graph(text))


def test_stereo_that_ogb_has_no_word_for_is_any_stereo() -> None:
    text = "Cc1cccc(I)c1-c1c(C)cccc1I |wU:7.7|"
    with pytest.raises(ValueError, match="STEREOATROP"):
        smiles2graph(text)
    assert sorted(read_smiles(text, canonical=False).bond_features[:, 1])[-2:] == [0, 5]


REASONS = {
    "C1CC": "unclosed ring",
    "CX": "syntax error, check for mistakes around position 2",
    "C(C": "extra open parentheses",
    "c1cccc1": "Can't kekulize mol.  Unkekulized atoms: 0 1 2 3 4",
    "C(C)(C)(C)(C)C": "Explicit valence for atom # 0 C, 5, is greater than permitted",
    "CCc": "non-ring atom 2 marked aromatic",
    "C1C1": "ring closure 1 duplicates bond between atom 0 and atom 1",
    "[C+128]": "Pre-condition Violation: Atomic number not found",
    "C>>C": "syntax error",
    "C\0C": "syntax error",
    "O |bad": "its extension is no CXSMILES",
    "\ud800": "not Unicode text: surrogates not allowed",
    "": "no atoms",
    "  ": "syntax error",
    "Ä": "syntax error",
    "00\x80\x80\x80\u0800\U00010000\U00010000": "syntax error",
    "[999999999999C]": "number too large",
}


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("text", REASONS)
def test_error_has_the_text_and_rdkits_reason(text: str, canonical: bool) -> None:
    with pytest.raises(SmilesError) as caught:
        featurize(text, canonical)
    assert str(caught.value).startswith(f"featurize: cannot read {text!r} ({REASONS[text]}")
    assert caught.value.smiles == text
    assert caught.value.reason.startswith(REASONS[text])


@pytest.mark.parametrize("text", ["C1CC", "CX", "c1cccc1", "O |bad"])
def test_error_has_a_reason_if_rdkit_cannot_capture_its_log(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rdBase, "CaptureErrorLog")
    reason = "Can't kekulize" if text == "c1cccc1" else "syntax error"
    with pytest.raises(SmilesError, match=reason):
        featurize(text)


def test_error_can_be_sent_to_another_process() -> None:
    with pytest.raises(SmilesError) as caught:
        read_smiles("C1CC")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copied, SmilesError)
    assert (str(copied), copied.reason) == (str(caught.value), caught.value.reason)


def test_long_texts_and_reasons_are_shortened() -> None:
    with pytest.raises(SmilesError) as caught:
        read_smiles("c1" + "c" * 498 + "1")
    assert len(str(caught.value)) < 400
    assert "501 characters" in str(caught.value)


@pytest.mark.parametrize("value", [None, 3.5, b"CCO", ["C"]])
def test_other_than_text_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"smiles is {value!r}, not a str")):
        featurize(value)


def test_too_many_atoms_are_refused() -> None:
    with pytest.raises(SmilesError, match=r"65,536 atoms, more than 65,535"):
        read_smiles("C" * 65_536)


def test_most_atoms_are_numbered_right() -> None:
    bonds = read_smiles("C" * 65_535, canonical=False).bonds
    np.testing.assert_array_equal(bonds[:, 0] + 1, bonds[:, 1])
    assert bonds[-1].tolist() == [65_533, 65_534]


def test_canonical_order_that_rdkit_cannot_write_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(mol: Chem.Mol) -> str:
        raise ValueError("Too many rings open at once. SMILES cannot be generated.")

    monkeypatch.setattr(canonical_order, "MolToSmiles", refuse)
    with pytest.raises(
        SmilesError, match=r"'CCO' \(no canonical order: Too many .* canonical=False"
    ):
        read_smiles("CCO")
    assert len(read_smiles("CCO", canonical=False).atoms) == 3


@pytest.mark.parametrize("enabled", [True, False])
def test_rdkit_prints_nothing_and_its_log_stays_as_it_was(
    enabled: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    before = rdBase.LogStatus()
    try:
        (rdBase.EnableLog if enabled else rdBase.DisableLog)("rdApp.*")
        status = rdBase.LogStatus()
        for text in (*REASONS, "[H]", "F/C=C(/F)/C", "O |w:0|"):
            try:
                featurize(text)
            except SmilesError:
                assert rdBase.LogStatus() == status
        assert rdBase.LogStatus() == status
    finally:
        _restore_log(before)
    assert capfd.readouterr() == ("", "")


def _restore_log(status: str) -> None:
    for line in status.splitlines():
        name, state = line.rsplit(":", 1)
        (rdBase.EnableLog if state == "enabled" else rdBase.DisableLog)(name)


def test_threads_do_not_hear_each_others_reasons(capfd: pytest.CaptureFixture[str]) -> None:
    def reason(text: str) -> str:
        try:
            return str(len(read_smiles(text).atoms))
        except SmilesError as error:
            return error.reason

    wanted = ["CCO", *REASONS] * 60
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(reason, wanted))
    for text, said in zip(wanted, found, strict=True):
        assert said.startswith(REASONS.get(text, "3")), text
    assert capfd.readouterr().err == ""


DEEP = """
import threading
from slicegraph.data.molecule.molecule_reader import read_smiles

def read():
    print(len(read_smiles("O" + "C" * 1499).atoms))

threading.stack_size(512 * 1024)
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def test_long_chain_does_not_overrun_a_small_stack() -> None:
    run = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "1500\n"), run.stderr


def test_records_that_disagree_with_rdkit_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(mol: Chem.Mol) -> Records | None:
        records = records_of(mol)
        assert records is not None
        return records._replace(ends=records.ends + b"\0\1", rings=b"")

    monkeypatch.setattr(feature_rows, "records_of", wrong)
    features = OgbFeatures(np.uint8)
    for text in ("c1ccccc1C", "CCO", "CCO"):
        rows = features(Chem.MolFromSmiles(text))
        assert [list(row) for row in rows.atoms] == smiles2graph(text)["node_feat"].tolist()


def test_full_memory_of_features_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_rows, "_MOST_REMEMBERED", 0)
    features = OgbFeatures(np.uint8)
    for text in ("c1ccccc1C", "CCO", "CCO"):
        rows = features(Chem.MolFromSmiles(text))
        assert [list(row) for row in rows.atoms] == smiles2graph(text)["node_feat"].tolist()


def graph_or_none(text: str, canonical: bool) -> MoleculeGraph | None:
    try:
        return read_smiles(text, canonical)
    except SmilesError:
        return None


def test_ten_thousand_broken_texts(capfd: pytest.CaptureFixture[str]) -> None:
    num_graphs = 0
    for text in broken_texts(10_000, seed=4):
        graph = graph_or_none(text, canonical=False)
        assert (graph_or_none(text, canonical=True) is None) == (graph is None), text
        with rdBase.BlockLogs():
            mol = Chem.MolFromSmiles(text)
            assert (graph is not None) == (mol is not None and mol.GetNumAtoms() > 0), text
            if graph is not None and (num_graphs := num_graphs + 1) % 4 == 0:
                assert_same(featurize(text, canonical=False), smiles2graph(text))
    assert num_graphs > 1000
    assert capfd.readouterr() == ("", "")


@settings(deadline=None, max_examples=300)
@given(text=st.one_of(st.text(), st.text(alphabet=ALPHABET, max_size=20)))
def test_any_text_is_a_graph_or_an_error(text: str) -> None:
    graph = graph_or_none(text, canonical=True)
    assert graph is None or len(graph.atoms) > 0
