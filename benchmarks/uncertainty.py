"""Whether intervals cover what they promise, and whether deviations tell where errors are large.

    python -m benchmarks.uncertainty --tables delaney.csv:logp --out docs/uncertainty.jsonl
    python -m benchmarks.uncertainty --tables delaney.csv:logp:200 --chemprop venv/bin/chemprop ...
    python -m benchmarks.uncertainty --print docs/uncertainty.md --out docs/uncertainty.jsonl

A fifth of the rows of each table is kept for testing: nothing is trained, chosen or calibrated on
it. On the others five models are trained in two designs, as an ensemble on one split and as five
folds; the first model of the ensemble is the single model. A finished design is one JSON line, and
what is in the file already is skipped. A run that was interrupted goes on. Each coverage has the
error that it has by the number of tested and of held-out molecules alone. chemprop's ensemble of
five, with its defaults and its own conformal intervals, is trained on the same rows if its command
is given; a tenth of them chooses its epoch and gives the intervals.
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import betabinom, spearmanr

import slicegraph
from benchmarks.json_lines import JsonLines
from benchmarks.markdown import row, write_between_marks
from slicegraph.data.splits import permutation
from slicegraph.metrics import number
from slicegraph.predict.uncertainty import LEVELS, interval_rank
from slicegraph.train import TrainConfig
from slicegraph.train.run_folder import RunFolder

DESIGNS: dict[str, dict[str, Any]] = {"ensemble": {"ensemble": 5}, "folds": {"folds": 5}}
SHARE = 0.2  # of the rows, for testing
SHOWN = (0.8, 0.9, 0.95)
MODELS = {"single": "one model", "ensemble": "ensemble of 5", "folds": "5 folds"}
MODELS |= {"chemprop": "chemprop, ensemble of 5"}
HELD_OUT = 0.1  # of the training rows, for chemprop's intervals


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


def train(path: Path, target: str, design: str, seed: int, steps: int) -> Path:
    """Train the models of a design, or go on with them; return the folder of the run."""
    out = path.with_name(f"{path.stem}-{design}-{steps}")
    if (out / "config.yaml").is_file():
        if RunFolder(out).state != "finished":
            slicegraph.train(resume=out)
        return out
    settings = DESIGNS[design] | {"targets": (target,), "max_steps": steps, "seed": seed}
    settings |= {"preset": "mini", "init": "none"}
    settings |= {"allow_rejected": 0.1, "threads": 1, "jobs": 1, "out": str(out)}
    slicegraph.train(TrainConfig(data=f"csv:{path}", **settings))
    return out


def sampling_error(level: float, held_out: int, tested: int) -> float:
    """Return the standard deviation of a coverage that split conformal prediction has by chance.

    With n exchangeable held-out errors, of which the one of rank k is taken, the number of covered
    molecules of those tested has the beta-binomial distribution of k and n + 1 - k.
    """
    rank = interval_rank(held_out, level)
    return float(betabinom(tested, rank, held_out + 1 - rank).std() / tested)


def tested(model: Any, test: Path, target: str) -> dict[str, Any]:
    """Score a model on the rows that were kept for testing."""
    rows = read(test)
    texts = [row["smiles"] for row in rows]
    true = np.array([float(row[target]) for row in rows])
    found = model.predict_rows(texts, near=True)
    good = np.isfinite(found.values[:, 0])
    error = np.abs(found.values[:, 0] - true)[good]
    coverage, width = [], []
    for level in LEVELS:
        low, high = model.predict_interval(texts, level, on_error="nan")[good].T
        coverage.append(float(((low <= true[good]) & (true[good] <= high)).mean()))
        width.append(float((high - low).mean()))
    line: dict[str, Any] = {"n": int(good.sum()), "mae": float(error.mean())}
    line |= {"levels": list(LEVELS), "coverage": coverage, "width": width}
    line["held_out"] = int((~np.isnan(model.calibration.labels[:, 0])).sum())
    line["calibration_error"] = float(np.abs(np.array(coverage) - LEVELS).mean())
    if (name := f"{target}_std") in found.more:
        line["spearman"] = float(spearmanr(found.more[name][good], error).statistic)
    near = found.more["nearest_train_similarity"][good]
    line["spearman_similarity"] = float(spearmanr(-near, error).statistic)
    outside = found.more["outside_domain"][good] == "yes"
    line["outside"] = [int(outside.sum()), float(error[outside].mean()) if outside.any() else None]
    line["inside"] = float(error[~outside].mean())
    return line


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
    """Return the table of the page."""
    head = ["table, seed", "tested, held out", "models", "MAE"]
    head += [f"{level:.0%}" for level in SHOWN]
    head += ["calibration error", "Spearman, deviation", "Spearman, similarity", "MAE inside"]
    head += ["MAE outside (rows)"]
    texts = [row(*head), row(*["---"] * len(head))]
    for line in sorted(lines, key=lambda x: (x["table"], x["seed"], [*MODELS].index(x["models"]))):
        at = dict(
            zip(line["levels"], zip(line["coverage"], line["width"], strict=True), strict=True)
        )
        count, far = line.get("outside", (0, None))
        sizes = f"{line['n']:,}, {line['held_out']:,}"
        cells = [f"{line['table']}, {line['seed']}", sizes, MODELS[line["models"]]]
        cells += [number(line["mae"])]
        for level in SHOWN:
            error = 100 * sampling_error(level, line["held_out"], line["n"])
            covered, width = at[level]
            cells.append(f"{100 * covered:.1f} ± {error:.1f} ({number(width)})")
        forms = {"calibration_error": ".3f", "spearman": ".2f", "spearman_similarity": ".2f"}
        cells += [format(line[name], form) if name in line else "" for name, form in forms.items()]
        cells += [number(line["inside"]) if "inside" in line else ""]
        cells += [f"{number(far)} ({count})" if far is not None else "none" * ("outside" in line)]
        texts.append(row(*cells))
    for name, title in MODELS.items():
        own = [line for line in lines if line["models"] == name]
        if not own:
            continue
        sizes = np.array([line["n"] for line in own])
        share = sizes / sizes.sum()
        covered = share @ np.array([line["coverage"] for line in own])
        at = dict(zip(own[0]["levels"], covered, strict=True))
        cells = ["all", f"{sizes.sum():,}", title, ""]
        for level in SHOWN:
            errors = [sampling_error(level, line["held_out"], line["n"]) for line in own]
            cells.append(f"{100 * at[level]:.1f} ± {100 * np.hypot.reduce(share * errors):.1f}")
        texts.append(row(*cells, *[""] * (len(head) - len(cells))))
    return "\n".join(texts)


def main() -> None:
    """Train what is missing, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[], metavar="FILE:TARGET:UPDATES")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/uncertainty"), help="the runs")
    parser.add_argument("--out", type=Path, required=True, help="the JSON lines")
    parser.add_argument("--chemprop", type=Path, metavar="COMMAND", help="chemprop 2, to compare")
    parser.add_argument("--print", type=Path, metavar="PAGE", help="write the table to a page")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    results = JsonLines(args.out)
    for seed in args.seeds:
        for text in args.tables:
            file, target, steps = text.rsplit(":", 2)
            path, test = divided(Path(file), args.runs, seed)
            key = {"table": Path(file).stem, "seed": seed, "updates": int(steps)}
            if args.chemprop and not results.last(key | {"models": "chemprop"}):
                line = chemprop(args.chemprop, path, test, target, seed)
                results.append(key | {"models": "chemprop"} | line)
            for design in DESIGNS:
                if results.last(key | {"models": design}):
                    continue
                began = time.process_time()
                out = train(path, target, design, seed, int(steps))
                spent = {"cpu_seconds": round(time.process_time() - began, 1)}
                models = {design: out}
                if design == "ensemble":
                    models["single"] = out / "members" / "model-1"
                for name, place in models.items():
                    line = tested(slicegraph.load(place), test, target)
                    results.append(key | {"models": name} | line | spent)
    if args.print:
        write_between_marks(args.print, show(results.lines))


if __name__ == "__main__":
    main()
