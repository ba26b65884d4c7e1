"""The C++ kernel for molecules: what RDKit reads from the canonical text, or a refusal."""

import numpy as np
import pytest
from ogb.utils import smiles2graph
from rdkit import Chem
from support.molecules import CHIRAL, MOLECULES, spellings

from slicegraph.data.molecule.feature_rows import OgbFeatures
from slicegraph.data.molecule.mol_records import binary_of, records_of
from slicegraph.ops.backends import cpu_molecule
from slicegraph.ops.backends.cpu_molecule import molecule_keys

pytestmark = pytest.mark.skipif(not cpu_molecule.available(), reason="no C++ kernels")

ORDERS = ("_smilesAtomOutputOrder", "_smilesBondOutputOrder")


def read(text: str) -> tuple[Chem.Mol, tuple[str, str, str]]:
    mol = Chem.MolFromSmiles(text)
    canonical = Chem.MolToSmiles(mol)
    return mol, (*map(mol.GetProp, ORDERS), canonical)


@pytest.mark.parametrize("smiles", CHIRAL)
def test_rows_of_a_chiral_molecule_are_those_of_its_canonical_text(smiles: str) -> None:
    features = OgbFeatures(np.uint8)
    for text in Chem.MolToRandomSmilesVect(Chem.MolFromSmiles(smiles), 20, randomSeed=3):
        mol, order = read(text)
        features(mol)
        assert features.known(mol, *order) == features(Chem.MolFromSmiles(order[-1])), text


@pytest.mark.parametrize("smiles", MOLECULES, ids=lambda text: text[:40])
def test_rows_in_an_order_are_those_of_the_canonical_text_or_none(smiles: str) -> None:
    features = OgbFeatures(np.uint8)
    for text in spellings(smiles, 4):
        mol, order = read(text)
        features(mol)
        assert features.known(mol, *order) in (None, features(Chem.MolFromSmiles(order[-1]))), text


@pytest.mark.parametrize("smiles", [*CHIRAL, "CC(=O)[O-].[NH4+]", "F/C=C/c1cc[nH]c1", "[Na+]"])
def test_keys_without_an_order_are_those_of_the_records(smiles: str) -> None:
    mol = Chem.MolFromSmiles(smiles)
    records = records_of(mol)
    atoms, ends, bonds = molecule_keys(binary_of(mol))
    assert list(atoms) == records.atom_keys()
    assert (ends, list(bonds)) == (records.ends, records.bond_keys())


@pytest.mark.parametrize(("one", "other"), [("@", "@@"), ("@@", "@")])
def test_who_has_seen_an_atom_knows_its_mirror_image(one: str, other: str) -> None:
    features = OgbFeatures(np.int64)
    features(Chem.MolFromSmiles(f"C[N{one}+](CC)(CCC)CO"))
    rows = features.known(Chem.MolFromSmiles(f"C[N{other}+](CC)(CCC)CO"))
    expected = smiles2graph(f"C[N{other}+](CC)(CCC)CO")["node_feat"]
    np.testing.assert_array_equal([np.frombuffer(row, np.int64) for row in rows.atoms], expected)


@pytest.mark.parametrize("smiles", ["[13CH4]", "[CH3:1]C", "C" * 256])
def test_other_forms_are_refused(smiles: str) -> None:
    mol = Chem.MolFromSmiles(smiles)
    assert molecule_keys(mol.ToBinary(0)) is None
    features = OgbFeatures(np.uint8)
    assert [list(row) for row in features(mol).atoms] == smiles2graph(smiles)["node_feat"].tolist()


def test_binary_that_is_cut_short_is_refused() -> None:
    mol = Chem.MolFromSmiles("F/C=C/[C@H](O)C1CC1")
    binary, records = mol.ToBinary(0), records_of(mol)
    rings_end = binary.index(bytes((len(records.rings), *records.rings))) + 1 + len(records.rings)
    whole = molecule_keys(binary)
    for size in range(28, len(binary)):
        assert molecule_keys(binary[:size]) == (whole if size >= rings_end else None), size


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        *((0, "[0,1,2]"), (0, "[0,1,2,2,3]"), (0, "[0,1,2,3,5]"), (0, "[]")),
        *((1, "[0,1,2]"), (1, "[0,1,1,2]"), (1, "[0,1,2,4]"), (1, "[0,1,2,99999999999]")),
        *((2, "NC(F)Cl"), (2, "N[CH](F)C1Cl1"), (2, "N[C@H2](F)Cl"), (2, "N[C@](F)Cl")),
        *((2, "N[C@H](F)Cl.[C@H]"), (2, "N[C@H"), (2, "N[C@H](F)->Cl"), (2, "N[C@H](F)C%(1Cl")),
    ],
)
def test_order_that_is_not_the_molecules_is_refused(part: int, wrong: str) -> None:
    mol, order = read("F[C@H](N)CCl")
    parts = [text.encode() for text in order]
    assert molecule_keys(binary_of(mol), *parts) is not None
    parts[part] = wrong.encode()
    assert molecule_keys(binary_of(mol), *parts) is None
