"""Scores a model on a split of a data set, with OGB's evaluator.

A model of sequences or images is scored on the task that it was trained for, without --data.

--out writes a table with the label and the prediction of each molecule. Of a file of your own
(csv:PATH) the columns of the labels are those that the model was trained for; if it is the file of
the run that made the model, it is split as it was there.
"""

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli.model_arguments import add_model, check_new_file, load_model
from slicegraph.cli.run_data import PREFIX, columns, data_of_run, numbers, root_of_run

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.sets.datasets import DataSet
    from slicegraph.data.store.molecule_store import MoleculeStore
    from slicegraph.models import GraphSliceformerConfig

EPILOG = """\
examples:
  slicegraph evaluate runs/mini --data mini --split valid
  slicegraph evaluate runs/mini --data mini --split test --out errors.csv
  slicegraph evaluate runs/mine --data csv:new.csv --split all
  slicegraph evaluate runs/digits --split test
"""
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the molecules, and how a file of one's own is split."""
    add_model(parser)
    add = parser.add_argument
    add("--data", metavar="NAME", help="a data set by name, or csv:PATH; of a task, its files")
    add("--split", default="valid", help="a split of it, or all for all of it (%(default)s)")
    add("--root", help="the folder of the data sets (that of the run, or dataset)")
    add("--out", metavar="FILE", help="a .csv to write, a row for each molecule")
    add("--force", action="store_true", help="replace the file if it exists")
    own = parser.add_argument_group("options for csv:PATH, as in `slicegraph train`").add_argument
    own("--smiles", metavar="COLUMN", help="the column of the SMILES")
    own("--target", "--targets", type=columns, metavar="A,B", help="the columns of the labels")
    own("--metric", help="mae, rmse, rocauc, ap or acc")
    own("--split-by", choices=("random", "scaffold"), help="how it is split")
    own("--split-seed", type=int, metavar="N", help="of the random split")
    own("--fractions", type=numbers, metavar="A,B,C", help="of train, valid and test")


def run(args: argparse.Namespace) -> None:
    """Prints the score."""
    from slicegraph.cli.evaluate_task import evaluate_task
    from slicegraph.predictor import MoleculePredictor

    if args.out:
        check_new_file(Path(args.out), args.force)
    model = load_model(args)
    args.root = args.root or root_of_run(args.model)
    if not isinstance(model, MoleculePredictor):
        evaluate_task(model, args)
        return
    if args.data is None:
        raise ValueError("--data is missing: a data set by name, or csv:PATH")
    data = _data(args, model.config)
    check_fit(model.config, data)
    store = _split(args.split, data)
    values = model.predict_store(store, args.batch_size)
    y_pred = values.argmax(-1) if data.task.kind == "multiclass" else values
    data.evaluator.update(store.labels, y_pred)
    score = data.evaluator.compute()
    unit = (data.task.unit or model.config.unit) if data.task.kind == "regression" else ""
    print(f"{args.split} {data.evaluator.name} {score:.4g} {unit}".rstrip())
    if args.out:
        from slicegraph.data.store.atomic_file import write_atomically

        write_atomically(Path(args.out), _table(store, data.task.target_names, y_pred))
        print(f"{len(store):,} molecules in {args.out}")


def _data(args: argparse.Namespace, config: "GraphSliceformerConfig") -> "DataSet":
    from slicegraph.data.sets.datasets import load

    asked: dict[str, Any] = {
        "smiles": args.smiles,
        "targets": args.target,
        "metric": args.metric,
        "split": args.split_by,
        "seed": args.split_seed,
        "fractions": args.fractions,
    }
    if args.data.startswith(PREFIX):
        trained = {"targets": config.target_names or None, "task": config.task}
        asked = trained | data_of_run(args.model, args.data) | _given(asked)
        if args.split == ALL:
            asked |= {"split": "random", "fractions": (1.0, 0.0, 0.0)}
    return load(args.data, args.root, **_given(asked))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def check_fit(config: "GraphSliceformerConfig", data: "DataSet") -> None:
    """Raises if the model predicts something else than the data set has labels for."""
    task = data.task
    for what, own, theirs in (
        ("kind of task", config.task, task.kind),
        ("number of targets", config.num_targets, task.num_targets),
    ):
        if own != theirs:
            raise ValueError(
                f"the model does not fit {data.name}: {what} {own!r} of the model, {theirs!r} of "
                f"the data ({', '.join(task.target_names)})"
            )
    if task.kind == "multiclass" and task.num_classes > config.num_classes:
        raise ValueError(
            f"the model does not fit {data.name}: it knows {config.num_classes} classes, the data "
            f"have {task.num_classes}"
        )


def _split(name: str, data: "DataSet") -> "MoleculeStore":
    import numpy as np

    if name != ALL and name not in data.splits:
        raise ValueError(
            f"{data.name} has no split {name!r}, expected {', '.join([*data.splits, ALL])}"
        )
    store = data.store if name == ALL else data.store[data.splits[name]]
    if len(store) == 0:
        raise ValueError(f"split {name!r} of {data.name} has no molecules")
    if np.isnan(store.labels).all():
        raise ValueError(
            f"split {name!r} of {data.name} has no labels to score against; `slicegraph submit` "
            "writes the file for the leaderboard, `slicegraph predict` predicts for a file"
        )
    return store


def _table(store: "MoleculeStore", names: Sequence[str], y_pred: "np.ndarray") -> Iterator[bytes]:
    pairs = [f"{name}_{which}" for name in names for which in ("true", "pred")]
    yield _line(["index", "row", "smiles", "num_atoms", *pairs])
    rows, atoms, labels = store.rows, store.num_atoms, store.labels
    for i in range(len(store)):
        values = [value for pair in zip(labels[i], y_pred[i], strict=True) for value in pair]
        cells = ["" if value != value else value for value in values]
        yield _line([store.positions[i], rows[i], store.smiles(i), atoms[i], *cells])


def _line(cells: Sequence[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
