"""Whether standardised molecules give better models: small tables, trained with and without.

    python -m benchmarks.standardize --tables delaney.csv:logS freesolv.csv:y --out lines.jsonl
    python -m benchmarks.standardize --print --out docs/standardize.jsonl

Each run is `slicegraph.train` with its defaults and a scaffold split; a finished run is one JSON
line, and runs that are in the file already are skipped. The split is that of the table as it is, in
both arms, so that both are tested on the same rows: grouping ignores salts, charges and isotopes.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import slicegraph
from slicegraph.train import TrainConfig

ARMS = {"as given": "none", "fragment and charge": "hydrogens,fragment,charge", "all": "all"}


def run(table: str, target: str, arm: str, seed: int) -> dict[str, Any]:
    """Train once; return the line of the run."""
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            data=f"csv:{table}",
            targets=(target,),
            split="scaffold",
            split_seed=seed,
            seed=seed,
            standardize=tuple(ARMS[arm].split(",")),
            allow_rejected=0.1,
            threads=1,
            out=f"{folder}/run",
        )
        result = slicegraph.train(config, progress=False)
    facts = {"table": Path(table).name, "target": target, "arm": arm, "seed": seed}
    scores = {"metric": result.metric, "valid": result.valid, "test": result.test}
    return facts | scores | {"cpu_seconds": round(time.process_time() - began, 1)}


def show(lines: list[dict[str, Any]]) -> None:
    """Print the mean and the deviation of each table and arm."""
    print("| table | arm | seeds | metric | valid | test |\n|---|---|---|---|---|---|")
    for table in dict.fromkeys(line["table"] for line in lines):
        for arm in ARMS:
            own = [line for line in lines if (line["table"], line["arm"]) == (table, arm)]
            if own:
                cells = [[line[split] for line in own] for split in ("valid", "test")]
                shown = " | ".join(f"{np.mean(cell):.4f} ± {np.std(cell):.4f}" for cell in cells)
                print(f"| {table} | {arm} | {len(own)} | {own[0]['metric']} | {shown} |")


def main() -> None:
    """Train what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=[], metavar="FILE:TARGET")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, required=True, help="the JSON lines")
    parser.add_argument("--print", action="store_true", help="print the table of the finished runs")
    args = parser.parse_args()
    lines = []
    if args.out.is_file():
        lines = [json.loads(line) for line in args.out.read_text().splitlines()]
    names = ("table", "target", "arm", "seed")
    done = {tuple(line[name] for name in names) for line in lines}
    for seed in args.seeds:
        for table, _, target in (text.rpartition(":") for text in args.tables):
            for arm in ARMS:
                if (Path(table).name, target, arm, seed) not in done:
                    line = run(table, target, arm, seed)
                    lines.append(line)
                    with open(args.out, "a") as file:
                        file.write(json.dumps(line) + "\n")
    if args.print:
        show(lines)


if __name__ == "__main__":
    main()
