"""Run folders as `slicegraph train` writes them, from random predictions for small molecules."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rdkit import Chem
from sklearn.metrics import roc_auc_score

_TEXT = """
C CCO CC(=O)C CN(C)C c1ccccc1 Oc1ccccc1 c1ccncc1 c1cc[nH]c1 C1CCCCC1 C1CO1 C#N FC(F)F NC(N)=O CSC
CS(C)=O CCl CBr CC(=O)Oc1ccccc1C(=O)O CN1C=NC2=C1C(=O)N(C(=O)N2C)C [O-][N+](=O)c1ccccc1
"""
MOLECULES = _TEXT.split()
SIZES = [Chem.MolFromSmiles(text).GetNumAtoms() for text in MOLECULES]
METRICS = {"regression": "MAE", "binary": "ROC-AUC", "multiclass": "accuracy"}
COLUMNS = {"regression": "mae", "binary": "rocauc", "multiclass": "acc"}


def write_run(
    folder: Path,
    kind: str = "regression",
    targets: tuple[str, ...] = ("gap",),
    molecules: int = 400,
) -> Path:
    """A finished run with the splits valid and test."""
    (folder / "predictions").mkdir(parents=True)
    random, results = np.random.default_rng(0), {}
    for split in ("valid", "test"):
        values = {name: _values(kind, molecules, random) for name in targets}
        write_predictions(folder / "predictions" / f"{split}.csv", values)
        results[split] = float(np.mean([_score(kind, *pair) for pair in values.values()]))
    epochs = np.arange(30)
    valid = 0.11 + np.exp(-epochs / 5) + 0.002 * np.maximum(0, epochs - 22)
    columns = {"epoch": epochs, "train_loss": 0.08 + np.exp(-epochs / 5), "valid_loss": valid}
    columns[f"valid_{COLUMNS[kind]}"] = 1.4 * valid if kind == "regression" else 1 - valid / 2
    pd.DataFrame(columns).to_csv(folder / "log.csv", index=False)
    task = {"metric": METRICS[kind], "unit": "eV" if kind == "regression" else ""}
    card = "# sample\n\nSmall molecules.\n\n| column | what |\n|---|---|\n| `gap` | eV |\n"
    run = {"train_seconds": 51.0, "parameters": 432_101, "molecules_per_second": 5890.2}
    run |= {"epochs": 30, "best_epoch": 22, "device": "cpu", "versions": {"torch": "2.13.0"}}
    data = {"name": "sample", "task": kind, "source": "made up", "card": card}
    write_json(folder / "status.json", {"state": "finished", "reason": ""})
    write_json(folder / "metrics.json", task | results | run)
    write_json(folder / "data.json", task | data | {"splits": {"train": 4000, "test": 400}})
    (folder / "command.txt").write_text("slicegraph train --data sample --seed 7\n")
    (folder / "config.yaml").write_text(
        "data: sample\npreset: mini\nseed: 7\nlearning_rate: 0.001\nepochs: 30\nema: 0.999\n"
        "model:\n  hidden_channels: 96\n  dropout: 0.1\ncompile: false\ninit: null\n"
    )
    return folder


def write_json(path: Path, changes: dict) -> None:
    """Write a JSON file, or change entries of one."""
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(old | changes))


def write_predictions(path: Path, values: dict, smiles: list[str] | None = None) -> None:
    """The table of a split, from the labels and the predictions of each target."""
    count = len(next(iter(values.values()))[0])
    order = np.arange(count) % len(MOLECULES)
    columns = {
        "row": 2 * np.arange(count),
        "smiles": smiles or [MOLECULES[i] for i in order],
        "num_atoms": [SIZES[i] for i in order],
    }
    for name, (true, predicted) in values.items():
        columns |= {f"{name}_true": true, f"{name}_pred": predicted}
    pd.DataFrame(columns).to_csv(path)


def write_test_split(run: Path, true: Any, predicted: Any, smiles: Any = None) -> None:
    """Replace the predictions of gap in the test split."""
    write_predictions(run / "predictions" / "test.csv", {"gap": (true, predicted)}, smiles)


def _values(kind: str, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if kind == "regression":
        true = random.normal(6.5, 1.3, count)
        return true, true + random.standard_t(3, count) * 0.2
    if kind == "binary":
        true = (random.random(count) < 0.35).astype(float)
        return true, 1 / (1 + np.exp(-random.normal(2.4 * true - 1.4, 1.2)))
    true = random.integers(0, 4, count).astype(float)
    return true, np.where(random.random(count) < 0.75, true, random.integers(0, 4, count))


def _score(kind: str, true: np.ndarray, predicted: np.ndarray) -> float:
    if kind == "regression":
        return np.abs(predicted - true).mean()
    return roc_auc_score(true, predicted) if kind == "binary" else (true == predicted).mean()
