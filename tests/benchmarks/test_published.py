"""The published tables: the data, the protocol, where a run goes on, and what is printed."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from ogb.utils import smiles2graph
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks import published_train
from benchmarks.json_lines import JsonLines
from benchmarks.published import finish, parse, table, write_page
from benchmarks.published_data import (
    TASKS,
    Graphs,
    read_gaps,
    read_molhiv,
    read_peptides,
    read_zinc,
)
from benchmarks.published_kekule import KekuleFlips
from benchmarks.published_models import count_parameters, make_model
from benchmarks.published_rows import ROWS, STUDIES, rows_of
from benchmarks.published_train import Recipe, Run, Training, claimed, time_steps, train
from slicegraph.data.datasets import source
from slicegraph.transforms import RingNodes

SIZES = {"train": 20, "val": 6, "test": 6}
TINY = {"num_layers": 1, "channels": 32, "ffn_channels": 8, "heads": 2, "readout": "sum"}
OPTIONS = {"mixer": "attn", "local": "gine", "norm": "batch", "walk_length": 4, "dropout": 0.1}
RECIPE = Recipe(epochs=3, batch_size=5, average=0.9, kekule=True)
TINY_RUN = Run("zinc", "tiny", 0, TINY | OPTIONS | {"rings": 8}, RECIPE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rings with random types, in the format of the real file."""
    random, arrays = np.random.default_rng(0), {}
    for split, count in SIZES.items():
        sizes = random.integers(3, 9, count)
        rings = [np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes]
        edges = [np.concatenate([ring, ring[::-1]], 1) for ring in rings]
        arrays |= {
            f"{split}_x": random.integers(0, 28, sizes.sum()).astype(np.int8),
            f"{split}_edge_index": np.concatenate(edges, 1).astype(np.int16),
            f"{split}_edge_attr": random.integers(1, 4, 2 * sizes.sum()).astype(np.int8),
            f"{split}_num_nodes": sizes.astype(np.int16),
            f"{split}_num_edges": (2 * sizes).astype(np.int16),
            f"{split}_y": sizes.astype(np.float32),
        }
    found = tmp_path_factory.mktemp("files")
    np.savez(found / "zinc12k_graphs.npz", **arrays)
    return found


def test_a_batch_has_the_graphs_that_were_chosen(folder):
    graphs = read_zinc(folder)["train"]
    batch = graphs.batch([4, 0, 7], None)
    first = 0
    for place, g in enumerate([4, 0, 7]):
        n = int(graphs.y[g, 0])
        nodes, edges = slice(graphs.ptr[g], graphs.ptr[g] + n), slice(2 * first, 2 * (first + n))
        assert batch.x[first : first + n].numpy().tolist() == graphs.x[nodes].tolist()
        ring = torch.arange(n)
        ring = torch.stack([ring, (ring + 1) % n])
        expected = torch.cat([ring, ring.flip(0)], 1) + first
        assert torch.equal(batch.edge_index[:, edges], expected)
        assert float(batch.y[place, 0]) == n
        first += n
    assert batch.ptr.tolist()[-1] == first


def test_graphs_with_rings_have_one_node_more_for_their_ring(folder):
    graphs = read_zinc(folder)["train"]
    batch = graphs.with_rings(RingNodes(8, 28, 4)).batch([4, 0], None)
    sizes = graphs.y[[4, 0], 0].astype(int).tolist()
    assert batch.ptr.diff().tolist() == [n + 1 for n in sizes]
    assert batch.x[batch.ptr[1:] - 1, 0].tolist() == [28 + n - 3 for n in sizes]
    assert batch.edge_index[0].bincount()[batch.ptr[1:] - 1].tolist() == sizes
    assert len(batch.edge_attr) == 4 * sum(sizes)


def test_kekule_structures_swap_single_and_double_bonds_of_rings_of_six():
    """Benzene next to a ring of five and to cyclohexane: only benzene has two structures."""
    along = [[1, 2, 1, 2, 1, 2], [1, 2, 1, 2, 1], [1] * 6]
    sizes = np.array([len(bonds) for bonds in along])
    rings = [np.stack([np.arange(n), (np.arange(n) + 1) % n]) for n in sizes]
    ptr = np.cumsum([0, *sizes])
    bonds = np.concatenate([np.array(values * 2, dtype=np.uint8) for values in along])[:, None]
    edges = [np.concatenate([r, r[::-1]], 1) + n for r, n in zip(rings, ptr, strict=False)]
    graphs = Graphs(np.zeros((17, 1)), np.concatenate(edges, 1), bonds, ptr, 2 * ptr, np.zeros(3))
    flips, chosen, found = KekuleFlips(graphs), [2, 0, 1], set()
    for seed in range(20):
        batch = graphs.batch(chosen, None)
        flips(batch.edge_attr, np.array([0, 12, 24]), chosen, [seed])
        values = batch.edge_attr[:, 0].tolist()
        assert values[:12] == [1] * 12
        assert values[24:] == along[1] * 2
        assert values[12:18] == values[18:24]  # both directions of a bond have its type
        found.add(tuple(values[12:18]))
    assert found == {(1, 2) * 3, (2, 1) * 3}


def test_the_learning_rate_rises_and_falls():
    recipe = Recipe(lr=1.0, end_lr=0.1, warmup=0.2)
    found = [recipe.factor(step, 10) for step in range(10)]
    assert found[:3] == [0.5, 1.0, 1.0]
    assert found[-1] == pytest.approx(0.1)
    assert found[2:] == sorted(found[2:], reverse=True)


def test_a_stopped_run_goes_on_to_the_same_result(folder, tmp_path):
    splits = read_zinc(folder)
    expected = Training(TINY_RUN, splits).finish(tmp_path / "whole.pt", tested=True)
    first = Training(TINY_RUN, splits)
    first.train_epoch()
    first.save(tmp_path / "part.pt")
    torch.rand(3)
    found = Training(TINY_RUN, splits).finish(tmp_path / "part.pt", tested=True)
    for name in ("valid", "test", "best_epoch", "parameters", "epochs"):
        assert found[name] == expected[name]


def test_the_tested_weights_are_those_of_the_best_epoch_on_valid(folder, tmp_path):
    training = Training(TINY_RUN, read_zinc(folder))
    found = training.finish(tmp_path / "run.pt", tested=True)
    assert found["valid"] == pytest.approx(min(training.curve), abs=1e-5)
    assert training.evaluate("valid") == pytest.approx(min(training.curve))  # still in the model
    assert found["test"] == pytest.approx(training.evaluate("test"), abs=1e-5)


def test_a_run_of_other_settings_is_not_continued(folder, tmp_path):
    splits = read_zinc(folder)
    Training(TINY_RUN, splits).save(tmp_path / "run.pt")
    other = Run("zinc", "tiny", 1, TINY_RUN.model, TINY_RUN.recipe)
    with pytest.raises(ValueError, match="other settings; delete it, or rename the row"):
        Training(other, splits).load(tmp_path / "run.pt")


def test_a_run_that_another_process_trains_is_left_to_it(folder, tmp_path):
    with claimed((tmp_path / TINY_RUN.file_name).with_suffix(".lock")) as free:
        assert free
        assert train(TINY_RUN, folder, tmp_path, tested=False) is None


def test_a_screen_never_reads_test_and_a_finished_run_is_not_repeated(folder, tmp_path):
    words = ["--data-folder", str(folder), "--runs", str(tmp_path), "--screen"]
    arguments = parse([*words, "--out", str(tmp_path / "out.jsonl")])
    for _ in range(2):
        finish(TINY_RUN, arguments)
    (line,) = JsonLines(arguments.out).lines
    assert "test" not in line
    assert line["valid"] > 0


@pytest.mark.parametrize(("data", "row"), [(data, row) for data in ROWS for row in rows_of(data)])
def test_every_row_can_be_made_with_as_many_parameters_as_its_table_allows(data, row, folder):
    fields, recipe = rows_of(data)[row]
    made = make_model(row, fields, TASKS[data], read_zinc(folder)["train"])
    assert made.config.num_targets == (10 if data == "peptides-func" else 1)
    assert (made.target_mean is None) == (made.config.task == "binary")
    settings = Run(data, row, 0, fields, recipe).settings
    assert json.loads(json.dumps(settings)) == settings  # or its line would not be found again


def test_more_parameters_are_an_error(folder):
    with pytest.raises(ValueError, match=r"large: .* parameters, expected at most 500000"):
        make_model("large", TINY | {"channels": 512}, TASKS["zinc"], read_zinc(folder)["train"])


@pytest.mark.parametrize(("data", "most"), [("zinc", 1.1), ("peptides-func", 1.02)])
def test_the_rows_of_a_study_have_about_as_many_parameters(data, most, folder):
    train = read_zinc(folder)["train"]
    counts = [
        count_parameters(make_model(row, fields, TASKS[data], train))
        for row, (fields, _) in STUDIES["sort"][data].items()
    ]
    assert max(counts) / min(counts) < most


def test_gps_learns_from_a_batch(folder):
    fields = TINY | {"kind": "gps", "walk_length": 4, "num_layers": 2}
    training = Training(Run("zinc", "gps", 0, fields, Recipe(epochs=1)), read_zinc(folder))
    training.train_epoch()
    assert np.isfinite(training.curve[0])


def test_a_model_without_mixers_adds_up_the_parts_of_a_graph(folder):
    graphs = read_zinc(folder)["train"]
    fields = TINY | {"kind": "local only", "mixer": "quantile", "local": "gine", "norm": "batch"}
    model = make_model("local", fields, TASKS["zinc"], graphs).eval()
    batch = graphs.batch([3, 1], None)
    each = model.embed(batch)
    batch.ptr = batch.ptr[[0, 2]]  # one graph of two parts
    torch.testing.assert_close(model.embed(batch), each.sum(0, keepdim=True))


@pytest.mark.parametrize("kind", ["attention pooling", "multi aggregation"])
def test_readouts_of_pyg_do_not_depend_on_the_other_graphs(kind, folder):
    fields = TINY | {"kind": kind, "readout": "quantiles" if "multi" in kind else "sum"}
    graphs = read_zinc(folder)["train"]
    model = make_model("pooled", fields, TASKS["zinc"], graphs).eval()
    alone = [model(graphs.batch([g], None)) for g in (3, 1)]
    torch.testing.assert_close(model(graphs.batch([3, 1], None)), torch.cat(alone))


SMILES = ["CCO", "c1ccccc1", "C", "CC(=O)N", "C#N", "CCN", "OCC(O)CO", "C1CC1", "C[N+](C)(C)C"]
FILE_SPLIT = ["train", "val", "test", "train", "train", "val", "train", "test", "test"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Small files in the format of the real ones."""
    folder, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    labels = {f"y{n}": random.integers(0, 2, len(SMILES)) for n in range(10)}
    table = pd.DataFrame({"smiles": SMILES, **labels, "split": FILE_SPLIT})
    table.to_csv(folder / "peptides_func.csv.gz", index=False)
    table = pd.DataFrame({"smiles": [*SMILES, "not a molecule"], "HIV_active": [0, 1] * 5})
    split = [name.replace("val", "valid") for name in FILE_SPLIT] + ["test"]
    table.assign(split=split).to_csv(folder / "ogbg_molhiv.csv.gz", index=False)
    for n, part in enumerate(source.PARTS):
        rows = range(3 * n, 3 * n + 3)
        gaps = [0.1 + row / 100 for row in rows]
        table = pd.DataFrame({"Index": rows, "SMILES": [SMILES[row] for row in rows]})
        table.assign(HOMO_LUMO_gap_au=gaps).to_csv(folder / part, index=False)
    return folder


def graph_of(graphs, g):
    batch = graphs.batch([g], None)
    return batch.x.tolist(), batch.edge_index.tolist(), batch.edge_attr.tolist()


def test_peptides_have_the_features_of_ogb_and_ten_labels(tables, tmp_path):
    for _ in range(2):  # the second time from the file that the first has written
        splits = read_peptides(tables, tmp_path)
        table = pd.read_csv(tables / "peptides_func.csv.gz")
        for name, part in (("train", "train"), ("valid", "val"), ("test", "test")):
            rows = table[table["split"] == part]
            assert len(splits[name]) == len(rows)
            assert splits[name].y.tolist() == rows.iloc[:, 1:11].to_numpy().tolist()
            for g, text in enumerate(rows["smiles"]):
                found = smiles2graph(text)
                expected = (found[key].tolist() for key in ("node_feat", "edge_index", "edge_feat"))
                assert graph_of(splits[name], g) == tuple(expected)
    assert len(list(tmp_path.iterdir())) == 1


def test_molecules_that_cannot_be_read_are_reported(tables, tmp_path, capsys):
    splits = read_molhiv(tables, tmp_path)
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [4, 2, 3]
    assert splits["valid"].y.tolist() == [[1.0], [1.0]]
    assert "1 molecule that RDKit cannot read left out, in rows 9" in capsys.readouterr().err


def test_gaps_are_in_ev_and_split_as_in_the_command(tables, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="has 9 molecules, expected 130831"):
        read_gaps(tables, tmp_path)
    monkeypatch.setattr(source, "SPLIT_SIZES", (5, 2, 2))
    splits = read_gaps(tables, tmp_path)
    assert [len(part) for part in splits.values()] == [5, 2, 2]
    found = sorted(value for part in splits.values() for value in part.y[:, 0].tolist())
    assert found == pytest.approx([(0.1 + row / 100) * 27.2114 for row in range(9)])


def test_a_folder_without_qm9_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "qm9_folder", lambda: None)
    with pytest.raises(ValueError, match="qm9pack is not installed; pip install"):
        read_gaps(tmp_path, tmp_path)


def test_a_split_of_another_name_is_an_error(tmp_path):
    table = pd.DataFrame({"smiles": ["C"], "HIV_active": [0], "split": ["extra"]})
    table.to_csv(tmp_path / "ogbg_molhiv.csv.gz", index=False)
    with pytest.raises(ValueError, match=r"has splits \['extra'\], expected train, valid"):
        read_molhiv(tmp_path, tmp_path)


def test_the_metrics_are_those_of_scikit_learn():
    random = np.random.default_rng(1)
    y, scores = random.integers(0, 2, (50, 10)), random.standard_normal((50, 10))
    y[:, 3] = 0  # a label without positives does not count
    known = [n for n in range(10) if n != 3]
    expected = np.mean([average_precision_score(y[:, n], scores[:, n]) for n in known])
    found = TASKS["peptides-func"].metric(torch.tensor(y), torch.tensor(scores))
    assert found == pytest.approx(expected)
    found = TASKS["molhiv"].metric(torch.tensor(y[:, :1]), torch.tensor(scores[:, :1]))
    assert found == pytest.approx(roc_auc_score(y[:, 0], scores[:, 0]))


@pytest.mark.parametrize("kind", ["ours", "gps"])
def test_labels_are_learned(kind, tables, tmp_path, monkeypatch):
    """The parts of a test split must have both classes, which those of this table do not."""
    monkeypatch.setitem(TASKS, "molhiv", replace(TASKS["molhiv"], metric=lambda y, s: 1.0))
    fields = TINY | {"kind": kind, "walk_length": 4, "readout": "mean"}
    run = Run("molhiv", "tiny", 0, fields, Recipe(epochs=1, batch_size=2))
    training = Training(run, read_molhiv(tables, tmp_path))
    before = training.model.head.state_dict() if kind == "ours" else None
    before = before and {name: value.clone() for name, value in before.items()}
    training.train_epoch()
    assert training.curve == [1.0]
    assert before is None or not torch.equal(before["weight"], training.model.head.weight)


def test_gradients_in_parts_are_those_of_the_whole_batch(folder, monkeypatch):
    fields = TINY | {"mixer": "attn", "local": "gine"}  # without a batch norm
    graphs, found = read_zinc(folder), []
    for most in (10**9, 100):
        monkeypatch.setattr(published_train, "MOST_PAIRS", most)
        training = Training(Run("zinc", "tiny", 0, fields, Recipe()), graphs)
        training.add_gradients(list(range(12)))
        found.append([p.grad for p in training.model.parameters() if p.grad is not None])
        found.append(training.evaluate("valid"))
    torch.testing.assert_close(found[0], found[2])
    assert found[1] == pytest.approx(found[3])
    parts = list(graphs["train"].parts(list(range(12)), 100))
    assert len(parts) > 1
    assert [g for part in parts for g in part] == list(range(12))
    assert all(len(p) == 1 or len(p) * graphs["train"].sizes[p].max() ** 2 <= 100 for p in parts)


def test_steps_are_timed(folder):
    assert "CPU seconds" in time_steps(TINY_RUN, read_zinc(folder), steps=2)


def test_rows_and_studies_are_those_of_the_data(capsys):
    assert parse(["--data", "molhiv"]).rows == list(ROWS["molhiv"])
    assert parse(["--study", "sort"]).rows == list(STUDIES["sort"]["zinc"])
    for words in (["--rows", "p1"], ["--data", "molhiv", "--study", "sort"]):
        with pytest.raises(SystemExit):
            parse(words)
    message = capsys.readouterr().err
    assert f"zinc has no row 'p1', only {next(iter(ROWS['zinc']))}" in message
    assert "--study sort has no rows for molhiv" in message


def test_the_page_has_all_data_sets_and_figures_of_tested_runs(tmp_path):
    line = {"parameters": 400_000, "epochs": 2, "cpu_hours": 1.5, "valid": 0.7, "test": 0.6}
    best = line | {"data": "peptides-func", "row": "p1", "curve": [0.5, 0.7]}
    other = best | {"row": "p1 gated", "valid": 0.5}
    study = line | {"data": "zinc", "row": "quantile, quantile readout", "curve": [0.9, 0.7]}
    write_page(tmp_path / "page.md", [best, study, other])
    text = (tmp_path / "page.md").read_text()
    assert "![AP against CPU hours" in text
    assert text.index("p1 gated, 1 seed") < text.index("p1, 1 seed")  # the largest AP is last
    assert "### What the sort is worth" in text
    assert [file.name for file in tmp_path.glob("*.png")] == ["page_peptides-func.png"]


def test_the_table_has_published_rows_and_the_spread_of_ours():
    line = {"data": "zinc", "row": "mine", "parameters": 400_000, "epochs": 9, "cpu_hours": 1.5}
    lines = [line | {"valid": 0.25, "test": 0.5}, line | {"valid": 0.35, "test": 0.7}]
    text = table("zinc", lines)
    assert "| Graphormer-slim (published) |  |  |  |  | 0.122 ± 0.006 |" in text
    assert "| mine, 2 seeds | 400,000 | 9 | 1.50 | 0.3000 ± 0.0707 | 0.6000 ± 0.1414 |" in text
