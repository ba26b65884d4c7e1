"""Whether intervals cover what they promise, and whether deviations tell where errors are large.

    python -m benchmarks.uncertainty --tables ogbg_molesol.csv:NAME --seeds 0 1 2 --out FILE.jsonl
    python -m benchmarks.uncertainty --tables freesolv.csv:expt --chemprop venv/bin/chemprop ...
    python -m benchmarks.uncertainty --print docs/uncertainty.md --out docs/uncertainty.jsonl

For each seed a random fifth of the rows of a table is kept for testing: nothing is learned, chosen
or calibrated on it. On the others the default of `slicegraph train`, a kernel head, is solved as a
single model and as five folds. Coverage is a promise about the mean over splits, so many seeds are
averaged. The vectors of the encoder and the descriptors of a table are computed once; splits,
heads and intervals are made by the functions of the command. A finished design is one JSON line,
and what is in the file already is skipped. The file also has networks, which an earlier version of
this benchmark trained. chemprop's ensemble of five, with its defaults and its own conformal
intervals, is trained on the same rows if its command is given; a tenth of them chooses its epoch
and gives the intervals.
"""

import argparse
import csv
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import betabinom, spearmanr
from torch_geometric.data import Data

from benchmarks.json_lines import JsonLines
from benchmarks.markdown import row, write_between_marks
from slicegraph.data.batch import molecule_loader
from slicegraph.data.splits import SplitData, fold_splits, make_splits, permutation
from slicegraph.metrics import number
from slicegraph.predict.predictor import encoding_of
from slicegraph.predict.uncertainty import LEVELS, Calibration, deviation, interval_rank
from slicegraph.train import TrainConfig, folds, results
from slicegraph.train.data import MoleculeRunData, model_fields, rows_of
from slicegraph.train.head import solve_head
from slicegraph.train.module import model_from

SHARE = 0.2  # of the rows, for testing
FRACTIONS = (0.8, 0.1, 0.1)  # of the others, the default of the command
FOLDS = 5
SHOWN = (0.8, 0.9, 0.95)
DESIGNS = {"single": 1, "folds": FOLDS}  # models
MODELS = {"single": "one model", "ensemble": "ensemble of 5", "folds": "5 folds"}
MODELS |= {"chemprop": "chemprop, ensemble of 5"}
HELD_OUT = 0.1  # of the training rows, for chemprop's intervals
DOUBT = 1 / 3  # the share of the tested molecules with the largest deviations


def divided(table: Path, folder: Path, seed: int) -> tuple[Path, Path]:
    """Write the rows to train on and the rows to test on as two files."""
    with table.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    order = permutation(len(rows), seed)
    count = round(SHARE * len(rows))
    paths = []
    for name, chosen in (("test", order[:count]), ("train", order[count:])):
        path = folder / f"{table.stem}-{seed}-{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(head)
            writer.writerows(rows[i] for i in np.sort(chosen))
        paths.append(path)
    return paths[1], paths[0]


class KernelTable:
    """A table whose molecules are encoded once, and the default model of any part of it."""

    def __init__(self, path: Path, target: str) -> None:
        config = TrainConfig(data=f"csv:{path}", targets=(target,), split="random", threads=1)
        self.config = replace(config, smiles="smiles", allow_rejected=0.1, accelerator="cpu")
        self.config = self.config.resolved(rows_of(self.config))
        if self.config.head != "kernel":
            raise ValueError(f"benchmarks: the default for {path} is no kernel head")
        self.data = MoleculeRunData(self.config)
        self.data.prepare_data(progress=False)
        self.dataset, store = self.data.dataset, self.data.dataset.store
        model = model_from(self.config.start, model_fields(self.config, self.data), {}).eval()
        self.vectors = torch.empty(len(store), model.readout.out_channels)
        self.features = torch.empty(len(store), model.config.num_features)
        with torch.inference_mode():
            for batch in molecule_loader(store, 128, encode=encoding_of(model.config)):
                self.vectors[batch.index] = model.embed(batch)
                self.features[batch.index] = batch.features
        self.labels = self.dataset.labels(np.arange(len(store)))
        self.split_data = SplitData(self.dataset.keys, store.smiles, self.labels)

    def texts(self, positions: np.ndarray) -> list[str]:
        return [self.dataset.store.smiles(int(i)) for i in positions]

    def solve(self, parts: dict[str, np.ndarray]) -> Any:
        """Solve the model of a split; return what predicts values and deviations ``[n, 1]``."""
        self.data.dataset = replace(self.dataset, splits=parts)
        model = model_from(self.config.start, model_fields(self.config, self.data), {})
        model.embed = lambda batch: self.vectors[batch.index]

        def batch(positions: np.ndarray) -> Data:
            labels = torch.from_numpy(self.labels[positions])
            index = torch.from_numpy(positions)
            return Data(index=index, features=self.features[index], y=labels)

        solve_head(model, [batch(parts["train"])], self.config.seed)
        model.eval()

        def predict(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            with torch.no_grad():
                values, std = model.with_deviation(batch(positions))
            return values.numpy(), std.numpy()

        return predict

    def calibrated(
        self, design: str, rest: np.ndarray, test: np.ndarray, seed: int
    ) -> tuple[Calibration, np.ndarray, np.ndarray]:
        """Return the calibration, and values and deviations ``[n, models, 1]`` of the test rows."""
        own, count = self.split_data.at(rest), DESIGNS[design]
        each, members, held = [], [], dict[str, list[Any]](valid=[], test=[])
        for fold in range(1, count + 1):
            found = make_splits("random", own, FRACTIONS, seed)
            if design == "folds":
                found = fold_splits("random", own, count, fold, FRACTIONS, seed)
            parts = {name: rest[part] for name, part in found.parts.items()}
            predict = self.solve(parts)
            for name, known in held.items():
                values, std = predict(parts[name])
                scored = results.Scored(self.labels[parts[name]], values, std)
                table = pd.DataFrame({"index": parts[name], "smiles": self.texts(parts[name])})
                one = folds._Part(table, scored.labels, values[:, None], std[:, None])
                known.append(scored if design == "single" else one)
            members.append(predict(test))
            valid = held["valid"][-1] if design == "single" else None
            each.append(results.calibration_of(self.data.dataset, valid))
        values, stds = (np.stack(kind, 1) for kind in zip(*members, strict=True))
        if design == "single":
            return each[0], values, stds
        config = SimpleNamespace(num_targets=1)
        models: Any = [SimpleNamespace(calibration=one, config=config) for one in each]
        groups: Any = [[fold] for fold in range(count)]
        return folds._calibration(groups, held, models, "regression"), values, stds


def measured(table: KernelTable, design: str, seed: int) -> dict[str, Any]:
    """Score a design on the rows that were kept for testing, with and without the deviations."""
    order = permutation(len(table.labels), seed)
    count = round(SHARE * len(order))
    test, rest = np.sort(order[:count]), np.sort(order[count:])
    calibration, members, stds = table.calibrated(design, rest, test, seed)
    true, spread = table.labels[test, 0], deviation(members, stds)[:, 0]
    error = np.abs(members.mean(1)[:, 0] - true)
    similarity = calibration.neighbours(table.texts(test)).similarity
    line: dict[str, Any] = {"n": len(test), "mae": float(error.mean()), "levels": list(LEVELS)}
    doubtful = spread >= np.quantile(spread, 1 - DOUBT)
    equal = replace(calibration, std=np.empty((0, 1)), predicted=np.zeros(1, bool))
    for name, own in (("", calibration), ("equal_", equal)):
        ends = [own.intervals(members, level, stds)[:, 0].T for level in LEVELS]
        inside = np.array([(low <= true) & (true <= high) for low, high in ends])
        line[f"{name}coverage"] = inside.mean(1).tolist()
        line[f"{name}width"] = [float((high - low).mean()) for low, high in ends]
        line[f"{name}doubtful"] = inside[:, doubtful].mean(1).tolist()
    line["held_out"] = len(calibration.labels)
    line["calibration_error"] = float(np.abs(np.array(line["coverage"]) - LEVELS).mean())
    line["spearman"] = float(spearmanr(spread, error).statistic)
    line["spearman_similarity"] = float(spearmanr(-similarity, error).statistic)
    if design == "folds":
        own = deviation(members)[:, 0]
        line["spearman_models"] = float(spearmanr(own, error).statistic)
    return line


def sampling_error(level: float, held_out: int, tested: int) -> float:
    """Return the standard deviation of a coverage that split conformal prediction has by chance.

    With n exchangeable held-out errors, of which the one of rank k is taken, the number of covered
    molecules of those tested has the beta-binomial distribution of k and n + 1 - k.
    """
    rank = interval_rank(held_out, level)
    return float(betabinom(tested, rank, held_out + 1 - rank).std() / tested)


def chemprop(program: Path, train: Path, test: Path, target: str, seed: int) -> dict[str, Any]:
    """Train chemprop's ensemble, and score its conformal intervals at the levels `SHOWN`."""
    out = train.with_name(f"{train.stem}-chemprop")
    out.mkdir(exist_ok=True)
    rows = read(train)
    chosen = set(permutation(len(rows), seed)[: round(HELD_OUT * len(rows))].tolist())
    parts = ["val" if number in chosen else "train" for number in range(len(rows))]
    table = [one | {"split": part} for one, part in zip(rows, parts, strict=True)]
    held = [one for one in table if one["split"] == "val"]
    for name, own in (("all", table), ("held-out", held)):
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(own[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(own)
    common = ["-s", "smiles", "--accelerator", "cpu", "--num-workers", "0"]
    models = out / "models"
    if not (models / "model_4" / "best.pt").is_file():
        words = [
            "train",
            "-i",
            str(out / "all.csv"),
            "--target-columns",
            target,
            "-t",
            "regression",
        ]
        words += ["--splits-column", "split", "--ensemble-size", "5", "--pytorch-seed", str(seed)]
        subprocess.run([program, *words, *common, "-o", str(models)], check=True)

    def predicted(*options: str) -> tuple[np.ndarray, np.ndarray]:
        words = ["predict", "-i", str(test), "--model-paths", str(models), *common, *options]
        path = out / "predicted.csv"
        words += ["--uncertainty-method", "ensemble", "-o", str(path)]
        subprocess.run([program, *words], check=True)
        found = [(float(one[target]), float(one[f"{target}_unc"])) for one in read(path)]
        values, spread = np.array(found).T
        return values, spread

    true = np.array([float(one[target]) for one in read(test)])
    values, variance = predicted()
    error = np.abs(values - true)
    halves = []
    for level in SHOWN:
        options = ["--calibration-method", "conformal-regression"]
        options += [
            "--conformal-alpha",
            f"{1 - level:.3g}",
            "--cal-path",
            str(out / "held-out.csv"),
        ]
        halves.append(predicted(*options)[1])
    return {
        "n": len(true),
        "mae": float(error.mean()),
        "levels": list(SHOWN),
        "coverage": [float((error <= half).mean()) for half in halves],
        "width": [float(2 * half.mean()) for half in halves],
        "held_out": len(held),
        "spearman": float(spearmanr(variance, error).statistic),
    }


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def show(lines: list[dict[str, Any]]) -> str:
    """Return the table of the page: the mean over the splits of a table, kind and design."""
    head = ["table", "models", "splits", "tested, held out", "MAE"]
    head += [f"{level:.0%}" for level in SHOWN]
    head += ["calibration error", "Spearman, deviation", "Spearman, similarity"]
    texts, groups = [row(*head), row(*["---"] * len(head))], dict[Any, list[dict[str, Any]]]()
    for line in lines:
        kind = "network, " * ("updates" in line and line["models"] != "chemprop")
        groups.setdefault((line["table"], kind, line["models"]), []).append(line)
    titles = [*MODELS]
    for key in sorted(groups, key=lambda x: (x[0], x[1], titles.index(x[2]))):
        own = groups[key]
        n, held = (np.mean([line[name] for line in own]) for name in ("n", "held_out"))
        cells = [key[0], f"{key[1]}{MODELS[key[2]]}", f"{len(own)}", f"{n:,.0f}, {held:,.0f}"]
        cells.append(number(np.mean([line["mae"] for line in own])))
        for level in SHOWN:
            place = own[0]["levels"].index(level)
            covered = 100 * np.array([line["coverage"][place] for line in own])
            error = 100 * sampling_error(level, round(held), round(n))
            if len(own) > 2:
                error = covered.std(ddof=1) / len(own) ** 0.5
            width = np.mean([line["width"][place] for line in own])
            cells.append(f"{covered.mean():.1f} ± {error:.1f} ({number(width)})")
        mean = np.mean([line["coverage"] for line in own], 0)
        off = np.abs(mean - own[0]["levels"]).mean()
        cells.append(f"{off:.3f}")
        for name in ("spearman", "spearman_similarity"):
            known = [line[name] for line in own if name in line]
            cells.append(f"{np.mean(known):.2f}" if known else "")
        texts.append(row(*cells))
    texts += ["", *_with_and_without(groups)]
    return "\n".join(texts)


def _with_and_without(groups: dict[Any, list[dict[str, Any]]]) -> list[str]:
    """Return the table of intervals with deviations and of those of equal width."""
    head = ["table", "models", "level", "width, equal width"]
    head += ["covered of the doubtful third, equal width"]
    texts = [row(*head), row(*["---"] * len(head))]
    for key, own in sorted(groups.items()):
        for level in SHOWN if "equal_width" in own[0] else ():
            place, cells = own[0]["levels"].index(level), [key[0], MODELS[key[2]], f"{level:.0%}"]
            for name, form in (("width", number), ("doubtful", lambda x: f"{100 * x:.1f}")):
                pair = [
                    np.mean([line[f"{e}{name}"][place] for line in own]) for e in ("", "equal_")
                ]
                cells.append(", ".join(map(form, pair)))
            texts.append(row(*cells))
    return texts


def main() -> None:
    """Train what is missing, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[], metavar="FILE:TARGET")
    parser.add_argument("--designs", nargs="*", default=[*DESIGNS], choices=[*DESIGNS])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/uncertainty"), help="of chemprop")
    parser.add_argument("--out", type=Path, required=True, help="the JSON lines")
    parser.add_argument("--chemprop", type=Path, metavar="COMMAND", help="chemprop 2, to compare")
    parser.add_argument("--print", type=Path, metavar="PAGE", help="write the table to a page")
    args = parser.parse_args()
    results = JsonLines(args.out)
    for text in args.tables:
        file, target = text.rsplit(":", 1)
        table: KernelTable | None = None
        for seed in args.seeds:
            key = {"table": Path(file).stem.removeprefix("ogbg_mol"), "seed": seed}
            if args.chemprop and not results.last(key | {"models": "chemprop"}):
                args.runs.mkdir(parents=True, exist_ok=True)
                line = chemprop(args.chemprop, *divided(Path(file), args.runs, seed), target, seed)
                results.append(key | {"models": "chemprop"} | line)
            for design in args.designs:
                if results.last(key | {"models": design, "head": "kernel"}):
                    continue
                table = table or KernelTable(Path(file), target)
                began = time.process_time()
                line = {"models": design, "head": "kernel", **measured(table, design, seed)}
                spent = {"cpu_seconds": round(time.process_time() - began, 1)}
                results.append(key | line | spent)
    if args.print:
        write_between_marks(args.print, show(results.lines))


if __name__ == "__main__":
    main()
