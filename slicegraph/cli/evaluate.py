"""Score a model on a split of a data set: OGB's with OGB's evaluator, others with scikit-learn.

A model of sequences or images is scored on the task it was trained for, without --data.

--out writes a table with the label and the prediction of each molecule. For a file of your own
(csv:PATH) the label columns are those the model was trained on, and the molecules of a split are
those of the run, whatever their row: a molecule that the model was trained on is never scored.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicegraph import cli

if TYPE_CHECKING:
    import numpy as np

    from slicegraph.data.datasets import MoleculeDataset
    from slicegraph.models import GraphSliceformerConfig

EPILOG = """\
examples:
  slicegraph evaluate runs/mini --data mini --split valid
  slicegraph evaluate runs/mini --data mini --split test --out errors.csv
  slicegraph evaluate runs/mine
  slicegraph evaluate runs/mine --data csv:new.csv
  slicegraph evaluate runs/digits --split test
"""
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the data, and the split of a user's file."""
    cli.add_model(parser)
    add = parser.add_argument
    add(
        "--data",
        metavar="NAME",
        help="data set by name, or csv:PATH; for a task, its files (default: that of the run)",
    )
    add(
        "--split",
        help="split of the run to score, or all (default: valid; for csv:PATH test, or all "
        "molecules that the run has not seen if it was trained on another file)",
    )
    add("--root", help="folder of the data sets (default: that of the run)")
    add("--out", metavar="FILE", help="a .csv to write, one row for each molecule")
    add("--force", action="store_true", help="replace the file if it exists")
    own = parser.add_argument_group("options for csv:PATH, as in `slicegraph train`").add_argument
    own("--smiles", metavar="COLUMN", help="column of the SMILES, or columns of several molecules")
    own("--target", "--targets", type=cli.columns, metavar="A,B", help="label columns")
    own("--metric", help="mae, rmse, rocauc, ap or acc")
    own("--censored", choices=("drop", "value", "loss"), help="what values such as >10 mean")


def run(args: argparse.Namespace) -> None:
    """Print the score."""
    from slicegraph.data.datasets.csv import PREFIX
    from slicegraph.files import write_atomically
    from slicegraph.metrics import counted
    from slicegraph.predict import MoleculePredictor
    from slicegraph.predict.table import labelled_table
    from slicegraph.train.results import Scored, headline, score, score_splits, target_scores
    from slicegraph.train.run_folder import data_path_of_run, root_of_run, settings_of_run

    if args.out:
        cli.check_new_file(Path(args.out), args.force)
    model = cli.load_model(args)
    args.root = args.root or root_of_run(args.model)
    if not isinstance(model, MoleculePredictor):
        from slicegraph.tasks.domain import evaluate

        args.split = args.split or "valid"
        evaluate(model, args)
        return
    own = data_path_of_run(args.model)
    args.data = args.data or own
    if args.data is None:
        raise ValueError("--data is missing: a data set by name, or csv:PATH")
    data, positions = _chosen(args, model.config, args.data == own)
    settings = settings_of_run(args.model)
    if settings and args.data == own and args.split in (settings.train_splits or ()):
        warn(f"{args.model} was trained on split {args.split!r}")
    values = model.predict_store(data.store[positions], args.batch_size)
    labels = data.labels(positions)
    unit = (data.task.unit or model.config.unit) if data.task.kind == "regression" else ""
    test = score(data, labels, values)
    if args.data.startswith(PREFIX):
        facts = {"metric": data.evaluator.name, "unit": unit, "test": test, "valid": None}
        scores = score_splits(data, {args.split: Scored(labels, values)})[args.split]
        facts["targets"] = target_scores(data.task.metric, scores)
        print(headline(facts, args.split))
    else:
        print(f"{args.split} {data.evaluator.name} {test:.4g} {unit}".rstrip())
    if args.out:
        write_atomically(Path(args.out), [labelled_table(data, positions, values)])
        print(f"{counted(len(positions), 'molecules')} in {args.out}")


def _chosen(
    args: argparse.Namespace, config: "GraphSliceformerConfig", own: bool
) -> tuple["MoleculeDataset", "np.ndarray"]:
    """Return the data and the positions to score; set the name of the split."""
    import numpy as np

    from slicegraph.data.datasets import load_dataset
    from slicegraph.data.datasets.csv import PREFIX
    from slicegraph.train.run_folder import metrics_of_run

    asked: dict[str, Any] = {"smiles": args.smiles, "targets": args.target, "metric": args.metric}
    asked["censored"] = args.censored
    given = {name: value for name, value in asked.items() if value is not None}
    if not args.data.startswith(PREFIX):
        data = load_dataset(args.data, args.root, **given)
        cli.check_fit(config, data)
        args.split = args.split or "valid"
        splits = {**data.splits, ALL: np.arange(len(data.store))}
        if args.split not in splits:
            listed = ", ".join(splits)
            raise ValueError(f"{data.name} has no split {args.split!r}, expected {listed}")
        positions = splits[args.split]
    else:
        given = cli.options_of_run(args.model, args.data, config) | given
        given |= {"split": ALL, "allow_rejected": 1.0}
        data = load_dataset(args.data, args.root, **given)
        cli.check_fit(config, data)
        positions = _not_trained_on(args, data, own)
    if len(positions) == 0:
        if own and metrics_of_run(args.model).get("design"):
            raise ValueError(
                f"{args.model} has several models, and each molecule of split {args.split!r} of "
                f"{data.name} was seen by some of them; predictions/test.csv in the run has a "
                "prediction of each molecule by models that have not seen it, and metrics.json its "
                "scores"
            )
        raise ValueError(f"split {args.split!r} of {data.name} has no molecules to score")
    if np.isnan(data.labels(positions)).all():
        raise ValueError(
            f"split {args.split!r} of {data.name} has no labels to score against; `slicegraph "
            "submit` and `slicegraph predict` need none"
        )
    return data, positions


def _not_trained_on(args: argparse.Namespace, data: "MoleculeDataset", own: bool) -> "np.ndarray":
    """Return the positions of a split of the run in a table, found by molecule and not by row.

    The run has the keys of its molecules: the rows of the table may be others, or in another
    order. With "all", the molecules of train and valid are left out.
    """
    import numpy as np

    from slicegraph.train.run_folder import molecules_of_run

    positions = everything = data.splits[ALL]
    known = molecules_of_run(args.model)
    if known is None:
        if args.split not in (None, ALL):
            raise ValueError(
                f"{args.model} does not say which molecules it was trained on, so that split "
                f"{args.split!r} of {data.name} is not known; --split all scores every row"
            )
        args.split = ALL
        warn(f"{args.model} does not say which molecules it was trained on: they may be among them")
    else:
        args.split = args.split or ("test" if own else ALL)
        if args.split not in (*known, ALL):
            listed = ", ".join((*known, ALL))
            raise ValueError(f"{args.model} has no split {args.split!r}, expected {listed}")
        own_keys = np.asarray(data.keys)[everything]
        found = {name: np.isin(own_keys, part) for name, part in known.items()}
        if args.split == ALL:
            trained = {name: found[name] for name in ("train", "valid") if name in found}
            positions = everything[~np.logical_or.reduce(list(trained.values()))]
            if any(part.any() for part in trained.values()):
                counts = ", ".join(f"{part.sum():,} of {name}" for name, part in trained.items())
                warn(f"left out, because the run has seen these molecules: {counts}")
        else:
            positions = everything[found[args.split]]
            if missing := len(np.setdiff1d(known[args.split], own_keys)):
                warn(f"{missing:,} molecules of split {args.split!r} are not in {data.name}")
    summary = data.summary or {}
    for text in summary.get("notes", ()):
        print(f"note    {text}", file=sys.stderr)
    rejected = sum(one["count"] for one in summary.get("rejected", ()))
    rows = len(data.store) + data.store.meta["rejected"]
    labelled = int((~np.isnan(data.labels(positions))).any(1).sum())
    scored = f"{labelled:,} of {rows:,} rows of {data.name} are scored"
    if labelled < len(positions):  # limits have a label for training only
        scored += f", {len(positions) - labelled:,} have no label to score against"
    print(f"{scored}, {rejected:,} cannot be used", file=sys.stderr)
    return positions


def warn(text: str) -> None:
    """Print a warning."""
    print(f"slicegraph: warning: {text}", file=sys.stderr)
