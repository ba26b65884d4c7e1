"""Writes run folders as `slicegraph train` does, from made-up logs and real small molecules."""

import csv
import json
from pathlib import Path

import numpy as np
from rdkit import Chem
from sklearn.metrics import roc_auc_score

_TEXT = """
C CC CCC CCCC CCO CCCO CC(C)O CC=O CC(=O)C CC(=O)O CCN CCNC CN(C)C c1ccccc1 Cc1ccccc1 Oc1ccccc1
Nc1ccccc1 c1ccncc1 c1ccoc1 c1ccsc1 c1cc[nH]c1 C1CCCCC1 C1CCCC1 C1CC1 C1CO1 C1COC1 C#C C#N CC#N
CC#CC C=C C=CC=C CC(C)=C FC(F)F CCF CC(N)=O NC(N)=O OCC(O)CO OCCO COC COCC CSC CS(C)=O CCl CBr
Clc1ccccc1 O=C1CCCCC1 O=C1CCC1 CC(=O)Oc1ccccc1C(=O)O CN1C=NC2=C1C(=O)N(C(=O)N2C)C
CC(C)Cc1ccc(cc1)C(C)C(=O)O OC(=O)c1ccccc1 COc1ccccc1 c1ccc2ccccc2c1 N#CC#N [O-][N+](=O)c1ccccc1
"""
MOLECULES = _TEXT.split()
SIZES = [Chem.MolFromSmiles(text).GetNumAtoms() for text in MOLECULES]


def write_run(
    folder: Path,
    kind: str = "regression",
    targets: tuple[str, ...] = ("gap",),
    molecules: int = 400,
    seed: int = 0,
) -> Path:
    """A finished run with the splits valid and test."""
    metric = {"regression": "MAE", "binary": "ROC-AUC", "multiclass": "accuracy"}[kind]
    unit = "eV" if kind == "regression" else ""
    (folder / "predictions").mkdir(parents=True)
    random = np.random.default_rng(seed)
    results = {}
    for split in ("valid", "test"):
        values = {name: _values(kind, molecules, random) for name in targets}
        write_predictions(folder / "predictions" / f"{split}.csv", values)
        results[split] = float(np.mean([_score(kind, *pair) for pair in values.values()]))
    _write_log(folder / "log.csv", kind, random)
    _write_words(folder, kind, metric, unit, results)
    return folder


def write_predictions(
    path: Path,
    values: dict[str, tuple[np.ndarray, np.ndarray]],
    smiles: list[str] | None = None,
) -> None:
    """The table of a split: for each target the labels and the predictions."""
    count = len(next(iter(values.values()))[0])
    order = np.arange(count) % len(MOLECULES)
    names = [f"{name}_{what}" for name in values for what in ("true", "pred")]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["index", "row", "smiles", "num_atoms", *names])
        for i in range(count):
            text = smiles[i] if smiles else MOLECULES[order[i]]
            cells = [_cell(column[i]) for pair in values.values() for column in pair]
            writer.writerow([i, 2 * i, text, SIZES[order[i]], *cells])


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


def _cell(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))


def _values(kind: str, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if kind == "regression":
        true = random.normal(6.5, 1.3, count)
        return true, true + random.standard_t(3, count) * 0.2
    if kind == "binary":
        true = (random.random(count) < 0.35).astype(float)
        return true, 1 / (1 + np.exp(-random.normal(2.4 * true - 1.4, 1.2)))
    true = random.integers(0, 4, count).astype(float)
    return true, np.where(random.random(count) < 0.75, true, random.integers(0, 4, count))


def _write_log(path: Path, kind: str, random: np.random.Generator) -> None:
    metric = {"regression": "mae", "binary": "rocauc", "multiclass": "acc"}[kind]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        head = "epoch,step,train_loss,valid_loss,{},lr,molecules_per_second,seconds"
        writer.writerow(head.format(f"valid_{metric}").split(","))
        for epoch in range(30):
            train = 0.08 + np.exp(-epoch / 5) + random.normal(0, 0.01)
            valid = 0.11 + np.exp(-epoch / 5) + 0.002 * max(0, epoch - 22)
            score = 1.4 * valid if kind == "regression" else 1 - valid / 2
            row = [epoch, 40 * epoch + 40, train, valid, score, 1e-3, 6000, 1.7 * epoch]
            writer.writerow(row)


def _score(kind: str, true: np.ndarray, predicted: np.ndarray) -> float:
    if kind == "regression":
        return np.abs(predicted - true).mean()
    return roc_auc_score(true, predicted) if kind == "binary" else (true == predicted).mean()


def _write_words(
    folder: Path, kind: str, metric: str, unit: str, results: dict[str, float]
) -> None:
    write_json = lambda name, value: (folder / name).write_text(json.dumps(value))  # noqa: E731
    write_json("status.json", {"state": "finished", "reason": ""})
    write_json(
        "metrics.json",
        {"metric": metric, "unit": unit, "higher_is_better": kind != "regression"}
        | results
        | {"train_seconds": 51.0, "parameters": 432_101}
        | {"molecules_per_second": 5890.2, "epochs": 30, "best_epoch": 22, "device": "cpu"}
        | {"versions": {"slicegraph": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}},
    )
    write_json(
        "data.json",
        {"name": "sample", "task": kind, "metric": metric, "unit": unit, "source": "made up"}
        | {"splits": {"train": 4000, "valid": 400, "test": 400}}
        | {
            "card": "# sample\n\nSmall molecules.\n\n| column | what |\n|---|---|\n| `gap` | eV |\n"
        },
    )
    (folder / "command.txt").write_text("slicegraph train --data sample --seed 7\n")
    (folder / "config.yaml").write_text(
        "data: sample\npreset: mini\nseed: 7\nlearning_rate: 0.001\nepochs: 30\nema: 0.999\n"
        "model:\n  hidden_channels: 96\n  dropout: 0.1\ncompile: false\ninit: null\n"
    )
