"""Show what each atom contributes to a prediction, and which substructures drive a target.

The contributions of the atoms add up to the prediction minus the baseline, the mean of the training
labels. They are Shapley values: what the model predicts with and without an atom, for parts of the
molecule in many orders of the atoms. For classes they are log-odds of class 1 or, of several
classes, of the predicted class.
"""

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli import (
    SOME_BAD,
    add_features,
    add_model,
    add_smiles,
    check_feature_numbers,
    check_new_file,
    columns,
    feature_numbers,
    file_among,
    load_molecule_model,
    print_aligned,
    when_stopped,
)

if TYPE_CHECKING:
    from slicegraph.predict.explain import Explanation

EPILOG = """\
The table has a row for each atom: row of the file (from 0), smiles, target, class, prediction,
baseline, atom, symbol, contribution, standard_error, and problem for a row without contributions.
An interrupted command goes on where it was when it is run again.

exit status: 0 all rows are explained, 3 some have a problem instead, 2 nothing was done

examples:
  slicegraph explain runs/mine "CC(=O)Nc1ccc(O)cc1" --pictures .
  slicegraph explain runs/mine my.csv --out atoms.csv --pictures drawn --png
  slicegraph explain runs/mine my.csv --out atoms.csv --substructures parts.csv
"""
_MOST_SHOWN = 10  # substructures of each target on the console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the molecules and the files to write."""
    add_model(parser)
    add = parser.add_argument
    text = "SMILES or InChI, A>>B for a row of several; or a file that `slicegraph predict` reads"
    add("inputs", nargs="+", metavar="SMILES|FILE", help=text)
    add("--targets", type=columns, metavar="A,B", help="targets to explain (default: all)")
    add("--out", metavar="FILE", help="a .csv with the contributions; required for a file")
    add("--pictures", metavar="FOLDER", help="folder for a drawing of each molecule and target")
    add("--png", action="store_true", help="draw .png pictures (default: .svg)")
    add(
        "--limit",
        type=float,
        metavar="X",
        help="contribution with the deepest colour (default: the largest of each molecule)",
    )
    text = "a .csv with the mean contribution of each BRICS fragment and ring"
    add("--substructures", metavar="FILE", help=text)
    text = "molecules that a substructure must be in (default: %(default)s)"
    add("--least", type=int, default=2, metavar="N", help=text)
    text = "orders of the atoms to take; more are more accurate (default: %(default)s)"
    add("--samples", type=int, default=32, metavar="N", help=text)
    add_smiles(parser)
    add_features(parser)
    add("--force", action="store_true", help="replace the files if they exist")


def run(args: argparse.Namespace) -> None:
    """Explain; exit with status 3 if a row has a problem, 130 after Ctrl-C."""
    from slicegraph.predict.explain import Sample, Substructures, explain_rows, target_numbers
    from slicegraph.predict.predictor import RowReader
    from slicegraph.predict.table import RowNumbers, open_whole

    file = file_among(args.inputs)
    if file is not None and args.out is None:
        raise ValueError("--out is missing: a .csv to write the contributions to")
    for name in ("out", "substructures"):
        if path := getattr(args, name):
            if not path.lower().endswith(".csv"):
                raise ValueError(f"--{name} {path} has no known ending, expected .csv")
            check_new_file(Path(path), args.force)
            if file is not None and Path(path).exists() and Path(path).samefile(file):
                raise ValueError(f"--{name} {path} is the file that is read")
    if args.limit is not None and not args.limit > 0:
        raise ValueError(f"--limit {args.limit}, expected more than 0")
    model = load_molecule_model(args)
    target_numbers(model.config, args.targets)  # raises for an unknown one

    given, names = feature_numbers(args.features), model.config.feature_columns
    reader, numbers = RowReader.of(model.config), None
    if file is None:
        check_feature_numbers(model.config, given)
    elif names or given:
        numbers = RowNumbers(open_whole(file, args.smiles, model.config), file, names, given)

    def explain(texts: list[str], row: Any = None) -> Iterator[Any]:
        options: dict[str, Any] = {"samples": args.samples, "batch_size": args.batch_size}
        if not model.config.num_features:
            yield from explain_rows(model, texts, args.targets, **options)
            return
        for text in texts:
            known = numbers(row) if numbers else ([given[name] for name in names], None)
            if isinstance(found := reader(text, *known), Sample):
                options["numbers"] = [found.features]
                yield from explain_rows(model, [text], args.targets, **options)
            else:
                yield found

    parts = Substructures()
    if args.pictures:
        Path(args.pictures).mkdir(parents=True, exist_ok=True)
    with when_stopped("run the same command again to go on"):
        if file is None:
            bad = _explain_texts(args, list(explain(args.inputs)), parts)
        else:
            bad = _explain_file(args, open_whole(file, args.smiles, model.config), explain, parts)
    if args.substructures:
        rows = parts.rows(args.least)
        _write(Path(args.substructures), parts.COLUMNS, rows)
        _print_substructures(rows)
    if bad:
        raise SystemExit(SOME_BAD)


def _explain_texts(args: argparse.Namespace, found: list[Any], parts: Any) -> int:
    """Print the contributions of each molecule; return how many texts are not molecules."""
    from slicegraph.predict.explain import ATOM_COLUMNS, atom_rows

    rows: list[list[Any]] = []
    for number, (text, each) in enumerate(zip(args.inputs, found, strict=True)):
        if isinstance(each, str):
            print(f"{text}\nproblem: {each}\n")
            rows += atom_rows(number, each, text)
            continue
        for one in each:
            _print(one)
            rows += atom_rows(number, one)
        parts.add(each)
        _draw(args, number, each)
    if args.out:
        _write(Path(args.out), ATOM_COLUMNS, rows)
    return sum(isinstance(each, str) for each in found)


def _explain_file(args: argparse.Namespace, table: Any, explain: Any, parts: Any) -> int:
    """Write the contributions of every row of a file; return how many rows have a problem."""
    import numpy as np
    from tqdm import tqdm

    from slicegraph.data.table import printable
    from slicegraph.files import sha256_of, write_atomically
    from slicegraph.metrics import counted
    from slicegraph.models.base import WEIGHTS_FILE, find_model
    from slicegraph.predict.explain import ATOM_COLUMNS, Explanation, atom_rows

    file, place = Path(args.inputs[0]), find_model(args.model)
    weights = place if place.is_file() else place / WEIGHTS_FILE
    record = {"model": sha256_of(weights), "file": sha256_of(file), "smiles": table.molecules}
    record |= {"samples": args.samples, "targets": args.targets}
    record |= {"features": args.features} if args.features else {}
    draft = Path(f"{args.out}.draft")
    done = _read_draft(draft, record)
    lines = [json.dumps(record), *(json.dumps(each) for each in done.items())]
    write_atomically(draft, ["".join(f"{line}\n" for line in lines).encode()])
    rows: list[list[Any]] = []
    bad = count = 0
    with open(draft, "a", encoding="utf-8") as kept:
        options = {"desc": file.name, "unit": " rows", "mininterval": 0.5}
        for number, row in enumerate(tqdm(table.source.rows(), **options)):
            if number in done:
                found = done[number]
            elif row.problem:
                found = row.problem
            else:
                found = next(iter(explain([row.joined(table.more)], row)))
            if number not in done:
                plain = found if isinstance(found, str) else [asdict(one) for one in found]
                kept.write(json.dumps([number, plain], default=np.ndarray.tolist) + "\n")
                kept.flush()
            count += 1
            if isinstance(found, str):
                rows += atom_rows(number, found, printable(row.joined(table.more)))
                bad += 1
                continue
            each = [one if isinstance(one, Explanation) else _read(one) for one in found]
            for one in each:
                rows += atom_rows(number, one)
            parts.add(each)
            _draw(args, number, each)
    _write(Path(args.out), ATOM_COLUMNS, rows)
    draft.unlink()
    print(f"{counted(count, 'rows')} in {args.out}, {bad:,} with a problem", file=sys.stderr)
    return bad


def _read_draft(draft: Path, record: dict[str, Any]) -> dict[int, Any]:
    """Return what an interrupted command has explained, if it was the same command."""
    if not draft.is_file():
        return {}
    first, *lines = draft.read_text("utf-8").splitlines() or [""]
    if first != json.dumps(record):
        return {}
    done = {}
    for line in lines:
        try:
            number, found = json.loads(line)
        except ValueError:  # the last line, cut off
            break
        done[number] = found
    return done


def _read(values: dict[str, Any]) -> "Explanation":
    import numpy as np

    from slicegraph.predict.explain import Explanation

    arrays = {name: np.array(values[name]) for name in ("contributions", "errors")}
    return Explanation(**(values | arrays | {"symbols": tuple(values["symbols"])}))


def _draw(args: argparse.Namespace, number: int, explanations: list[Any]) -> None:
    if not args.pictures:
        return
    from slicegraph.files import write_atomically

    for place, one in enumerate(explanations):
        slug = re.sub(r"[^A-Za-z0-9]+", "-", one.target).strip("-")[:40] or str(place)
        name = f"{number}-{slug}" if len(explanations) > 1 else str(number)
        drawn = one.draw(args.png, args.limit)
        content = drawn if args.png else drawn.encode()
        ending = "png" if args.png else "svg"
        write_atomically(Path(args.pictures) / f"{name}.{ending}", [content])


def _print(one: Any) -> None:
    change = one.prediction - one.baseline
    print(
        f"{one.smiles}\n{one.quantity}: {one.prediction:.4g} = baseline {one.baseline:.4g}", end=""
    )
    print(f" {'-' if change < 0 else '+'} {abs(change):.4g}")
    rows = [["atom", "symbol", "contribution", "standard error"]]
    atoms = zip(one.symbols, one.contributions, one.errors, strict=True)
    for atom, (symbol, value, error) in enumerate(atoms):
        rows.append([str(atom), symbol, f"{value:+.4f}", f"{error:.4f}"])
    print_aligned(rows, right=(0, 2, 3))
    print()


def _print_substructures(rows: list[list[Any]]) -> None:
    for target, label in dict.fromkeys((row[0], row[1]) for row in rows):
        own = [row for row in rows if (row[0], row[1]) == (target, label)][:_MOST_SHOWN]
        name = f"log-odds of {target} {label}" if label else target
        print(f"substructures with the largest mean contributions to {name}")
        shown = [["mean", "molecules", "kind", "substructure"]]
        shown += [[f"{row[6]:+.3f}", f"{row[4]:,}", row[2], row[3]] for row in own]
        print_aligned(shown, right=(0, 1))


def _write(path: Path, head: Any, rows: list[list[Any]]) -> None:
    from slicegraph.files import write_atomically

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    for row in rows:
        table.writerow([f"{x:.7g}" if isinstance(x, float) else x for x in row])
    write_atomically(path, [text.getvalue().encode()])
