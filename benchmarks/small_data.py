"""Compare models on small tables: `python -m benchmarks.small_data --data-folder FOLDER`.

FOLDER has `moleculeace/*.csv`, sets of MoleculeACE with their split, and `ogbg_molesol.csv`,
`ogbg_molfreesolv.csv` and `ogbg_mollipo.csv` with OGB's scaffold split. Everything that is not of
the test part may be learned from, by every row; MoleculeACE has no valid part, and the command gets
a random tenth as one. Smaller tables are the first molecules of one random order, so a larger one
has all of a smaller one. Nothing is chosen on a test part.

A finished run is a line of the output file and is not repeated unless the row has other settings.
Times are CPU times of one thread, from the file to the predictions: for a command that of the whole
command. `--print` writes the tables of what is there, without runs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVR

from benchmarks.accuracy_runs.child import run_child
from benchmarks.json_lines import JsonLines, Line
from benchmarks.markdown import row as table_row
from benchmarks.markdown import write_between_marks
from slicegraph.data.descriptors import molecule_features

OGB = {"esol": "ogbg_molesol.csv", "freesolv": "ogbg_molfreesolv.csv", "lipo": "ogbg_mollipo.csv"}
OGB_LABELS = {
    "esol": "measured log solubility in mols per litre",
    "freesolv": "expt",
    "lipo": "exp",
}
ACE_LABEL = "y [pEC50/pKi]"
VALID_SHARE = 0.1
_GROUPS = 2
SIZES = ("100", "300", "1000", "all")


class Table(NamedTuple):
    """The molecules of a run and their labels; those of the parts train and valid are learned."""

    smiles: list[str]
    y: np.ndarray
    part: np.ndarray  # "train", "valid" or "test"


def sets_in(folder: Path) -> dict[str, Path]:
    """Return the file of each set by name."""
    found = {name: folder / file for name, file in OGB.items()}
    found |= {file.stem: file for file in sorted((folder / "moleculeace").glob("*.csv"))}
    return {name: file for name, file in found.items() if file.is_file()}


def read(name: str, file: Path, size: str, seed: int) -> Table:
    """Read a set and leave out training molecules until there are `size` of them."""
    rows = pd.read_csv(file)
    part = rows["split"].str.replace("val$", "valid", regex=True).to_numpy(object)
    if "valid" not in part:
        own = np.random.default_rng(0).random(len(part)) < VALID_SHARE
        part[own & (part == "train")] = "valid"
    if size != "all":
        train = np.random.default_rng(seed).permutation(np.flatnonzero(part == "train"))
        part[train[int(size) :]] = "none"
        valid = np.random.default_rng(seed).permutation(np.flatnonzero(part == "valid"))
        part[valid[max(10, round(VALID_SHARE * int(size))) :]] = "none"
    rows = rows[part != "none"]
    label = OGB_LABELS.get(name, ACE_LABEL)
    texts = rows["smiles"].str.strip().tolist()
    return Table(texts, rows[label].to_numpy(float), part[part != "none"])


def rmse(predicted: np.ndarray, true: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - true) ** 2)))


def fit_scikit_learn(kind: str, make: Callable[[int], Any]) -> Callable[..., dict[str, Any]]:
    """Make a row that fits features of a kind, see `molecule_features`."""

    def run(table: Table, seed: int) -> dict[str, Any]:
        start = time.process_time()
        x = np.stack([molecule_features(text, [kind]) for text in table.smiles])
        test = table.part == "test"
        model = make(seed).fit(x[~test], table.y[~test])
        found = rmse(model.predict(x[test]), table.y[test])
        return {"test": found, "cpu_seconds": time.process_time() - start}

    return run


class KernelSvm:
    """SVR with C and gamma by 5-fold cross-validation; each kernel is computed once."""

    def __init__(self, seed: int) -> None:
        self.best: Any = None

    def fit(self, x: np.ndarray, y: np.ndarray) -> "KernelSvm":
        self.x, found = x.astype(np.float64), []
        squares = euclidean_distances(self.x, squared=True)
        for gamma in (1e-3, 3e-3, 1e-2):
            options: Any = {"cv": 5, "scoring": "neg_root_mean_squared_error"}
            search = GridSearchCV(SVR(kernel="precomputed"), {"C": [1, 10, 100]}, **options)
            found.append((search.fit(np.exp(-gamma * squares), y), gamma))
        self.best = max(found, key=lambda one: one[0].best_score_)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        search, gamma = self.best
        squares = euclidean_distances(x.astype(np.float64), self.x, squared=True)
        return search.predict(np.exp(-gamma * squares))


def command(*words: str) -> Callable[..., dict[str, Any]]:
    """Make a row of `slicegraph train`, with these settings."""

    def run(table: Table, seed: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            file, out = Path(folder, "table.csv"), Path(folder, "run")
            columns = {"smiles": table.smiles, "y": table.y, "split": table.part}
            pd.DataFrame(columns).to_csv(file, index=False)
            line = [sys.executable, "-m", "slicegraph", "train", "--data", f"csv:{file}"]
            line += ["--smiles", "smiles", "--targets", "y", "--metric", "rmse"]
            line += ["--split", "column:split", "--train-splits", "train,valid"]
            line += ["--root", f"{folder}/data", "--out", str(out), "--seed", str(seed), *words]
            child = run_child([*line, "--threads", "1", "--accelerator", "cpu"], threads=1)
            metrics = json.loads((out / "metrics.json").read_text())
        counts = {name: metrics[name] for name in ("test", "steps", "parameters")}
        return counts | {"cpu_seconds": child.cpu_seconds}

    return run


def chemprop(table: Table, seed: int, program: str) -> dict[str, Any]:
    """Train chemprop with its defaults."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder, "table.csv"), Path(folder, "out")
        parts = pd.Series(table.part).replace("valid", "val")
        pd.DataFrame({"smiles": table.smiles, "y": table.y, "split": parts}).to_csv(
            file, index=False
        )
        line = [program, "train", "--data-path", str(file), "--output-dir", str(out)]
        line += ["--smiles-columns", "smiles", "--target-columns", "y", "--splits-column", "split"]
        line += ["--data-seed", str(seed), "--pytorch-seed", str(seed), "--accelerator", "cpu"]
        child = run_child(line, threads=1)
        found = pd.read_csv(next(out.rglob("test_predictions.csv")))["y"].to_numpy(float)
    test = table.y[table.part == "test"]
    return {"test": rmse(found, test), "cpu_seconds": child.cpu_seconds}


class Row(NamedTuple):
    """A model: what is printed, its settings for the file, and what runs it."""

    title: str
    settings: str
    run: Callable[..., dict[str, Any]]


def _ours(title: str, *words: str) -> Row:
    return Row(title, " ".join(words), command(*words))


ROWS: dict[str, Row] = {
    "default": _ours("ours, the default"),
    "scratch": _ours("ours, network from scratch", "--head", "network"),
    "tuned": _ours("ours, from slicegraph-chem", "--init", "slicegraph-chem"),
    "ridge": _ours("ours, ridge head", "--head", "ridge"),
    "ridge-features": _ours(
        "ours, ridge head, descriptors and counts", "--head", "ridge", "--features", "rdkit,morgan"
    ),
    "forest": Row(
        "random forest, ECFP counts",
        "500 trees",
        fit_scikit_learn("morgan", lambda seed: RandomForestRegressor(500, random_state=seed)),
    ),
    "svm": Row(
        "SVM, ECFP counts",
        "C and gamma by 5-fold cross-validation",
        fit_scikit_learn("morgan", KernelSvm),
    ),
    "boosting": Row(
        "gradient boosting, RDKit descriptors",
        "defaults",
        fit_scikit_learn("rdkit", lambda seed: HistGradientBoostingRegressor(random_state=seed)),
    ),
    "chemprop": Row("chemprop 2.3.1", "defaults", chemprop),
}


def tables(lines: list[Line], rows: list[str]) -> str:
    """Return a table of each size: the test RMSE by set, and what is comparable over sets."""
    texts = []
    for size in SIZES:
        found: dict[str, dict[str, list[Line]]] = {}
        for line in lines:
            known = line["row"] in rows and line["settings"] == ROWS[line["row"]].settings
            if line["size"] == size and known:
                found.setdefault(line["row"], {}).setdefault(line["set"], []).append(line)
        if not found:
            continue
        shown = [name for name in rows if name in found]
        names = sorted({name for own in found.values() for name in own}, key=_order)
        texts += [f"### {'All' if size == 'all' else size} training molecules", ""]
        texts += [table_row("set", *(ROWS[name].title for name in shown))]
        texts += [table_row("---", *("---:" for _ in shown))]
        for name in names:
            means = {row: _mean(found[row][name], "test") for row in shown if name in found[row]}
            best = min(means.values())
            cells = []
            for row in shown:
                text = f"{means[row]:.3f}" if row in means else "-"
                if row in means and (runs := found[row][name])[1:]:
                    text += f" ± {statistics.stdev(one['test'] for one in runs):.3f}"
                cells.append(f"**{text}**" if means.get(row) == best else text)
            texts.append(table_row(name, *cells))
        shared = {row: set(found[row]) for row in shown}
        texts += ["", *_against(found, shown), *_means(found, shown, shared), ""]
    return "\n".join(texts).strip()


def _against(found: dict[str, dict[str, list[Line]]], shown: list[str]) -> list[str]:
    """Return how the default command compares with every other row, on the sets that both have."""
    if "default" not in shown or len(shown) < 2:
        return []
    ours, lines = found["default"], ["The default command against each other row:", ""]
    head = ("row", "sets", "the default is better on", "mean RMSE on MoleculeACE", "CPU s")
    lines += [table_row(*head), table_row("---", *("---:" for _ in head[1:]))]
    for row in (name for name in shown if name != "default"):
        names = [name for name in ours if name in found[row]]
        if not names:
            continue
        pairs = [(_mean(ours[name], "test"), _mean(found[row][name], "test")) for name in names]
        ace = [pair for name, pair in zip(names, pairs, strict=True) if name not in OGB]
        means = [f"{value:.3f}" for value in np.mean(ace, axis=0)] if ace else ["-", "-"]
        seconds = [
            f"{np.mean([_mean(runs[name], 'cpu_seconds') for name in names]):.0f}"
            for runs in (ours, found[row])
        ]
        better = f"{sum(mine < other for mine, other in pairs)}"
        cells = (" against ".join(means), " against ".join(seconds))
        lines.append(table_row(ROWS[row].title, str(len(names)), better, *cells))
    return [*lines, ""]


def _means(
    found: dict[str, dict[str, list[Line]]], shown: list[str], shared: dict[str, set[str]]
) -> list[str]:
    """Return means over sets that all rows of a group have, for the two largest groups of sets."""
    groups = {frozenset(sets) for sets in shared.values()}
    lines = []
    for sets in sorted(groups, key=len, reverse=True)[:_GROUPS]:
        rows = [row for row in shown if shared[row] >= sets]
        if len(rows) < 2:
            continue
        ace = [name for name in sets if name not in OGB]
        lines += [f"Over the sets that all these rows have ({len(sets)}):", ""]
        lines += [table_row("row", "mean rank", f"mean RMSE, {len(ace)} of MoleculeACE", "CPU s")]
        lines += [table_row("---", "---:", "---:", "---:")]
        for row in rows:
            scores = {r: {s: _mean(found[r][s], "test") for s in sets} for r in rows}
            ranks = [sum(scores[r][s] < scores[row][s] for r in rows) + 1 for s in sets]
            mean = f"{np.mean([scores[row][s] for s in ace]):.3f}" if ace else "-"
            seconds = np.mean([_mean(found[row][s], "cpu_seconds") for s in sets])
            lines.append(
                table_row(ROWS[row].title, f"{np.mean(ranks):.2f}", mean, f"{seconds:.0f}")
            )
        lines.append("")
    return lines


def _mean(lines: list[Line], name: str) -> float:
    return statistics.fmean(line[name] for line in lines)


def _order(name: str) -> tuple[bool, str]:
    return name not in OGB, name


def main(words: list[str] | None = None) -> None:
    """Run what is asked for and not in the file; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data-folder", type=Path, required=True, help="folder of the sets")
    add("--sets", nargs="+", metavar="SET", help="names of sets (default: all)")
    add("--rows", nargs="+", default=list(ROWS), choices=ROWS, metavar="ROW", help="default: all")
    add("--sizes", nargs="+", default=list(SIZES), choices=SIZES, help="default: all")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2], help="default: 0 1 2")
    add("--chemprop", metavar="COMMAND", help="path of chemprop 2.3.1; else the row is left out")
    add("--out", type=Path, default=Path("runs/small_data.jsonl"), help="file of the runs")
    add("--print", action="store_true", help="write the tables; no new runs")
    add("--markdown", type=Path, help="page to write the tables to, between its markers")
    asked = parser.parse_args(words)
    files, results = sets_in(asked.data_folder), JsonLines(asked.out)
    if missing := set(asked.sets or files) - set(files) or ({"any"} if not files else set()):
        parser.error(f"{asked.data_folder} has no set {sorted(missing)[0]!r}")
    rows = [name for name in asked.rows if name != "chemprop" or asked.chemprop or asked.print]
    runs = [
        (seed, size, name, row)
        for seed in asked.seeds
        for size in asked.sizes
        for name in asked.sets or files
        for row in rows
    ]
    for seed, size, name, row in [] if asked.print else runs:
        key = {"set": name, "row": row, "size": size, "seed": seed, "settings": ROWS[row].settings}
        if results.last(key) is not None:
            continue
        options = {"program": asked.chemprop} if row == "chemprop" else {}
        found = ROWS[row].run(read(name, files[name], size, seed), seed, **options)
        found = {key: round(value, 4) for key, value in found.items()}
        results.append(key | found)
        print(f"{name} {row} {size} seed {seed}: {found}", flush=True)
    text = tables(results.lines, asked.rows)
    print(text)
    if asked.markdown is not None:
        write_between_marks(asked.markdown, text)


if __name__ == "__main__":
    main()
