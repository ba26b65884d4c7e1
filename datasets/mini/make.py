"""Draws the data set `mini` from QM9: `pip install qm9pack`, then `python datasets/mini/make.py`.

Writes `mini.csv.gz` into this folder: the same bytes every time, whatever the machine, as long as
zlib compresses alike.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from rdkit import Chem

from slicegraph.data.datasets.source import HARTREE_IN_EV, qm9_folder, read_qm9
from slicegraph.data.splits import permutation

SEED = 20140805
SIZES = {"train": 10_000, "valid": 1_000, "test": 1_000}
COLUMNS = ("smiles", "homolumogap", "split", "qm9_index")


def draw(molecules: list[Any], count: int) -> Iterator[Any]:
    """`count` molecules at random, none of them twice under another spelling."""
    seen: set[str] = set()
    for position in permutation(len(molecules), SEED):
        molecule = molecules[position]
        canonical = Chem.CanonSmiles(molecule.smiles)
        if canonical not in seen:
            seen.add(canonical)
            yield molecule
        if len(seen) == count:
            return
    raise ValueError(f"make: {len(seen)} different molecules, {count} are wanted")


def rows(molecules: pd.DataFrame, sizes: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """The lines of the table: the splits one after another, each in the order of QM9."""
    drawn = draw(list(molecules.itertuples(index=False)), sum(sizes.values()))
    for split, size in sizes.items():
        for molecule in sorted(next(drawn) for _ in range(size)):
            gap = f"{molecule.gap_hartree * HARTREE_IN_EV:.4f}"
            yield molecule.smiles, gap, split, str(molecule.number)


def compressed(table: Iterable[tuple[str, ...]]) -> bytes:
    """The table as CSV in gzip, without a date or a file name in the header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(table)
    packed = bytearray(gzip.compress(text.getvalue().encode(), compresslevel=9, mtime=0))
    packed[9] = 255  # the operating system: unknown. Versions of Python write different values.
    return bytes(packed)


def main() -> None:
    folder = qm9_folder()
    if folder is None:
        raise SystemExit("make: qm9pack is not installed; pip install qm9pack")
    target = Path(__file__).parent / "mini.csv.gz"
    target.write_bytes(compressed(rows(read_qm9(folder), SIZES)))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
