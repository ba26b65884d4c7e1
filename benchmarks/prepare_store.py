"""Measure the preparation of a store from a file: `python -m benchmarks.prepare_store`.

The table repeats real molecules with one label: those of the shipped data set `mini` (up to 9 heavy
atoms), or those of `--molecules`, a CSV with a column of SMILES and one of numbers. For the size of
PCQM4Mv2, `--rows 3750000 --sample 0 --parts 1` prepares the whole table once.

- *speed*: molecules per second of OGB's own processing (`PygPCQM4Mv2Dataset.process`, unchanged)
  and of `prepare` with two workers and canonical atom order, on the first rows of the table. They
  take turns; the median counts.
- *memory*: the rate and the peak memory of `slicegraph prepare` with its workers, on a third of the
  table and on all of it; by the clock, and by the time of the processors, which other work on the
  machine hardly changes. RSS counts pages that processes share once per process, PSS counts them
  once (Linux only).
"""

import argparse
import contextlib
import gzip
import io
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pandas as pd
import torch
from ogb.lsc import PygPCQM4Mv2Dataset

from benchmarks.timing import median_ms
from slicegraph.data.prepare import prepare

MINI = Path(__file__).parents[1] / "datasets" / "mini" / "mini.csv.gz"


def write_table(path: Path, rows: int, molecules: Path) -> None:
    """Write the SMILES and labels of a table again and again, until there are so many rows."""
    found = pd.read_csv(molecules)
    smiles = found[next(name for name in found if name.lower() == "smiles")].tolist()
    labels = found.select_dtypes("number").iloc[:, 0].tolist()
    pairs = islice(cycle(zip(smiles, labels, strict=True)), rows)
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("idx,smiles,homolumogap\n")
        file.writelines(f"{i},{text},{label}\n" for i, (text, label) in enumerate(pairs))


def write_beginning(table: Path, path: Path, rows: int) -> None:
    with gzip.open(table, "rt") as source, gzip.open(path, "wt", compresslevel=1) as target:
        target.writelines(islice(source, rows + 1))


class Processed(Exception):
    """Stops OGB before it loads the file that it saved, which torch 2.6 and later refuse."""


class OwnProcessing(PygPCQM4Mv2Dataset):
    """OGB's class on our table, with all rows as training data."""

    def process(self) -> None:
        super().process()
        raise Processed

    def get_idx_split(self) -> dict[str, list[int]]:
        return {split: [] for split in ("train", "valid", "test-dev", "test-challenge")}


def process_by_ogb(table: Path, folder: Path) -> None:
    data_set = folder / "pcqm4m-v2"
    shutil.rmtree(data_set, ignore_errors=True)
    (data_set / "raw").mkdir(parents=True)
    (data_set / "RELEASE_v1.txt").touch()
    shutil.copy(table, data_set / "raw" / "data.csv.gz")
    quiet = contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO())
    with quiet[0], quiet[1], contextlib.suppress(Processed):
        OwnProcessing(str(folder))


def process_by_us(table: Path, folder: Path, workers: int) -> None:
    shutil.rmtree(folder / "store", ignore_errors=True)
    prepare(table, folder / "store", workers=workers)


def family(process: int) -> Iterator[int]:
    """Yield a process and the processes that it started."""
    yield process
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        yield from family(int(child))


def memory(process: int) -> tuple[int, int]:
    """Return RSS and PSS of a process and the processes that it started, in bytes."""
    total = {"Rss:": 0, "Pss:": 0}
    with contextlib.suppress(OSError):
        for member in family(process):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith(tuple(total)):
                    name, size, _ = line.split()
                    total[name] += 1024 * int(size)
    return total["Rss:"], total["Pss:"]


def processor_seconds() -> float:
    """Return the processor time of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_command(table: Path, folder: Path, workers: int) -> tuple[float, float, int, int]:
    """Run `slicegraph prepare`; return its seconds, those of the processors, and the peak RSS and
    PSS in bytes."""
    words = [sys.executable, "-m", "slicegraph", "prepare", str(table), "--out", str(folder)]
    words += ["--workers", str(workers)]
    began, used = time.perf_counter(), processor_seconds()
    rss = pss = 0
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
        while process.poll() is None:
            now = memory(process.pid)
            rss, pss = max(rss, now[0]), max(pss, now[1])
            time.sleep(0.5)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"slicegraph prepare failed:\n{output.read()}")
    return time.perf_counter() - began, processor_seconds() - used, rss, pss


def show_speed(table: Path, folder: Path, rows: int, workers: int, repeats: int) -> None:
    write_beginning(table, folder / "sample.csv.gz", rows)
    candidates = {
        "OGB's processing": lambda: process_by_ogb(folder / "sample.csv.gz", folder),
        f"prepare, {workers} workers": lambda: process_by_us(
            folder / "sample.csv.gz", folder, workers
        ),
    }
    ms = median_ms(candidates, repeats)
    print(f"{rows:,} rows, molecules a second")
    for name, taken in ms.items():
        ratio = ms["OGB's processing"] / taken
        print(f"  {name:20} {1e3 * rows / taken:8,.0f} {ratio:6.2f}x", flush=True)


def show_memory(table: Path, folder: Path, sizes: list[int], workers: int) -> None:
    print("slicegraph prepare, start of Python included; most memory of all its processes")
    for part in sizes:
        write_beginning(table, folder / "part.csv.gz", part)
        seconds, used, rss, pss = run_command(folder / "part.csv.gz", folder / str(part), workers)
        size = sum(path.stat().st_size for path in (folder / str(part)).iterdir())
        print(
            f"  {part:9,} rows {seconds:7.1f} s {part / seconds:8,.0f} a second   "
            f"{used:7.1f} s of processors {part / used:8,.0f} a second of one   "
            f"RSS {rss / 1e6:5.0f} MB   PSS {pss / 1e6:5.0f} MB   {size / part:4.0f} bytes each",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rows", type=int, default=300_000, help="rows of the table (default: 300000)")
    add("--molecules", type=Path, default=MINI, help="CSV of molecules (default: that of mini)")
    add("--sample", type=int, default=20_000, help="rows to time; 0: none (default: 20000)")
    add("--parts", type=int, default=2, help="1: all rows, 2: also a third first (default: 2)")
    add("--repeats", type=int, default=3, help="timed rounds (default: 3)")
    add("--workers", type=int, default=2, help="processes of `prepare` (default: 2)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv.gz"
        write_table(table, arguments.rows, arguments.molecules)
        if sample := min(arguments.sample, arguments.rows):
            show_speed(table, Path(folder), sample, arguments.workers, arguments.repeats)
        if os.path.exists("/proc/self/smaps_rollup"):
            sizes = [arguments.rows // 3, arguments.rows][-arguments.parts :]
            show_memory(table, Path(folder), sizes, arguments.workers)


if __name__ == "__main__":
    main()
