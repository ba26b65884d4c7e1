"""The published tables: the protocol, where a run goes on, and what is printed."""

import numpy as np
import pytest
import torch

from benchmarks.json_lines import JsonLines
from benchmarks.published import finish, parse, table
from benchmarks.published_rows import ROWS
from benchmarks.published_train import (
    MOST_PARAMETERS,
    Recipe,
    Run,
    Training,
    claimed,
    make_model,
    read_zinc,
    train,
)

SIZES = {"train": 20, "val": 6, "test": 6}
TINY = {"num_layers": 1, "channels": 32, "ffn_channels": 8, "heads": 2, "readout": "sum"}
OPTIONS = {"mixer": "attn", "local": "gine", "norm": "batch", "walk_length": 4, "dropout": 0.1}
TINY_RUN = Run("zinc", "tiny", 0, TINY | OPTIONS, Recipe(epochs=3, batch_size=5, average=0.9))


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


@pytest.mark.parametrize("row", ROWS)
def test_every_row_can_be_made_with_at_most_half_a_million_parameters(row, folder):
    model, recipe = ROWS[row]
    made = make_model(Run("zinc", row, 0, model, recipe), read_zinc(folder)["train"])
    assert sum(p.numel() for p in made.parameters()) <= MOST_PARAMETERS
    assert made.target_mean is not None


def test_more_parameters_are_an_error(folder):
    run = Run("zinc", "large", 0, TINY | {"channels": 512}, Recipe())
    with pytest.raises(ValueError, match=r"large: .* parameters, expected at most 500000"):
        make_model(run, read_zinc(folder)["train"])


def test_gps_learns_from_a_batch(folder):
    fields = TINY | {"kind": "gps", "walk_length": 4, "num_layers": 2}
    training = Training(Run("zinc", "gps", 0, fields, Recipe(epochs=1)), read_zinc(folder))
    training.train_epoch()
    assert np.isfinite(training.curve[0])


def test_the_table_has_published_rows_and_the_spread_of_ours():
    line = {"data": "zinc", "row": "mine", "parameters": 400_000, "epochs": 9, "cpu_hours": 1.5}
    lines = [line | {"valid": 0.25, "test": 0.5}, line | {"valid": 0.35, "test": 0.7}]
    text = table("zinc", lines)
    assert "| Graphormer-slim (published) |  |  |  |  | 0.122 ± 0.006 |" in text
    assert "| mine, 2 seeds | 400,000 | 9 | 1.50 | 0.3000 ± 0.0707 | 0.6000 ± 0.1414 |" in text
