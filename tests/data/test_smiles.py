"""Graphs of SMILES: OGB's arrays, one graph a molecule, and errors with RDKit's reason."""

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

from slicegraph.data.smiles import (
    OGB_ATOM_CODE,
    OGB_BOND_CODE,
    FeatureCode,
    MoleculeGraph,
    SmilesError,
    featurize,
    read_smiles,
)


def texts(smiles: str) -> list[str]:
    return spellings(smiles, 2 if len(smiles) > 120 else 6)


def assert_same(data: Data, graph: dict[str, np.ndarray]) -> None:
    names = {"x": "node_feat", "edge_index": "edge_index", "edge_attr": "edge_feat"}
    for ours, ogbs in names.items():
        np.testing.assert_array_equal(data[ours].numpy(), graph[ogbs], err_msg=ours)


@pytest.mark.parametrize("smiles", [*MOLECULES, *CHIRAL], ids=lambda text: text[:40])
def test_it_is_ogbs_graph_of_the_text_or_of_the_canonical_smiles(smiles: str) -> None:
    canonical = smiles2graph(Chem.CanonSmiles(re.sub(r":\d+]", "]", smiles)))
    for text in texts(smiles):
        assert_same(featurize(text, canonical=False), smiles2graph(text))
        assert_same(featurize(text), canonical)
    graph = read_smiles(smiles)
    edge_index, edge_attr = graph.directed()
    assert [part.dtype for part in graph[:3]] == [np.uint8, np.uint16, np.uint8]
    assert graph.sizes == ()
    np.testing.assert_array_equal(graph.atoms, canonical["node_feat"])
    np.testing.assert_array_equal(edge_index, canonical["edge_index"])
    np.testing.assert_array_equal(edge_attr, canonical["edge_feat"])
    assert (graph.atoms < get_atom_feature_dims()).all()
    assert (graph.bond_features < get_bond_feature_dims()).all()


RESPELLED = [
    "C[C@]12CC[C@H](O)C[C@@H]1CC[C@@H]1[C@H]2CC[C@]2(C)C(=O)CC[C@H]12",  # rings closed at centres
    "O[C@H]1C[C@@]2(CCC1)CCN(C2)[C@@H]1C[C@H]1F.C1CC1",  # digits that open several rings
    "C1C[C@@]2(C1)C[C@H]2/C=C/[C@@H](O)/C(F)=C\\Cl",
    "[O-][N+](=O)c1cc[nH]c1C[C@H]([NH3+])C([O-])=O",
    # RDKit's parser changes the molecule of the text that it has written.
    *("O=I", "O=I(O)O", "[S@H4]", "[cH+]1cccccc1"),
    "C[C@H]1CC[C@]1CC[C@]1CC[C@@H](O)CC1",  # radicals
]


@pytest.mark.parametrize("smiles", RESPELLED)
def test_order_is_that_of_the_parsed_canonical_smiles_with_and_without_the_written_order(
    smiles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {text: featurize(text) for text in spellings(smiles, 20)}
    monkeypatch.setattr("slicegraph.data.smiles._ORDER", "an RDKit that does not tell the order")
    for text, graph in found.items():
        expected = smiles2graph(Chem.CanonSmiles(re.sub(r":\d+]", "]", text)))
        assert_same(graph, expected)
        assert_same(featurize(text), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("smiles", ["C[C@H](F)C(=O)[O-]", "[Na+]"])
def test_features_come_in_the_type_that_is_asked_for(smiles: str, dtype: torch.dtype) -> None:
    data = featurize(smiles, dtype=dtype)
    assert data.x.dtype == data.edge_attr.dtype == dtype
    assert data.edge_index.dtype == torch.int64
    assert_same(data, smiles2graph(Chem.CanonSmiles(smiles)))


def test_another_type_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"dtype = torch.float32 is not torch.uint8"):
        featurize("C", dtype=torch.float32)


def test_graphs_make_a_batch_and_may_be_written_to() -> None:
    graphs = [featurize("CC=O"), featurize("[Na+].[Cl-]"), featurize("O")]
    assert Batch.from_data_list(graphs).ptr.tolist() == [0, 3, 5, 6]
    for array in read_smiles("CC=O")[:3]:
        array += 1
    for name in ("x", "edge_index", "edge_attr"):
        graphs[0][name] += 1
    assert_same(featurize("CC=O"), smiles2graph("CC=O"))


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
    "O |bad": "its extension is not CXSMILES",
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
    copied = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, copied):
        assert (error.smiles, str(error)) == (text, str(caught.value))
        assert error.reason.startswith(REASONS[text])


@pytest.mark.parametrize("text", ["C1CC", "CX", "c1cccc1", "O |bad"])
def test_error_has_a_reason_if_rdkit_cannot_capture_its_log(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rdBase, "CaptureErrorLog")
    reason = "Can't kekulize" if text == "c1cccc1" else "syntax error"
    with pytest.raises(SmilesError, match=reason):
        featurize(text)


def test_long_texts_and_reasons_are_shortened() -> None:
    with pytest.raises(SmilesError) as caught:
        read_smiles("c1" + "c" * 498 + "1")
    assert len(str(caught.value)) < 400
    assert "501 characters" in str(caught.value)


@pytest.mark.parametrize("value", [None, 3.5, b"CCO", ["C"]])
def test_other_than_text_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"smiles is {value!r}, not a str")):
        featurize(value)


def test_most_atoms_are_numbered_right_and_more_are_refused() -> None:
    bonds = read_smiles("C" * 65_535, canonical=False).bonds
    np.testing.assert_array_equal(bonds[:, 0] + 1, bonds[:, 1])
    assert bonds[-1].tolist() == [65_533, 65_534]
    with pytest.raises(SmilesError, match=r"65,536 atoms, more than 65,535"):
        read_smiles("C" * 65_536)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (ValueError("Too many rings open at once."), "Too many rings open at once."),
        ("c1cccc1", "RDKit writes 'c1cccc1' and cannot read it, Can't kekulize mol."),
    ],
)
def test_canonical_order_that_rdkit_cannot_write_is_an_error_with_a_remedy(
    written: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(mol: Chem.Mol) -> object:
        if isinstance(written, Exception):
            raise written
        return written

    monkeypatch.setattr(Chem, "MolToSmiles", write)
    with pytest.raises(SmilesError, match=r"'CCO' .*no canonical.* canonical=False") as caught:
        read_smiles("CCO")
    assert reason in str(caught.value)
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
        for line in before.splitlines():
            name, state = line.rsplit(":", 1)
            (rdBase.EnableLog if state == "enabled" else rdBase.DisableLog)(name)
    assert capfd.readouterr() == ("", "")


def test_threads_get_the_reasons_of_their_own_texts(capfd: pytest.CaptureFixture[str]) -> None:
    def reason(text: str) -> str:
        try:
            return str(len(read_smiles(text).atoms))
        except SmilesError as error:
            return error.reason

    wanted = ["CCO", *REASONS] * 30
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(reason, wanted))
    for text, answer in zip(wanted, found, strict=True):
        assert answer.startswith(REASONS.get(text, "3")), text
    assert capfd.readouterr().err == ""


DEEP = """
import threading
from slicegraph.data.smiles import read_smiles

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


def graph_or_none(text: str, canonical: bool) -> MoleculeGraph | None:
    try:
        return read_smiles(text, canonical)
    except SmilesError:
        return None


def test_thousands_of_broken_texts(capfd: pytest.CaptureFixture[str]) -> None:
    num_graphs = 0
    for text in broken_texts(5_000, seed=4):
        graph = graph_or_none(text, canonical=False)
        assert (graph_or_none(text, canonical=True) is None) == (graph is None), text
        with rdBase.BlockLogs():
            mol = Chem.MolFromSmiles(text)
            assert (graph is not None) == (mol is not None and mol.GetNumAtoms() > 0), text
            if graph is not None and (num_graphs := num_graphs + 1) % 4 == 0:
                assert_same(featurize(text, canonical=False), smiles2graph(text))
    assert num_graphs > 500
    assert capfd.readouterr() == ("", "")


@settings(deadline=None, max_examples=300)
@given(text=st.one_of(st.text(), st.text(alphabet=ALPHABET, max_size=20)))
def test_any_text_is_a_graph_or_an_error(text: str) -> None:
    graph = graph_or_none(text, canonical=True)
    assert graph is None or len(graph.atoms) > 0


@st.composite
def vocabularies_and_features(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    vocabulary = draw(st.lists(st.integers(1, 300), min_size=1, max_size=7))
    row = st.tuples(*(st.integers(0, size - 1) for size in vocabulary)).map(list)
    return vocabulary, draw(st.lists(row, max_size=5))


@given(vocabularies_and_features())
def test_decoded_features_are_what_was_encoded(drawn: tuple[list[int], list[list[int]]]) -> None:
    vocabulary, rows = drawn
    code = FeatureCode(vocabulary)
    features = np.array(rows, dtype=np.int64).reshape(-1, len(vocabulary))
    codes = code.encode(features)
    assert (codes.dtype, codes.shape) == (code.dtype, (len(rows),))
    decoded = code.decode(codes)
    assert decoded.dtype == (np.uint8 if max(vocabulary) <= 256 else np.uint16)
    assert np.array_equal(decoded, features)


def test_first_feature_has_the_lowest_bits() -> None:
    codes = FeatureCode((5, 6, 2)).encode(np.array([[4, 0, 0], [0, 5, 0], [0, 0, 1]]))
    assert codes.tolist() == [4, 5 << 3, 1 << 6]


def test_vocabularies_are_those_of_ogb() -> None:
    assert list(OGB_ATOM_CODE.vocabulary) == get_atom_feature_dims()
    assert list(OGB_BOND_CODE.vocabulary) == get_bond_feature_dims()
    assert (OGB_ATOM_CODE.bits, OGB_ATOM_CODE.dtype) == (30, np.uint32)
    assert (OGB_BOND_CODE.bits, OGB_BOND_CODE.dtype) == (7, np.uint8)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [((2,) * 8, "u1"), ((2,) * 9, "u2"), ((1 << 16, 2), "u4"), ((1 << 32, 2), "u8"), ((1,), "u1")],
)
def test_smallest_integer_that_fits_is_taken(vocabulary: tuple[int, ...], dtype: str) -> None:
    code = FeatureCode(vocabulary)
    largest = np.array([code.vocabulary], dtype=np.uint64) - np.uint64(1)
    assert code.dtype == dtype
    assert np.array_equal(code.decode(code.encode(largest)), largest)


@pytest.mark.parametrize(
    ("error", "message", "features"),
    [
        (ValueError, r"features\[1, 1\] = 6 is not in 0\.\.5", np.array([[0, 0, 0], [0, 6, 0]])),
        (ValueError, r"features\[0, 2\] = -1 is not in 0\.\.1", np.array([[0, 0, -1]])),
        (ValueError, r"shape \[2, 2\], expected \[k, 3\]", np.zeros((2, 2), dtype=int)),
        (ValueError, r"shape \[3\], expected \[k, 3\]", np.zeros(3, dtype=int)),
        (TypeError, "features are float64, expected integers", np.zeros((2, 3))),
    ],
)
def test_wrong_features_are_named(error: type, message: str, features: np.ndarray) -> None:
    with pytest.raises(error, match=message):
        OGB_BOND_CODE.encode(features)


@pytest.mark.parametrize("vocabulary", [(), (3, 0), (1 << 32, 1 << 33)])
def test_impossible_vocabulary_is_refused(vocabulary: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="FeatureCode: "):
        FeatureCode(vocabulary)


def test_inchi_gives_the_graph_of_its_smiles():
    for text in ("InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3", " InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3 "):
        for found, expected in zip(read_smiles(text), read_smiles("CCO"), strict=True):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("text", ["InChI=", "InChI=1S/x", "InChI=1S/C2H6O/c1-2-\udce9"])
def test_inchi_that_rdkit_cannot_read_is_named(text):
    with pytest.raises(SmilesError, match="RDKit cannot read this InChI"):
        read_smiles(text)


@pytest.mark.parametrize("text", ["CC\u0421", "C\xff"])
def test_a_letter_that_is_not_ascii_is_an_error_and_not_the_end(text):
    with pytest.raises(SmilesError, match=r"\(U\+[0-9A-F]{4}\) is not a character of SMILES"):
        read_smiles(text)


@pytest.mark.parametrize("text", ["CC\xa0", "\ufeffCC", "CC\u200b", "CC \xe4thane", "CC\t\u0421"])
def test_invisible_characters_around_and_names_after_a_smiles_do_not_count(text):
    assert len(read_smiles(text).atoms) == 2
