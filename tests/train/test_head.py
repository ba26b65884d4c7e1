"""Heads that are solved on the vectors of an encoder, and runs that start from the weights."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from sklearn.linear_model import LogisticRegression, RidgeCV
from support.tiny_run import tiny_config, tiny_run, write_table
from torch_geometric.data import Data

import slicegraph
from slicegraph.models import load
from slicegraph.models.base import SHIPPED
from slicegraph.nn.readout import KernelHead
from slicegraph.train import TrainConfig
from slicegraph.train.config import SMALL_TABLE
from slicegraph.train.head import (
    STRENGTHS,
    gaussian_process,
    left_out_loss,
    logistic,
    ridge,
    solve_head,
)
from slicegraph.train.run_folder import RunFolder


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 12))
    y = x @ random.normal(size=12) + 2 + random.normal(size=60)
    return x, y, random.uniform(0.5, 2, 60)


def test_the_ridge_is_that_of_scikit_learn(vectors):
    x, y, _ = vectors
    x = x - x.mean(0)
    tensors = map(torch.from_numpy, (x, y, np.ones(60)))
    solution, bias, strength = ridge(*tensors)
    expected = RidgeCV(STRENGTHS).fit(x, y)
    assert strength == pytest.approx(expected.alpha_)
    np.testing.assert_allclose(solution[0], expected.coef_, rtol=1e-6)
    assert float(bias) == pytest.approx(expected.intercept_)


def test_the_ridge_minimises_the_weighted_error(vectors):
    x, y, weight = map(torch.from_numpy, vectors)
    weight = weight / weight.mean()
    solution, bias, strength = ridge(x, y, weight)
    solution, bias = solution.requires_grad_(), bias.requires_grad_()
    error = (weight * (x @ solution[0] + bias - y).square()).sum()
    (error + strength * solution.square().sum()).backward()
    assert solution.grad.abs().max() < 1e-8
    assert bias.grad.abs().max() < 1e-8


@pytest.mark.parametrize("classes", [2, 3])
def test_the_logistic_regression_is_that_of_scikit_learn(vectors, classes):
    x, y, _ = vectors
    labels = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)).astype(float)
    tensors = map(torch.from_numpy, (x, labels, np.ones(60)))
    solution, _, strength = logistic(*tensors, classes=1 if classes == 2 else 3, seed=0)
    expected = LogisticRegression(C=1 / (60 * strength), tol=1e-8, max_iter=1000).fit(x, labels)
    np.testing.assert_allclose(solution, expected.coef_, atol=2e-3)


@pytest.mark.parametrize("target", ["gap", "active", "class", "gap,gaps"])
def test_a_ridge_head_is_trained_in_one_step_and_predicts_like_any_model(tmp_path, target):
    write_table(tmp_path / "table.csv", count=60, columns=target)
    chosen = {"targets": tuple(target.split(",")), "head": "ridge", "epochs": None, "model": {}}
    run = tiny_run(tmp_path, **chosen, dropout=None, init="slicegraph-chem")
    model, encoder = slicegraph.load(run.model), load("slicegraph-chem").state_dict()
    for name, value in model.state_dict().items():
        assert name.startswith("head.") or torch.equal(value, encoder[name])
    both = model.predict(["OCC", "C(O)C", "NCCN"])
    np.testing.assert_allclose(both[0], both[1], rtol=1e-5)
    assert run.metrics["steps"] == 1


class Encoded:
    """A model whose encoder gives the vectors of its batches."""

    def __init__(self, head, task="regression", training=False):
        self.head, self.training, self.config = head, training, self
        self.task, self.kernel_rows = task, len(head.points)

    def train(self, mode):
        self.training = mode

    def eval(self):
        self.training = False

    def head_input(self, batch):
        return batch.x

    def standardise(self, y):
        return y


def solved(x, y, sizes, *, task="regression", outputs=1, rows=None, **more):
    """A `KernelHead` that is solved for these molecules, all in one batch."""
    x, y = torch.as_tensor(x).float(), torch.as_tensor(y).float()
    y = y[:, None] if y.dim() == 1 else y
    head = KernelHead(rows or len(x), sizes, y.shape[1], outputs)
    solve_head(Encoded(head, task), [Data(x=x, y=y, **more)])
    return head


def test_the_kernel_is_the_sum_of_tanimoto_and_of_matern_kernels():
    random = np.random.default_rng(1)
    sizes = (3, 1, 4, 6)
    floats, counts = random.normal(size=(9, 8)), random.poisson(1.0, (9, 6)) * [1, 1, 1, 1, 0, 9]
    counts[0] = 0
    head = KernelHead(5, sizes)
    x = torch.from_numpy(np.concatenate([floats, np.arcsinh(counts)], 1)).float()
    head.store(x[:5])
    head.log_settings[0] = torch.randn(8)
    own = {
        name: float(value)
        for name, value in zip(head.SETTINGS, head.log_settings[0].exp(), strict=True)
    }
    expected = np.full((9, 5), own["constant"])
    views = {"vectors": (0, 3), "columns": (3, 4), "descriptors": (4, 8)}
    kernels = {}
    for name, (first, last) in views.items():
        points = floats[:, first:last].astype(np.float32).astype(float)
        points = points / points[:5].std(0) if name == "vectors" else points
        every = ((points[:5, None] - points[None, :5]) ** 2).sum(-1).mean()
        kernel = Matern(own[f"{name}_length"], nu=1.5)
        kernels[name] = kernel(points / np.sqrt(every), points[:5] / np.sqrt(every))
    expected += own["vectors"] * kernels["vectors"] + own["descriptors"] * kernels["descriptors"]
    least = np.minimum(counts[:, None], counts[None, :5]).sum(-1)
    most = np.maximum(counts[:, None], counts[None, :5]).sum(-1)
    expected += own["counts"] * np.where(most > 0, least / np.maximum(most, 1), 1)
    expected *= kernels["columns"]
    found = head.kernel(head.closeness(x), head.log_settings[0])
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_the_solution_is_the_gaussian_process_of_scikit_learn(vectors):
    x, y, _ = vectors
    kernel, noise = Matern(2.0, nu=1.5), 0.3
    expected = GaussianProcessRegressor(kernel, alpha=noise + 1e-4, optimizer=None).fit(x, y)
    labels, weights = torch.from_numpy(y)[:, None], torch.ones(60).double()
    matrix, log_noise = torch.from_numpy(kernel(x)), torch.tensor(noise).log()
    solution, left_out = gaussian_process(matrix, labels, weights, log_noise)
    np.testing.assert_allclose(solution[:, 0], expected.alpha_, rtol=1e-5)
    rest = GaussianProcessRegressor(kernel, alpha=noise + 1e-4, optimizer=None).fit(x[1:], y[1:])
    assert float(left_out[0]) == pytest.approx(rest.predict(x[:1])[0], rel=1e-5)


@pytest.mark.parametrize("unit", [1.0, 20.0])
def test_the_deviation_is_that_of_the_gaussian_process_of_scikit_learn(vectors, unit):
    x, y, new = vectors[0][:, :2], unit * vectors[1], np.random.default_rng(9).normal(size=(5, 2))
    head = solved(x, y, (2, 0, 0, 0))
    variances = dict(zip(head.SETTINGS, head.log_settings[0].double().exp().tolist(), strict=True))
    scale = x.std(0) * np.sqrt(2 * 2)  # the mean squared distance of two molecules is 1
    matern = Matern(variances["vectors_length"], nu=1.5)
    kernel = variances["constant"] + variances["vectors"] * matern
    expected = GaussianProcessRegressor(kernel, alpha=variances["noise"], optimizer=None)
    expected.fit(x / scale, y - y.mean())
    values, spread = expected.predict(new / scale, return_std=True)
    found, deviation = head.with_deviation(torch.from_numpy(new))
    np.testing.assert_allclose(found[:, 0], values + y.mean(), rtol=2e-4)
    label = np.sqrt(spread**2 + variances["noise"])  # that of a label, with its noise
    np.testing.assert_allclose(deviation[:, 0], label, rtol=2e-4)


def test_a_molecule_far_from_all_others_and_a_noisy_label_have_a_larger_deviation():
    x = np.random.default_rng(10).normal(size=(80, 2))
    y = np.sin(x).sum(1)
    head = solved(x, y, (2, 0, 0, 0))
    near, far = head.with_deviation(torch.tensor([[0.0, 0.0], [30.0, 0.0]]))[1]
    assert near < far / 2
    noise = np.random.default_rng(11).normal(size=80)
    noisy = solved(x, y + noise, (2, 0, 0, 0)).with_deviation(torch.zeros(1, 2))[1]
    assert float(noisy) > float(near)
    assert float(noisy) == pytest.approx(1, rel=0.25)


def test_targets_have_deviations_of_their_own_and_those_without_spread_have_0(monkeypatch):
    random = np.random.default_rng(12)
    x, y = random.normal(size=(60, 2)), random.normal(size=(60, 3))
    y[:, 1], y[:, 2] = 3.0, np.nan
    head = solved(x, y, (2, 0, 0, 0))
    new = torch.zeros(2, 2)
    found = head.with_deviation(new)[1]
    assert found.shape == (2, 3)
    assert bool((found[:, 1:] == 0).all())
    monkeypatch.setattr(KernelHead, "MOST_COMPARED", 20)  # 12 for each of three targets
    few = solved(x, y, (2, 0, 0, 0)).with_deviation(new)[1]
    assert bool((few[:, 0] >= found[:, 0] - 1e-6).all())


def test_the_loss_of_a_kernel_is_that_of_each_label_given_the_others():
    random = torch.Generator().manual_seed(0)
    root, labels = torch.randn(2, 7, 7, generator=random, dtype=torch.float64)
    labels, weights = labels[:, :2], torch.rand(7, generator=random, dtype=torch.float64)
    kernel = (root @ root.T + torch.eye(7)).requires_grad_()
    expected = torch.zeros((), dtype=torch.float64)
    for one in range(7):
        rest = [row for row in range(7) if row != one]
        share = torch.linalg.solve(kernel[rest][:, rest], kernel[rest, one])
        variance = kernel[one, one] - share @ kernel[rest, one]
        error = (labels[one] - share @ labels[rest]).square() / variance
        expected = expected + weights[one] * (error + variance.log()).sum() / 2
    expected.backward()
    value, slope = left_out_loss(kernel.detach(), labels, weights)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(slope, (kernel.grad + kernel.grad.T) / 2)


def test_a_kernel_head_learns_what_a_linear_one_cannot():
    random = np.random.default_rng(2)
    x = random.uniform(-2, 2, (300, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1]
    head = solved(x[:250], y[:250], (2, 0, 0, 0))
    found = head(torch.from_numpy(x[250:]).float())[:, 0].numpy()
    assert np.sqrt(np.mean((found - y[250:]) ** 2)) < 0.1 * y.std()


def test_a_kernel_head_does_not_extrapolate():
    x = np.linspace(-1, 1, 40)[:, None]
    head = solved(x, 5 * x[:, 0] + 3, (1, 0, 0, 0))
    far = head(torch.tensor([[-1e4], [1e4]])).flatten()
    torch.testing.assert_close(far[0], far[1])
    assert (far - 3).abs().max() < 5


def test_a_column_changes_what_the_molecules_are_worth():
    random = np.random.default_rng(3)
    x, dose = random.normal(size=(200, 3)), random.uniform(-1, 1, (200, 1))
    y = x[:, 0] * dose[:, 0]
    own = torch.from_numpy(np.concatenate([x, dose], 1)).float()
    head = solved(own[:160], y[:160], (3, 1, 0, 0))
    error = head(own[160:])[:, 0].numpy() - y[160:]
    assert np.sqrt(np.mean(error**2)) < 0.5 * y.std()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_kernel_head_gives_calibrated_probabilities(classes):
    random = np.random.default_rng(4)
    x = random.uniform(-3, 3, (600, 1))
    chance = torch.softmax(torch.tensor(np.concatenate([x * k for k in range(classes)], 1)), -1)
    y = np.array([random.choice(classes, p=row) for row in chance.numpy()])
    kind = "binary" if classes == 2 else "multiclass"
    head = solved(x, y, (1, 0, 0, 0), task=kind, outputs=1 if classes == 2 else 3)
    logits = head(torch.from_numpy(x).float())
    logits = torch.nn.functional.pad(logits, (1, 0)) if classes == 2 else logits
    assert (logits.softmax(-1) - chance).abs().mean() < 0.06


def test_a_molecule_of_twice_the_weight_counts_like_two():
    random = np.random.default_rng(5)
    x, y = random.normal(size=(30, 2)), random.normal(size=30)
    kernel = torch.from_numpy(Matern(1.0, nu=1.5)(x))
    twice = torch.ones(30).double()
    twice[0] = 2
    labels, noise = torch.from_numpy(y)[:, None], torch.tensor(0.5).log()
    weighted, _ = gaussian_process(kernel, labels, twice, noise)
    rows = [0, *range(30)]
    both, _ = gaussian_process(kernel[rows][:, rows], labels[rows], torch.ones(31).double(), noise)
    torch.testing.assert_close(weighted[0], both[0] + both[1])
    torch.testing.assert_close(weighted[1:], both[2:])


def test_gaps_limits_and_molecules_without_weight_are_left_out():
    random = np.random.default_rng(6)
    x, y = random.normal(size=(40, 2)), random.normal(size=(40, 2))
    y[:10, 0] = np.nan
    limits, weights = torch.zeros(40, 2), torch.ones(40)
    limits[10:15, 0], weights[15:20] = 1, 0
    head = solved(x, y, (2, 0, 0, 0), bound=limits, weight=weights)
    assert bool((head.weight[0, :20] == 0).all())
    assert bool((head.weight[0, 20:] != 0).all())
    assert bool((head.weight[1, 15:20] == 0).all())


@pytest.mark.parametrize(("task", "outputs"), [("regression", 1), ("binary", 1), ("multiclass", 3)])
@pytest.mark.parametrize("count", [1, 5])
def test_one_molecule_and_equal_labels_give_that_label(task, outputs, count):
    x = np.random.default_rng(7).normal(size=(count, 3))
    head = solved(x, np.ones(count), (3, 0, 0, 0), task=task, outputs=outputs)
    found = head(torch.ones(1, 3))[0]
    assert bool(found.isfinite().all())
    if task == "regression":
        assert float(found) == 1
    else:
        assert int(found.argmax()) == 1 if outputs > 1 else float(found) > 0


def test_a_target_without_labels_keeps_its_weights():
    head = solved(np.ones((4, 2)), np.full((4, 1), np.nan), (2, 0, 0, 0))
    assert bool((head(torch.ones(1, 2)) == 0).all())


def test_a_head_for_fewer_rows_stores_some_of_the_molecules():
    x = np.random.default_rng(8).normal(size=(30, 2))
    head = solved(x, x[:, 0], (2, 0, 0, 0), rows=12)
    stored = {tuple(row) for row in head.points.numpy()}
    assert len(stored) == 12
    assert stored <= {tuple(row) for row in x.astype(np.float32)}


@pytest.mark.parametrize("target", ["gap", "active", "class", "gap,gaps"])
def test_a_kernel_head_is_saved_and_predicts_the_same(tmp_path, target):
    write_table(tmp_path / "table.csv", count=60, columns=target)
    columns = tuple(target.split(","))
    run = slicegraph.train(
        data=tmp_path / "table.csv", target=columns, root=str(tmp_path / "data"), progress=False,
        out=str(tmp_path / "run"), accelerator="cpu", threads=1,
    )  # fmt: skip
    assert RunFolder(run.folder).config.head == "kernel"
    card = (run.model / "README.md").read_text()
    assert "head kernel |" in card
    assert "whether a molecule is one of them can be told" in card
    model = slicegraph.load(run.model)
    assert isinstance(model.head, KernelHead)
    values = model.predict(["OCC", "C(O)C", "NCCN"])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)
    alone = np.stack([model.predict(text)[0] for text in ("OCC", "C(O)C", "NCCN")])
    np.testing.assert_allclose(values, alone, rtol=1e-5)
    model.save(tmp_path / "copy")
    copied = slicegraph.load(tmp_path / "copy")
    np.testing.assert_array_equal(copied.predict(["OCC"]), model.predict(["OCC"]))
    model.save(tmp_path / "half", half=True)
    half = slicegraph.load(tmp_path / "half").predict(["OCC"])
    np.testing.assert_allclose(half, model.predict(["OCC"]), rtol=0.05, atol=0.02)


@pytest.mark.parametrize("settings", [{}, {"log_target": True}, {"folds": 2, "jobs": 1}])
def test_a_kernel_head_predicts_its_deviation_and_intervals_have_it(tmp_path, settings):
    write_table(tmp_path / "table.csv", count=80)
    text = (tmp_path / "table.csv").read_text().replace(",0.0\n", ",0.25\n")
    (tmp_path / "table.csv").write_text(text)  # a logarithm of every label
    run = slicegraph.train(
        data=tmp_path / "table.csv", target="gap", root=str(tmp_path / "data"), progress=False,
        out=str(tmp_path / "run"), accelerator="cpu", threads=1, **settings,
    )  # fmt: skip
    model = slicegraph.load(run.model)
    texts = ["CCO", "CNCOC", "CCCCCCCCCCCCCCCCCCO", "FC(F)(F)c1ccc2ccccc2c1"]
    found = model.predict_rows([*texts, "no"], interval=0.5)
    assert list(found.more) == ["gap_std", "gap_low", "gap_high"]
    std, low, high = (column[:4] for column in found.more.values())
    assert (std > 0).all()
    assert std[3] > 2 * std[0]
    assert np.isnan(found.more["gap_std"][4])
    values = found.values[:4, 0]
    if "log_target" in settings:
        low, high, std = np.log10(low), np.log10(high), std / values / np.log(10)
    if "folds" in settings:
        each = [one.predict_rows(texts) for one in model.members]
        stds = np.array([one.more["gap_std"] for one in each])
        means = np.array([one.values[:, 0] for one in each])
        np.testing.assert_allclose(std**2, (stds**2).mean(0) + means.var(0, ddof=1), rtol=1e-4)
        assert (high - low)[3] > 2 * (high - low)[0]  # CV+, as 80 molecules have few pairs
    else:
        np.testing.assert_allclose((high - low) / std, (high - low)[0] / std[0], rtol=1e-3)
    tested = pd.read_csv(run.folder / "predictions" / "test.csv")
    again = model.predict_rows(tested["smiles"].tolist()).more["gap_std"]
    if "folds" not in settings:
        np.testing.assert_allclose(tested["gap_std"], again, rtol=1e-3)
    assert "spearman" in run.metrics["uncertainty"]["gap"] or len(tested) <= 20
    frame = slicegraph.predict.BatchPredictor(str(run.model))(pd.DataFrame({"smiles": texts}))
    np.testing.assert_allclose(frame["gap_std"], found.more["gap_std"][:4], rtol=1e-5)


def test_a_small_table_has_a_kernel_unless_a_network_is_asked_for():
    def head(rows=900, **settings):
        return TrainConfig(**{"data": "csv:my.csv"} | settings).resolved(rows).head

    assert (head(), head(SMALL_TABLE), head(SMALL_TABLE + 1)) == ("kernel", "kernel", "network")
    assert head(rows=None) == "network"
    assert head(data="mini") == "network"
    assert head(seed=3, folds=5, split="scaffold", log_target=True) == "kernel"
    given = [{"epochs": 3}, {"init": "none"}, {"preset": "mini"}, {"model": {"mixer": "sort"}}]
    given += [{"lr": 1e-3}, {"dropout": 0.0}, {"head": "network"}, {"censored": "loss"}]
    given += [{"targets": tuple(map(str, range(11)))}, {"class_balance": True}, {"ensemble": 2}]
    given += [{"smiles": ("solute", "solvent")}]
    for settings in given:
        assert head(**settings) == "network", settings


def test_a_kernel_reads_descriptors_and_counts_unless_some_are_named():
    kernel = TrainConfig(data="csv:my.csv").resolved(100)
    assert (kernel.init, kernel.features) == ("slicegraph-chem", ("rdkit", "morgan"))
    assert kernel.resolved() == kernel
    named = TrainConfig(data="csv:my.csv", features=("pH",)).resolved(100)
    assert named.features == ("pH", "rdkit", "morgan")
    assert TrainConfig(data="csv:my.csv", features=("morgan",)).resolved(9).features == ("morgan",)


def test_a_run_prints_the_weights_that_it_starts_from(tmp_path, capsys):
    slicegraph.train(tiny_config(tmp_path, model={}, init="slicegraph-chem", epochs=1))
    assert "weights are those of slicegraph-chem" in capsys.readouterr().out
    out = str(tmp_path / "none")
    run = slicegraph.train(tiny_config(tmp_path, out=out, model={}, init="none", epochs=1))
    assert "init    random weights" in capsys.readouterr().out
    assert run.metrics["parameters"] != sum(p.numel() for p in load("slicegraph-chem").parameters())


def test_a_table_that_starts_from_weights_has_a_recipe_of_its_own():
    config = TrainConfig(data="csv:my.csv", init="slicegraph-chem").resolved()
    assert (config.preset, config.keep, config.patience, config.ema) == ("chem", "last", 0, 0.99)
    assert config.resolved() == config
    given = TrainConfig(data="csv:my.csv", init="runs/one", patience=5, ema=0).resolved()
    assert (given.preset, given.keep, given.patience, given.ema) == ("mini", "best", 5, 0)
    plain = TrainConfig(data="csv:my.csv").resolved()
    assert (plain.preset, plain.init, plain.keep, plain.ema) == ("mini", "none", "best", 0)
    assert TrainConfig(data="csv:my.csv", head="ridge").resolved().init == "slicegraph-chem"


@pytest.mark.parametrize("head", ["ridge", "kernel"])
def test_a_head_that_is_solved_is_not_trained_for_epochs(head):
    problem = f"head = '{head}' is solved, not trained; leave out epochs"
    with pytest.raises(ValueError, match=problem):
        TrainConfig(data="csv:my.csv", head=head, epochs=3)


def test_a_kernel_head_is_the_last_layer_and_for_molecules():
    with pytest.raises(ValueError, match="leave out task 'digits'"):
        TrainConfig(task="digits", head="kernel")
    with pytest.raises(ValueError, match="leave out ensemble, or choose folds"):
        TrainConfig(data="csv:my.csv", head="kernel", ensemble=3)
    with pytest.raises(ValueError, match=r"leave out model\.head_layers"):
        TrainConfig(data="csv:my.csv", head="kernel", model={"head_layers": 2})


def test_the_last_epoch_is_kept_whatever_its_score(tmp_path):
    run = tiny_run(tmp_path, keep="last", epochs=3, patience=0)
    assert run.metrics["best_epoch"] == 2
    assert run.metrics["chosen_by"] == "the end of the training"


@pytest.fixture(scope="module")
def shipped():
    return slicegraph.load("slicegraph-chem")


def test_the_shipped_weights_are_those_of_the_card():
    folder = SHIPPED["slicegraph-chem"]
    content = (folder / "model.safetensors").read_bytes()
    assert len(content) <= 6_000_000
    checksum = hashlib.sha256(content).hexdigest()
    record = json.loads((folder / "config.json").read_text())["training"]
    card = (folder / "README.md").read_text()
    assert record["weights_sha256"] == checksum
    assert checksum in card
    assert record["command"].startswith("slicegraph pretrain ")
    assert record["command"] in card
    for source in ("molsets", "qm9", "hiv"):
        assert source in card


def test_every_spelling_has_the_same_vector(shipped):
    spellings = ["OC(=O)c1ccccc1N", "Nc1ccccc1C(O)=O", "c1(N)c(C(=O)O)cccc1"]
    vectors = shipped.embed(spellings)
    assert vectors.shape == (3, shipped.head.in_features)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], vectors[2])


def test_odd_molecules_have_a_vector(shipped):
    odd = ["[Na+].[O-]C(=O)c1ccccc1", "C[Fe]C", "[He]", "C" * 150, "[2H]C([2H])O", "*CC"]
    assert np.isfinite(shipped.embed(odd)).all()


def test_the_weights_know_descriptors(shipped):
    """The head predicts normal scores: those of heavier molecules are larger."""
    column = shipped.config.target_names.index("MolWt")
    chains = shipped.predict(["CCO", "CCCCCCCCO", "c1ccc2c(c1)cccc2C(=O)NCCc1ccccc1"])[:, column]
    assert (np.diff(chains) > 0).all()
