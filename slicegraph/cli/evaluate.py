"""Score a model on a split of a data set: OGB's with OGB's evaluator, others with scikit-learn.

A model of sequences or images is scored on the task it was trained for, without --data.

--out writes a table with the label and the prediction of each molecule. For a file of your own
(csv:PATH) the label columns are those the model was trained on; if it is the file of the run that
made the model, it is split as in that run.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph.cli import arguments

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.datasets import MoleculeDataset
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
    """Add the model, the data, and the split of a user's file."""
    arguments.add_model(parser)
    add = parser.add_argument
    add("--data", metavar="NAME", help="data set by name, or csv:PATH; for a task, its files")
    add("--split", default="valid", help="split to score, or all (%(default)s)")
    add("--root", help="folder of the data sets (default: that of the run, or dataset)")
    add("--out", metavar="FILE", help="a .csv to write, one row for each molecule")
    add("--force", action="store_true", help="replace the file if it exists")
    own = parser.add_argument_group("options for csv:PATH, as in `slicegraph train`").add_argument
    own("--smiles", metavar="COLUMN", help="column of the SMILES")
    own("--target", "--targets", type=arguments.columns, metavar="A,B", help="label columns")
    own("--metric", help="mae, rmse, rocauc, ap or acc")
    own("--split-by", choices=("random", "scaffold"), help="how the file is split")
    own("--split-seed", type=int, metavar="N", help="seed of the random split")
    own("--fractions", type=arguments.fractions, metavar="A,B,C", help="train, valid, test shares")


def run(args: argparse.Namespace) -> None:
    """Print the score."""
    from slicegraph.files import write_atomically
    from slicegraph.predict import MoleculePredictor
    from slicegraph.predict.table import labelled_table
    from slicegraph.train.run_folder import root_of_run

    if args.out:
        arguments.check_new_file(Path(args.out), args.force)
    model = arguments.load_model(args)
    args.root = args.root or root_of_run(args.model)
    if not isinstance(model, MoleculePredictor):
        from slicegraph.tasks.domain import evaluate

        evaluate(model, args)
        return
    if args.data is None:
        raise ValueError("--data is missing: a data set by name, or csv:PATH")
    data = _data(args, model.config)
    arguments.check_fit(model.config, data)
    positions = _positions(args.split, data)
    values = model.predict_store(data.store[positions], args.batch_size)
    y_pred = values.argmax(-1) if data.task.kind == "multiclass" else values
    data.evaluator.update(data.labels(positions), y_pred)
    score = data.evaluator.compute()
    unit = (data.task.unit or model.config.unit) if data.task.kind == "regression" else ""
    print(f"{args.split} {data.evaluator.name} {score:.4g} {unit}".rstrip())
    if args.out:
        write_atomically(Path(args.out), [labelled_table(data, positions, y_pred)])
        print(f"{len(positions):,} molecules in {args.out}")


def _data(args: argparse.Namespace, config: "GraphSliceformerConfig") -> "MoleculeDataset":
    from slicegraph.data.datasets import load_dataset

    given: dict[str, Any] = {"smiles": args.smiles, "targets": args.target, "metric": args.metric}
    given |= {"split": args.split_by, "seed": args.split_seed, "fractions": args.fractions}
    given = {name: value for name, value in given.items() if value is not None}
    if args.data.startswith("csv:"):
        given = arguments.options_of_run(args.model, args.data, config) | given
        if args.split == ALL:
            given |= {"split": "random", "fractions": (1.0, 0.0, 0.0)}
    return load_dataset(args.data, args.root, **given)


def _positions(split: str, data: "MoleculeDataset") -> "np.ndarray":
    import numpy as np

    splits = {**data.splits, ALL: np.arange(len(data.store))}
    if split not in splits:
        raise ValueError(f"{data.name} has no split {split!r}, expected {', '.join(splits)}")
    positions = splits[split]
    if len(positions) == 0:
        raise ValueError(f"split {split!r} of {data.name} has no molecules")
    if np.isnan(data.labels(positions)).all():
        raise ValueError(
            f"split {split!r} of {data.name} has no labels to score against; `slicegraph submit` "
            "and `slicegraph predict` need none"
        )
    return positions
