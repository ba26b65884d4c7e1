"""Write the vector of each molecule in a file, for scikit-learn, a search or a plot.

The vector is what the head of the model reads. Every row of the file is kept in its place, with all
its columns; a row without a vector has the reason in "error". A .csv or .parquet, written in parts,
has the further columns e0, e1, ...; an .npz, made in memory, has the arrays smiles, vectors [N, C]
and error.
"""

import argparse
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slicegraph.cli import (
    SOME_BAD,
    add_model,
    add_smiles,
    check_new_file,
    load_molecule_model,
    when_stopped,
)

EPILOG = """\
exit status: 0 all rows have a vector, 3 some have an error instead, 2 nothing was done

examples:
  slicegraph embed runs/pretrained molecules.csv --out embeddings.parquet
  slicegraph embed runs/pretrained molecules.smi.gz --out embeddings.npz
"""
_Rows = Iterator[tuple[Any, Any]]  # chunks of the table, and their vectors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the molecules and the output file."""
    add_model(parser)
    add = parser.add_argument
    add("file", metavar="FILE", help="molecules: any file that `slicegraph predict` reads")
    add("--out", required=True, metavar="FILE", help="a .csv, .parquet or .npz to write")
    add_smiles(parser)
    add("--force", action="store_true", help="replace the file if it exists")
    add(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that read SMILES (default: 1)",
    )


def run(args: argparse.Namespace) -> None:
    """Write the vectors; exit with status 3 if a row has none, 130 after Ctrl-C."""
    from slicegraph.predict import table as tables

    out = Path(args.out)
    if (write := WRITERS.get(out.suffix.lower())) is None:
        raise ValueError(f"--out {out} has no known ending, expected {', '.join(WRITERS)}")
    if args.workers < 1:
        raise ValueError(f"--workers {args.workers}, expected at least 1")
    check_new_file(out, args.force)
    if out.exists() and out.samefile(args.file):
        raise ValueError(f"--out {out} is the file that is read")
    model = load_molecule_model(args)
    table = tables.open_whole(args.file, args.smiles, model.config)
    columns = [f"e{number}" for number in range(model.embedding_channels)]
    options = {"batch_size": args.batch_size, "workers": args.workers}
    found = tables.predicted_rows(model, table, **options, embed=True)
    found = tables.with_bar(table.source, Path(args.file).name, found)
    written = tables.PredictedTable(model.config, table, columns=columns)
    counts: Counter[str] = Counter()
    with when_stopped("no file was written"):
        write(out, written, _counted(found, counts))
    bad, size = counts["errors"], len(columns)
    print(f"{counts['rows']:,} rows in {out}, {bad:,} with an error; {size} numbers each")
    if bad:
        raise SystemExit(SOME_BAD)


def _counted(found: _Rows, counts: Counter[str]) -> _Rows:
    for chunk, vectors in found:
        bad = sum(error is not None for error in vectors.errors)
        counts.update(rows=len(vectors.errors), errors=bad)
        yield chunk, vectors


def _write_csv(out: Path, written: Any, found: _Rows) -> None:
    from slicegraph.files import write_atomically

    write_atomically(out, written.blocks(found))


def _write_parquet(out: Path, written: Any, found: _Rows) -> None:
    from slicegraph.extras import needs

    with needs("slicegraph embed", "parquet"):
        import pyarrow as pa
        from pyarrow import parquet
    kinds = dict.fromkeys((*written.table.columns, *written.added), pa.string())
    kinds |= dict.fromkeys(written.values, pa.float32())
    schema = pa.schema(kinds.items())
    draft = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    try:
        with parquet.ParquetWriter(draft, schema) as file:
            for chunk, (vectors, errors, warnings, _) in found:
                cells = zip(*map(written.table.cells, chunk.rows), strict=True)
                columns = [*cells, *vectors.T, warnings, errors]
                arrays = map(pa.array, columns, schema.types)
                file.write_table(pa.Table.from_arrays(list(arrays), schema=schema))
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)


def _write_npz(out: Path, written: Any, found: _Rows) -> None:
    import numpy as np

    from slicegraph.files import write_atomically

    texts, vectors, errors = [], [], []
    for chunk, part in found:
        texts += [row.joined(written.table.more) for row in chunk.rows]
        errors += [error or "" for error in part.errors]
        vectors.append(part.values)
    file = io.BytesIO()
    arrays: Any = {"smiles": np.array(texts, str), "error": np.array(errors, str)}
    empty = np.empty((0, len(written.values)), np.float32)
    np.savez(file, vectors=np.concatenate([empty, *vectors]), **arrays)
    write_atomically(out, [file.getbuffer()])


WRITERS: dict[str, Callable[[Path, Any, _Rows], None]] = {
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".csv": _write_csv,
}
