"""Standard forms, keys, clusters and remarks of molecules."""

import os

import numpy as np
import pytest
from rdkit import Chem
from support.molecule_tables import random_smiles

from slicegraph.data.molecules import (
    STEPS,
    check_steps,
    clusters,
    exact_keys,
    isotopes,
    isotopologue,
    map_texts,
    molecule_key,
    molecule_keys,
    remarks,
    scaffold,
    scaffolds,
    standardize,
)
from slicegraph.data.smiles import SmilesError, read_smiles


@pytest.mark.parametrize(
    ("text", "steps", "expected"),
    [
        ("[2H]C([2H])([2H])O", ["hydrogens"], "CO"),
        ("[3H]OC", ["hydrogens"], "CO"),
        ("[13CH3]O", ["hydrogens"], "CO"),
        ("[H]C([H])([H])[2H]", ["hydrogens"], "C"),
        ("C[C@H]([2H])O", ["hydrogens"], "CCO"),  # the carbon was a stereocentre by its isotope
        ("[2H][2H]", ["hydrogens"], "[H][H]"),
        ("CC(=O)[O-].[Na+]", ["fragment"], "CC(=O)[O-]"),
        ("CC(=O)[O-].[Na+]", ["fragment", "charge"], "CC(=O)O"),
        ("CC(=O)O[Na]", ["charge", "fragment"], "CC(=O)O"),
        ("CC(=O)O[Ca]OC(C)=O", ["fragment", "charge"], "CC(=O)O"),
        ("C[NH3+].[Cl-]", ["charge"], "CN.Cl"),
        ("C[N+](C)(C)CC(=O)[O-]", ["charge"], "C[N+](C)(C)CC(=O)[O-]"),
        ("[Na+].c1cc[cH-]c1", ["fragment", "charge"], "C1=CCC=C1"),
        ("Oc1ccccn1", ["tautomer"], "O=c1cccc[nH]1"),
        ("O=c1cccc[nH]1", ["tautomer"], "O=c1cccc[nH]1"),
        ("CC(O)=CC(C)=O", ["tautomer"], "CC(=O)CC(C)=O"),
        ("N[C@@H](C)C(=O)O", ["tautomer"], "C[C@H](N)C(=O)O"),
        ("N[C@@H](C)C(=O)O", ["hydrogens", "fragment", "charge"], "C[C@H](N)C(=O)O"),
        ("OCC", [], "OCC"),
    ],
)
def test_a_molecule_is_standardized_by_the_named_steps(text, steps, expected):
    assert standardize(text, steps) == expected


@pytest.mark.parametrize("text", [*random_smiles(5, seed=1), "Oc1nc(N)c2nc[nH]c2n1", "CC(=O)NC=N"])
def test_every_spelling_has_one_standard_form_and_one_key(text):
    mol = Chem.MolFromSmiles(text)
    spelled = [Chem.MolToRandomSmilesVect(mol, 1, seed)[0] for seed in range(1, 8)]
    assert len({standardize(one, list(STEPS)) for one in spelled}) == 1
    assert len({molecule_key(one) for one in spelled}) == 1


def test_deuterated_methanol_has_two_heavy_atoms():
    assert len(read_smiles(standardize("[2H]C([2H])([2H])O", ["hydrogens"])).atoms) == 2


@pytest.mark.parametrize(
    ("text", "marks", "expected"),
    [
        ("[2H]C([2H])([2H])O", ["2H"], "[2H]C([2H])([2H])O"),
        ("[H]O[13CH3]", ["13C"], "[13CH3]O"),
        ("C[C@H]([2H])O", ["2H"], "[2H][C@@H](C)O"),  # a stereocentre by its isotope
        ("[Na+].[2H]C(=O)[O-]", ["2H"], "[2H]C(=O)O"),
        ("[2H]Oc1ccccn1", ["2H"], "[2H]Oc1ccccn1"),  # not the tautomer, which has another atom
        ("[18F]c1[13cH]cccc1", ["18F", "13C"], "[18F]c1cccc[13cH]1"),
        ("InChI=1S/CH4O/c1-2/h2H,1H3/i1D3", ["2H"], "[2H]C([2H])([2H])O"),
        ("[1*]CC", ["1*"], "[1*]CC"),
        ("CCO", [], ""),
    ],
)
def test_isotopes_are_kept_through_the_standardisation(text, marks, expected):
    assert isotopes(text) == marks
    kept = isotopologue(text, list(STEPS))
    assert kept == expected
    plain = standardize(text, list(STEPS))
    assert not isotopes(plain)
    if kept:
        assert standardize(kept, list(STEPS)) == plain
        assert molecule_key(kept) == molecule_key(text)
        assert exact_keys([kept])[0] != exact_keys([plain])[0]
        assert (
            Chem.MolToInchiKey(Chem.MolFromSmiles(kept))[:14]
            == (Chem.MolToInchiKey(Chem.MolFromSmiles(molecule_key(text)))[:14])
        )


def test_isotopes_stay_in_the_text_without_the_step_for_hydrogens():
    assert isotopologue("[2H]C.[Na+]", ["fragment"]) == ""
    assert standardize("[2H]C.[Na+]", ["fragment"]) == "[2H]C"


def test_a_text_that_is_no_molecule_is_a_smiles_error():
    with pytest.raises(SmilesError, match="unclosed ring"):
        standardize("C1CC", ["fragment"])


def test_steps_are_put_in_order_and_unknown_ones_are_named():
    assert check_steps(["tautomer", "charge", "charge"]) == ("charge", "tautomer")
    with pytest.raises(ValueError, match="standardize = 'salts', expected some of hydrogens, frag"):
        check_steps(["salts"])


@pytest.mark.parametrize(
    "texts",
    [
        ["CC(=O)O", "CC(=O)[O-].[Na+]", "CC(=O)O[Na]", "[2H]CC(O)=O", "O.O.CC(=O)[O-].[K+]"],
        ["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC([NH3+])C(=O)[O-]", "CC(N)C(=O)O.Cl"],
        ["F/C=C/F", "F/C=C\\F", "FC=CF"],
        ["C[N+](C)(C)CC(=O)[O-]", "C[N+](C)(C)CC(=O)O.[Cl-]"],
        ["CS(C)=O", "C[S+](C)[O-]"],
        ["CN(=O)=O", "C[N+](=O)[O-]"],
        ["[CH3:1][OH:2]", "CO", " OC "],
    ],
)
def test_salts_stereo_and_isotopes_have_one_key(texts):
    assert {molecule_key(text) for text in texts} == {molecule_key(texts[0])}


def test_different_molecules_have_different_keys():
    texts = ["CCO", "CCN", "CC=O", "c1ccccc1", "C1CCCCC1", "[Fe]", "*C", "Oc1ccccn1", "C1"]
    assert len(set(molecule_keys(texts).tolist())) == len(texts)


def test_the_key_of_a_text_that_is_no_molecule_is_the_text():
    assert molecule_key("C1CC") == "C1CC"
    assert molecule_keys(["C1CC", "\udcff"]).dtype == np.uint64


def test_a_chain_of_many_atoms_has_a_key():
    assert molecule_key("C" * 3000 + ".Cl") == "C" * 3000


def test_keys_are_the_same_numbers_forever():
    # The first 8 bytes of BLAKE2b of "CCO", as `b2sum -l 64` prints them.
    assert int(molecule_keys(["OCC.Cl"])[0]).to_bytes(8, "little").hex() == "6d200b6f6c9553c3"


def test_exact_keys_tell_stereoisomers_and_salts_apart():
    texts = ["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "CC(N)C(=O)O", "CC(N)C(=O)O.Cl", "OC(=O)C(N)C"]
    numbers = exact_keys(texts)
    assert numbers[2] == numbers[4]
    assert len(np.unique(numbers)) == 4


def test_workers_do_not_change_the_keys():
    texts = random_smiles(700, seed=2)
    assert np.array_equal(molecule_keys(texts, workers=1), molecule_keys(texts, workers=2))


def ends_its_process(text: str) -> str:
    return os._exit(1) if text == "bad" else text.upper()


def test_a_text_that_ends_its_process_costs_itself_alone():
    texts = ["a"] * 300 + ["bad"] + ["b"] * 300
    found = map_texts(ends_its_process, texts, workers=2)
    assert found == ["A"] * 300 + ["bad"] + ["B"] * 300


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("OC(=O)c1ccc(CCc2ccncc2)cc1", "c1ccc(CCc2ccncc2)cc1"),
        ("CCO", ""),
        ("C[C@H]1CC[C@@H](C2CC2)CC1", "C1CCC(C2CC2)CC1"),
        ("[Na+].[O-]c1ccccc1", "c1ccccc1"),
        ("F[Al](F)(F)(F)(F)(F)F", "F[Al](F)(F)(F)(F)(F)F"),
    ],
)
def test_scaffold_is_the_rings_and_their_linkers(smiles, expected):
    assert scaffold(smiles) == expected


def test_a_counterion_is_not_in_the_scaffold():
    assert scaffolds(["C[NH+]1CCCCC1.Cc1ccccc1S(=O)(=O)[O-]", "CN1CCCCC1"])[1] == "C1CCNCC1"
    assert scaffolds(["CCCCCCN1CCCCC1.Cc1ccccc1"]) == ["C1CCNCC1"]


def test_clusters_are_those_of_butina():
    from rdkit import DataStructs
    from rdkit.Chem import rdFingerprintGenerator
    from rdkit.ML.Cluster import Butina

    texts = list(dict.fromkeys(random_smiles(150, seed=3)))
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    prints = [generator.GetFingerprint(Chem.MolFromSmiles(molecule_key(text))) for text in texts]
    distances = [
        1 - similarity
        for i in range(1, len(prints))
        for similarity in DataStructs.BulkTanimotoSimilarity(prints[i], prints[:i])
    ]
    expected = Butina.ClusterData(distances, len(prints), 0.6 + 1e-9, isDistData=True)
    found = clusters(texts)
    sizes = sorted(np.unique(found, return_counts=True)[1].tolist())
    assert sizes == pytest.approx(sorted(map(len, expected)), abs=2)
    for number in np.unique(found):
        own = np.flatnonzero(found == number)
        near = DataStructs.BulkTanimotoSimilarity(prints[number], [prints[i] for i in own])
        assert min(near) >= 0.4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CCO", ""),
        ("[Na+].CC(=O)[O-]", "metal (Na)"),
        ("[Fe].[Zn]CC", "metal (Fe, Zn)"),
        ("*CC", "wildcard atom"),
        ("[He]", "noble gas (He); no carbon"),
        ("C" * 1200, "1,200 heavy atoms"),
        ("O", "no carbon"),
        ("[2H]C([2H])([2H])O", "3 explicit hydrogen atoms"),
        ("[H][H]", "no carbon"),
        ("CB(O)O", ""),
    ],
)
def test_remarks_name_what_is_unusual(text, expected):
    assert remarks(text) == expected
    assert remarks(Chem.MolFromSmiles(text)) == expected
    assert remarks(read_smiles(text)) == expected
