"""Pre-training without labels, and what starts from it."""

import json

import numpy as np
import pytest
import torch
from rdkit import Chem
from rdkit.Chem import Descriptors, rdFingerprintGenerator
from support.tiny_run import MODEL, smiles, tiny_run

import slicegraph
from slicegraph.data import MoleculeStore, collate
from slicegraph.data import descriptors as numbers_of_rdkit
from slicegraph.data.descriptors import (
    ATOM,
    DESCRIPTORS,
    FEATURES,
    MOLECULE,
    NormalScores,
    compute_descriptors,
    molecule_features,
)
from slicegraph.data.prepare import prepare
from slicegraph.models import GraphSliceformer, load
from slicegraph.train import TrainConfig
from slicegraph.train import pretrain as module
from slicegraph.train.pretrain import LOSSES, Heads, deviance, mask, pretrain

ODD = ["[Na+].[O-]C(=O)c1ccccc1", "C[Fe]C", "[He]", "not a molecule", "c1ccc2ccccc2c1", "OCC"]
CONFIG = TrainConfig(model=MODEL, batch_size=16, max_steps=60, lr=1e-2, dropout=0.1, threads=1)


def write_smiles(path, texts):
    path.write_text("\n".join(["smiles", *texts]) + "\n")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    texts = [*smiles(20), *ODD, "OC(=O)c1ccc(N)cc1"]
    prepare(write_smiles(folder / "m.csv", texts), folder / "s", labels=[], workers=1)
    return MoleculeStore(folder / "s")


@pytest.fixture(scope="module")
def numbers(store, tmp_path_factory):
    return compute_descriptors(store, tmp_path_factory.mktemp("numbers"), workers=1)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A pre-training on two sources, and the folder of its sources."""
    folder = tmp_path_factory.mktemp("pretrain")
    write_smiles(folder / "one.csv", smiles(60))
    write_smiles(folder / "two.csv", [*ODD, "CCO"])
    write_smiles(folder / "test.csv", ["c1ccc2ccccc2c1"])
    options = {"exclude": [folder / "test.csv"], "licence": "CC0 1.0", "workers": 1}
    sources = [folder / "one.csv", folder / "two.csv"]
    return pretrain(sources, folder / "out", CONFIG, progress=False, **options), folder


def test_the_numbers_are_those_of_rdkit(store, numbers):
    position = next(i for i in range(len(store)) if "c1ccc(N)cc1" in store.smiles(i))
    mol = Chem.MolFromSmiles(Chem.MolToSmiles(Chem.MolFromSmiles(store.smiles(position))))
    found = numbers.molecules[position]
    assert found["descriptors"][DESCRIPTORS.index("MolWt")] == pytest.approx(137.138, abs=1e-2)
    assert found["fragments"][numbers_of_rdkit.FRAGMENTS.index("fr_NH2")] == 1
    ptr = np.concatenate([[0], np.cumsum(store.num_atoms)])
    atoms = numbers.atoms[ptr[position] : ptr[position + 1]]
    in_ring = np.array([atom.IsInRing() for atom in mol.GetAtoms()])
    assert atoms["ring"].tolist() == np.where(in_ring, 6, 0).tolist()
    ring_feature = store.batch([position]).x[:, 8]  # the atoms are in the order of the store
    assert ring_feature.tolist() == in_ring.tolist()


def test_features_are_those_of_rdkit_for_every_spelling():
    names = (*DESCRIPTORS, *numbers_of_rdkit.FRAGMENTS)
    found = molecule_features("c1cc(N)ccc1C([O-])=O.[Na+]", ["morgan", "rdkit"])
    again = molecule_features("[Na+].[O-]C(=O)c1ccc(N)cc1", ["morgan", "rdkit"])
    assert np.array_equal(found, again, equal_nan=True)
    morgan, rdkit = np.split(found, [FEATURES["morgan"]])
    mol = Chem.MolFromSmiles("[Na+].[O-]C(=O)c1ccc(N)cc1")
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    assert np.array_equal(morgan, generator.GetCountFingerprintAsNumPy(mol))
    known = dict(Descriptors.descList)
    expected = np.array([known[name](mol) for name in names], np.float32)
    assert names == tuple(name for name in known if name != "qed")
    assert np.isfinite(rdkit).mean() > 0.9  # RDKit has no charges for Na
    assert np.array_equal(rdkit, np.where(np.isfinite(expected), expected, np.nan), equal_nan=True)
    with pytest.raises(ValueError, match="features = 'maccs', expected some of rdkit, morgan"):
        molecule_features("C", ["maccs"])


def test_a_molecule_without_numbers_costs_the_others_nothing(store, numbers, tmp_path, monkeypatch):
    def fail(text, features):
        if text == "OCC":
            raise RuntimeError("RDKit")
        return work(text, features)

    work = numbers_of_rdkit._numbers_of
    monkeypatch.setattr(numbers_of_rdkit, "_numbers_of", fail)
    found = compute_descriptors(store, tmp_path, workers=1)
    bad = np.array([store.smiles(i) == "OCC" for i in range(len(store))])
    assert bad.sum() == 1
    assert (found.molecules["morgan"][bad] == numbers_of_rdkit.UNKNOWN).all()
    assert np.isnan(found.molecules["descriptors"][bad]).all()
    assert found.molecules[~bad].tobytes() == numbers.molecules[~bad].tobytes()


def test_an_interrupted_computation_keeps_what_it_has(store, numbers, tmp_path, monkeypatch):
    done = []

    def work(items, stop=True):
        if len(done) == 2 and stop:
            raise KeyboardInterrupt
        done.append(len(items))
        return own(items)

    own = numbers_of_rdkit._numbers
    monkeypatch.setattr(numbers_of_rdkit, "_PART", 10)
    monkeypatch.setattr(numbers_of_rdkit, "_numbers", work)
    with pytest.raises(KeyboardInterrupt):
        compute_descriptors(store, tmp_path, workers=1)
    monkeypatch.setattr(numbers_of_rdkit, "_numbers", lambda items: work(items, stop=False))
    found = compute_descriptors(store, tmp_path, workers=1)
    assert sum(done) == len(store)  # nothing was computed twice
    assert found.molecules.tobytes() == numbers.molecules.tobytes()
    assert found.atoms.tobytes() == numbers.atoms.tobytes()
    assert found.molecules.dtype == MOLECULE
    assert found.atoms.dtype == ATOM


def test_normal_scores_follow_the_ranks():
    values = np.full((2001, len(DESCRIPTORS)), 7.0)
    values[:, 3] = np.exp(np.linspace(0, 10, 2001))  # of which only the ranks matter
    values[:, 4] = np.nan
    scores = NormalScores(values)
    assert scores.names == (DESCRIPTORS[3],)  # the others are constant or unknown
    found = scores(values)[:, 0]
    expected = torch.special.ndtri(torch.linspace(0.0025, 0.9975, 2001)).numpy()
    assert np.abs(found - expected / expected.std()).max() < 0.05
    assert np.isnan(scores(np.full((1, len(DESCRIPTORS)), np.nan))).all()


def test_the_deviance_is_that_of_torch_less_its_minimum():
    count, log_rate = torch.tensor([0.0, 1, 3]), torch.tensor([0.5, -1, 1.2])
    loss = torch.nn.PoissonNLLLoss(reduction="none")
    least = loss(count.clamp(min=1e-9).log(), count)
    torch.testing.assert_close(deviance(log_rate, count), loss(log_rate, count) - least)


def test_masked_atoms_cannot_be_read(store):
    positions = [*range(len(store))] * 20
    batch, model = collate(store, positions), GraphSliceformer.from_preset("mini", **MODEL)
    masked = mask(collate(store, positions), Heads(model).sizes, seed=1)
    hidden = masked.masked_atoms
    assert 0 < hidden.sum() < len(hidden) / 4
    assert (masked.x[hidden] == torch.tensor([118, 4, 11, 11, 9, 5, 5, 0, 0])).all()
    assert torch.equal(masked.x[~hidden], batch.x[~hidden])
    assert torch.equal(masked.true_atoms, batch.x[hidden].long())
    touched = hidden[batch.edge_index].any(0)
    assert (masked.edge_attr[touched] == torch.tensor([4, 5, 0])).all()
    assert torch.equal(masked.edge_attr[~touched], batch.edge_attr[~touched])
    assert set(batch.batch[hidden].tolist()) == set((~masked.whole).nonzero().flatten().tolist())


def test_every_loss_is_one_for_the_best_constant_prediction(finished):
    result, _ = finished
    assert set(result.record["constants"]) == set(LOSSES)
    assert result.record["constants"]["descriptors"] == pytest.approx(1, abs=0.1)
    model = GraphSliceformer.from_preset("mini", **MODEL)
    heads, count = Heads(model), 400
    random = torch.Generator().manual_seed(0)
    true = {"descriptors": torch.randn(count, 5, generator=random)}
    true |= {"charges": torch.randn(count, 1, generator=random)}
    for name, rate in (("fragments", 0.2), ("morgan", 3.0)):
        shape = (count, getattr(heads, name).out_features)
        true[name] = torch.poisson(torch.full(shape, rate), generator=random)
    for name, sizes in heads.sizes.items():
        own = [torch.randint(min(3, size), (count,), generator=random) for size in sizes]
        true[name] = torch.stack(own, 1)
    constants = heads.set_constants(true)
    # The entropy of three (or two) equal classes; E[k log k] - E[k] log E[k] of a count k.
    assert constants["rings"] == pytest.approx(np.log(3), rel=0.02)
    expected = sum(np.log(min(3, size)) for size in heads.sizes["atoms"])
    assert constants["atoms"] == pytest.approx(expected, rel=0.02)
    k = torch.arange(60.0)
    chance = torch.distributions.Poisson(3.0).log_prob(k).exp()
    expected = float((chance * torch.xlogy(k, k)).sum()) - 3 * np.log(3)
    assert constants["morgan"] == pytest.approx(expected, rel=0.02)
    bias = {name: layer.bias.expand(count, -1) for name, layer in heads.named_children()}
    found = {"descriptors": torch.zeros(count, 5), **bias}
    for name, (total, known) in heads.losses(found, true).items():
        assert float(total / known) == pytest.approx(constants[name], rel=1e-5)
        worse = {
            **found,
            name: found[name] + 0.3 * torch.randn(found[name].shape, generator=random),
        }
        assert heads.losses(worse, true)[name][0] > total


def test_gaps_have_no_loss(finished):
    heads = Heads(GraphSliceformer.from_preset("mini", **MODEL))
    found = {"descriptors": torch.ones(4, 5)}
    found |= {name: layer.bias.expand(4, -1) for name, layer in heads.named_children()}
    gaps = {name: torch.full_like(values, torch.nan) for name, values in found.items()}
    gaps |= {name: torch.full((4, len(sizes)), -1) for name, sizes in heads.sizes.items()}
    for total, count in heads.losses(found, gaps).values():
        assert (total.item(), count.item()) == (0, 0)


def test_the_losses_fall_and_the_card_has_the_facts(finished):
    result, _ = finished
    record = json.loads((result.model / "config.json").read_text())["training"]
    assert record["end"]["all"] < 0.95 * record["start"]["all"]
    # 60 chains, CCO is one of them; one molecule is excluded, one row is not a molecule
    left_out = {"cannot be read": 1, "repeated": 2, "excluded": 1}
    assert {name: record["left_out"][name] for name in left_out} == left_out
    assert sum(record["molecules"].values()) == 60 + 3
    assert [one["rows"] for one in record["sources"]] == [60, 7]
    assert sum(one["trained"] for one in record["sources"]) == record["molecules"]["train"]
    card = (result.model / "README.md").read_text()
    for text in ("CC0 1.0", "one.csv", "test.csv", *LOSSES, f"{record['end']['rings']:.3f}"):
        assert text in card


def test_an_interrupted_run_ends_with_the_same_weights(finished, monkeypatch):
    result, folder = finished
    sources = [folder / "one.csv", folder / "two.csv"]
    options = {"exclude": [folder / "test.csv"], "licence": "CC0 1.0", "workers": 1}
    options |= {"progress": False, "data": result.folder / "data"}
    update, done = module._Run._update, []

    def stop(run, *arguments):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(run.step)
        update(run, *arguments)

    monkeypatch.setattr(module._Run, "_update", stop)
    with pytest.raises(KeyboardInterrupt):
        pretrain(sources, folder / "again", CONFIG, **options)
    monkeypatch.setattr(module._Run, "_update", update)
    with pytest.raises(ValueError, match="begun with limit = None, not 5"):
        pretrain(sources, folder / "again", CONFIG, **options, limit=5)
    again = pretrain(sources, folder / "again", CONFIG, **options)
    expected, found = load(result.model).state_dict(), load(again.model).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert again.record["end"] == result.record["end"]


def test_fine_tuning_starts_from_all_weights_of_the_encoder(finished, tmp_path, capsys):
    result, _ = finished
    own = load(result.model).state_dict()
    run = tiny_run(tmp_path, init=str(result.folder), model={}, max_steps=1, epochs=None, lr=1e-9)
    tuned = slicegraph.load(run.model).state_dict()
    encoder = [name for name in own if not name.startswith("head.")]
    assert set(tuned) == {*encoder, "head.weight", "head.bias"}
    for name in encoder:
        torch.testing.assert_close(tuned[name], own[name], atol=1e-6, rtol=1e-6)
    loaded = f"init: {len(encoder)} of {len(own)} weights are those of {result.folder}"
    assert f"{loaded}; random: head.weight, head.bias" in capsys.readouterr().out


def test_rings_are_refused_before_anything_is_computed(tmp_path):
    config = TrainConfig(preset="rings", max_steps=1)
    with pytest.raises(ValueError, match="rings = 8 adds nodes that are no atoms"):
        pretrain([tmp_path / "missing.csv"], tmp_path / "out", config, progress=False)


def test_a_token_readout_is_refused_before_anything_is_computed(tmp_path):
    config = TrainConfig(model={**MODEL, "readout": "token"}, max_steps=1)
    with pytest.raises(ValueError, match="readout = 'token' has no vectors of atoms"):
        pretrain([tmp_path / "missing.csv"], tmp_path / "out", config, progress=False)
