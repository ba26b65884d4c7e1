"""Contributions of atoms: Shapley values that add up, and follow what is known of logP."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen, rdMolDescriptors
from support.small_models import small_model
from support.tiny_run import tiny_run, write_table

import slicegraph
from slicegraph.data.datasets.source import shipped_folder
from slicegraph.data.descriptors import (
    descriptor_changes,
    molecule_features,
    morgan_environments,
    named_features,
)
from slicegraph.data.smiles import canonical_text, parse_smiles, read_smiles
from slicegraph.predict.explain import (
    Explanation,
    Substructures,
    _numbers_of_parts,
    baseline_of,
    part_of,
    read_atoms,
    shapley_values,
    substructures_of,
)

LARGE = "CC(C)Cc1ccc(cc1)[C@@H](C)C(=O)O"
CHLORIDE = "C[N+](C)(C)CCO.[Cl-]"


def gloves(groups: np.ndarray) -> np.ndarray:
    """One left glove and two right ones: a pair is worth 1."""
    return (groups[:, :1] & groups[:, 1:].any(1, keepdims=True)).astype(float)


def random_game(players: int):
    table = np.random.default_rng(3).normal(size=(2**players, 2))
    return lambda groups: table[groups @ (1 << np.arange(players))]


def test_the_glove_game_has_its_known_values():
    shares, errors = shapley_values(gloves, 3)
    np.testing.assert_allclose(shares[:, 0], [2 / 3, 1 / 6, 1 / 6])
    assert not errors.any()


def test_few_players_have_the_mean_over_all_orders():
    game, total = random_game(5), np.zeros((5, 2))
    for order in itertools.permutations(range(5)):
        group = np.zeros((1, 5), bool)
        for player in order:
            before = game(group)[0]
            group[0, player] = True
            total[player] += game(group)[0] - before
    found, _ = shapley_values(game, 5)
    np.testing.assert_allclose(found, total / math.factorial(5))


def test_samples_add_up_and_come_near_all_orders():
    game = random_game(9)
    exact, _ = shapley_values(game, 9, samples=512)
    ends = game(np.ones((1, 9), bool))[0] - game(np.zeros((1, 9), bool))[0]
    found, errors = shapley_values(game, 9, samples=32)
    np.testing.assert_allclose(found.sum(0), ends)
    assert (np.abs(found - exact) < 4 * errors).mean() > 0.9
    assert np.sqrt(((found - exact) ** 2).mean()) < 2 * np.sqrt((errors**2).mean())


@pytest.mark.parametrize("samples", [0, 2, 7])
def test_an_odd_or_small_number_of_samples_is_refused(samples):
    with pytest.raises(ValueError, match=f"samples = {samples}, expected an even number"):
        shapley_values(gloves, 3, samples)


def test_a_part_has_the_atoms_and_the_bonds_between_them():
    graph = read_smiles("CCO")
    part = part_of(graph, np.array([False, True, True]))
    assert part.atoms.tolist() == graph.atoms[1:].tolist()
    assert part.bonds.tolist() == [[0, 1]]
    assert part_of(graph, np.array([True, False, True])).bonds.shape == (0, 2)


TASKS = {
    "regression": {"target_mean": (2.0, 5.0), "target_std": (1.5, 0.5), "num_targets": 2},
    "binary": {"task": "binary", "label_means": (0.2,)},
    "multiclass": {
        **{"task": "multiclass", "num_classes": 3, "class_names": ("a", "b", "c")},
        "label_means": (0.5, 0.3, 0.2),
    },
}


@pytest.mark.parametrize("mixer", ["quantile_attn", "sort_attn", "qkv"])
@pytest.mark.parametrize("task", TASKS)
def test_contributions_add_up_to_the_prediction_minus_the_baseline(task, mixer):
    model = small_model(mixer=mixer, **TASKS[task])
    for text in ("C", "CCO", LARGE, CHLORIDE):
        values = model.predict(text)[0]
        for t, one in enumerate(model.explain(text, samples=8)):
            value = values[t] if task == "regression" else values.max(initial=0)
            if task == "binary":
                value = values
            expected = value if task == "regression" else math.log(value / (1 - value))
            assert one.prediction == pytest.approx(expected, abs=1e-4)
            assert one.baseline + one.contributions.sum() == pytest.approx(expected, abs=1e-4)
            assert len(one.contributions) == Chem.MolFromSmiles(text).GetNumAtoms()


def test_the_baseline_is_the_mean_label_or_the_share_of_the_class():
    means = [small_model(**fields).config for fields in TASKS.values()]
    assert [baseline_of(means[0], t, 1) for t in (0, 1)] == [2.0, 5.0]
    assert baseline_of(means[1], 0, 1) == pytest.approx(math.log(0.2 / 0.8))
    assert baseline_of(means[2], 0, 1) == pytest.approx(math.log(0.3 / 0.7))
    unknown = small_model(task="multiclass", num_classes=4).config
    assert baseline_of(unknown, 0, 2) == pytest.approx(math.log(0.25 / 0.75))


def test_classes_are_named_with_what_is_explained():
    model = small_model(**TASKS["multiclass"], target_names=("kind",))
    one = model.explain("CCO")[0]
    assert one.class_name == "abc"[int(model.predict("CCO")[0].argmax())]
    assert one.quantity == f"log-odds of kind {one.class_name}"


@pytest.mark.parametrize("text", [LARGE, CHLORIDE, "O=C1CCCN1", "[2H]C", "[CH3:7][OH:2]"])
def test_contributions_are_in_the_order_of_the_text(text):
    model = small_model()
    one = model.explain(text, samples=8)[0]
    mol = Chem.MolFromSmiles(text)
    assert list(one.symbols) == [atom.GetSymbol() for atom in mol.GetAtoms()]
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    other = Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False)
    found = model.explain(other, samples=8)[0]
    written = Chem.MolFromSmiles(other)
    places = written.GetSubstructMatches(mol, uniquify=False, useChirality=True)
    each = [found.contributions[list(place)] for place in places]
    assert min(np.abs(own - one.contributions).max() for own in each) < 1e-4


def test_an_inchi_and_a_standardised_molecule_are_explained_as_they_were_read():
    inchi = "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"
    assert sorted(small_model().explain(inchi)[0].symbols) == ["C", "C", "O"]
    one = small_model(standardize=("fragment", "charge")).explain("CC(=O)[O-].[Na+]")[0]
    assert one.smiles == "CC(=O)O"
    assert len(one.contributions) == 4


def test_dative_bonds_keep_every_atom():
    atoms = read_atoms("[NH3]->[Cu]")
    assert sorted(atoms.symbols) == ["Cu", "N"]
    own = [Chem.MolFromSmiles(atoms.smiles).GetAtomWithIdx(int(i)) for i in atoms.places]
    assert [atom.GetAtomicNum() for atom in own] == (atoms.graph.atoms[:, 0] + 1).tolist()


def test_a_bad_molecule_and_an_unknown_target_are_named():
    model = small_model(target_names=("gap",))
    with pytest.raises(ValueError, match=r"explain: smiles\[1\] = 'C1CC': unclosed ring"):
        model.explain(["CCO", "C1CC"])
    with pytest.raises(ValueError, match="no target 'logP', the model has gap"):
        model.explain("CCO", targets="logP")


def test_an_ensemble_has_the_mean_contributions_of_its_models():
    models = [small_model(seed=seed, label_means=(1.0,)) for seed in (0, 1)]
    alone = [model.explain(LARGE, samples=8)[0].contributions for model in models]
    both = small_model(seed=0, label_means=(1.0,)).attach(models[1:], None)
    found = both.explain(LARGE, samples=8)[0]
    np.testing.assert_allclose(found.contributions, np.mean(alone, 0), atol=1e-4)


def test_a_model_of_logarithms_is_explained_in_logarithms():
    options = {"target_mean": (-1.0,), "target_std": (0.5,), "label_means": (-1.0,)}
    model = small_model(log_target=True, target_names=("Ki",), unit="nM", **options)
    one = model.explain(LARGE, samples=8)[0]
    assert one.quantity == "log10 of Ki in nM"
    assert one.baseline == -1
    assert one.prediction == pytest.approx(np.log10(model.predict(LARGE)[0]), abs=1e-4)


def test_the_table_has_a_row_for_each_atom_and_a_notebook_its_picture():
    found = small_model(target_names=("<b>",)).explain(["CCO", "N"])
    table = found.table()
    assert table["row"].tolist() == [0, 0, 0, 1]
    assert table["symbol"].tolist() == ["C", "C", "O", "N"]
    page = found._repr_html_()
    assert page.count("<svg") == 2
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_fragments_are_those_of_brics_and_rings_those_of_rdkit():
    found = list(substructures_of("CC(=O)Nc1ccc2ccccc2c1"))
    assert [(name, len(atoms)) for kind, name, atoms in found if kind == "ring"] == [
        ("c1ccccc1", 6),
        ("c1ccccc1", 6),
    ]
    fragments = {name: atoms for kind, name, atoms in found if kind == "fragment"}
    assert sorted(atom for atoms in fragments.values() for atom in atoms) == list(range(14))
    assert {"*N*", "*C(C)=O"} <= set(fragments)


def test_a_substructure_has_the_mean_of_the_sums_of_its_atoms():
    def explained(text: str, value: float) -> Explanation:
        atoms = Chem.MolFromSmiles(text).GetNumAtoms()
        values, none = np.full(atoms, value), np.zeros(atoms)
        return Explanation(text, ("C",) * atoms, values, none, 0.0, 0.0, "y")

    parts = Substructures()
    parts.add([explained("Cc1ccccc1", 1.0), explained("Clc1ccc(cc1)-c1ccccc1", 0.5)])
    rings = [row for row in parts.rows() if row[2] == "ring"]
    deviation = np.std([6.0, 3.0, 3.0])
    assert [row[:7] for row in rings] == [["y", "", "ring", "c1ccccc1", 2, 3, 4.0]]
    assert rings[0][7] == pytest.approx(deviation)


@pytest.mark.parametrize("columns", ["gap", "active", "class"])
def test_a_trained_model_has_the_means_of_its_labels(tmp_path, columns):
    write_table(tmp_path / "table.csv", columns=columns)
    task = "multiclass" if columns == "class" else None
    result = tiny_run(tmp_path, targets=(columns,), task=task, epochs=1)
    tables = [result.folder / f"predictions/{part}.csv" for part in ("valid", "test")]
    held = pd.concat(map(pd.read_csv, tables))
    train = pd.read_csv(tmp_path / "table.csv").drop(index=held["row"])[columns]
    expected = train.value_counts(normalize=True).sort_index().tolist() if task else [train.mean()]
    found = slicegraph.load(result.folder).config.label_means
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def crippen_contributions(smiles: str) -> np.ndarray:
    """RDKit's contributions of the heavy atoms to logP, with those of their hydrogens."""
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    # A private name, but the only way to the contributions.
    found = [logp for logp, _ in rdMolDescriptors._CalcCrippenContribs(mol)]
    heavy = mol.GetNumHeavyAtoms()
    for atom in list(mol.GetAtoms())[heavy:]:
        found[atom.GetNeighbors()[0].GetIdx()] += found[atom.GetIdx()]
    return np.array(found[:heavy])


@pytest.mark.slow
def test_contributions_to_logp_correlate_with_those_of_crippen(tmp_path):
    shipped = pd.read_csv(shipped_folder("mini") / "mini.csv.gz")
    texts = shipped["smiles"].sample(1500, random_state=0)
    lines = [f"{text},{Crippen.MolLogP(Chem.MolFromSmiles(text)):.4f}" for text in texts]
    table = tmp_path / "logp.csv"
    table.write_text("\n".join(["smiles,logP", *lines]))
    settings = {"batch_size": 50, "epochs": 6, "lr": 3e-3, "threads": 1}
    settings |= {"model": {"num_layers": 3, "channels": 48, "ffn_channels": 48, "heads": 4}}
    result = slicegraph.train(
        {"data": f"csv:{table}", "targets": ("logP",), "out": str(tmp_path / "run"), **settings},
        progress=False,
    )
    test = pd.read_csv(result.folder / "predictions/test.csv")["smiles"][:40]
    found = slicegraph.load(result.folder).explain(test, samples=16)
    own = np.concatenate([one.contributions for one in found])
    known = np.concatenate([crippen_contributions(one.smiles) for one in found])
    assert np.corrcoef(own, known)[0, 1] > 0.5


@pytest.fixture(scope="module")
def kernel_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernel")
    table = write_table(folder / "table.csv", count=80)
    options = {"root": str(folder / "data"), "accelerator": "cpu", "threads": 1}
    run = slicegraph.train(data=table, out=str(folder / "run"), progress=False, **options)
    return slicegraph.load(run.model)


def test_atoms_of_a_kernel_head_have_what_their_neighbourhoods_are_worth(kernel_model):
    """The label counts nitrogens, and oxygens by half; its mean is the baseline."""
    found = kernel_model.explain("CCNCOC")[0]
    total = found.contributions.sum()
    assert found.baseline + total == pytest.approx(kernel_model.predict("CCNCOC")[0], abs=1e-4)
    by_atom = dict(zip(range(6), found.contributions, strict=True))
    assert max(by_atom, key=by_atom.get) == found.symbols.index("N")
    carbons = [by_atom[k] for k in range(6) if found.symbols[k] == "C"]
    assert by_atom[found.symbols.index("O")] > max(carbons)


def test_a_part_has_the_counts_of_the_neighbourhoods_in_it(kernel_model):
    atoms = read_atoms("CCNCOC")
    config = kernel_model.config
    own = named_features("CCNCOC", config.descriptors, 2048)
    parts = _numbers_of_parts(config, atoms, own)
    np.testing.assert_allclose(parts(np.ones((1, 6), bool))[0], own, rtol=1e-5, atol=1e-5)
    none, one = parts(np.array([[False] * 6, [True] + [False] * 5]))
    assert none[-2048:].sum() == 0
    assert one[-2048:].sum() == 1  # the atom alone, of radius 0
    np.testing.assert_allclose(none[:-2048], config.feature_mean, rtol=1e-5, atol=1e-5)


def test_a_removed_atom_changes_descriptors_as_hydrogens_in_its_place_do():
    names = ("MolWt", "MolLogP", "TPSA", "fr_NH2", "NumAromaticRings")
    text = canonical_text(parse_smiles("Nc1ccccc1C"))
    changes = descriptor_changes(text, names)
    whole, toluene, aniline = (
        named_features(one, names, 0) for one in (text, "Cc1ccccc1", "Nc1ccccc1")
    )
    graph = read_smiles(text)
    degrees = np.bincount(graph.bonds.ravel(), minlength=len(graph.atoms))
    nitrogen, methyl = np.flatnonzero(degrees == 1)[
        np.argsort(-graph.atoms[degrees == 1, 0].astype(int))
    ]
    np.testing.assert_allclose(changes[nitrogen], whole - toluene, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(changes[methyl], whole - aniline, rtol=1e-4, atol=1e-4)
    assert changes[degrees == 3, names.index("NumAromaticRings")].tolist() == [1, 1]


def test_a_molecule_of_one_atom_has_changes_too():
    assert descriptor_changes("C", ("MolWt",)).shape == (1, 1)


@pytest.mark.parametrize("text", [LARGE, CHLORIDE, "C", "O=C(O)c1ccccc1"])
def test_the_neighbourhoods_of_a_molecule_are_its_counts(text):
    bits, atoms = morgan_environments(text)
    counts = molecule_features(text, ["morgan"])
    np.testing.assert_array_equal(np.bincount(bits, minlength=2048), counts)
    graph = read_smiles(text)
    assert atoms.shape == (len(bits), len(graph.atoms))
    elements = [graph.atoms[row.argmax(), 0] for row in atoms[atoms.sum(1) == 1]]
    assert sorted(elements) == sorted(graph.atoms[:, 0])  # of radius 0: every atom, once
