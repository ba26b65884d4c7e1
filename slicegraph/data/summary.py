"""The summary of a user's table: what was read, rejected and repeated, and how it is split.

`summarize` returns a dict for JSON, from which the console, the report and `slicegraph check` are
made.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from rdkit import Chem, rdBase

from slicegraph.data.molecules import MANY_ATOMS, fingerprints, nearest, remarks
from slicegraph.data.smiles import JOINT
from slicegraph.data.splits import permutation
from slicegraph.data.store import REJECTED
from slicegraph.metrics import counted

Summary = dict[str, Any]

MOST_REASONS = 8  # of rejected rows; the others are counted together
MOST_EXAMPLES = 3  # of rejected rows for each reason
MOST_QUERIES, MOST_NEIGHBOURS = 1_000, 20_000  # test and train molecules that are compared
BINS, ENOUGH = 24, 200  # bins of the labels; half of them if a split has fewer molecules
MOST_SEARCHED = 50_000  # molecules that are searched for metals, salts and the like
SIMILAR = 0.4  # Tanimoto similarity of Morgan fingerprints below which molecules are unlike
FEW, RARE = 50, 5  # a test split, or a class in it, with fewer molecules is a warning
_FAR = 20  # interquartile ranges from the median: such a label is a warning
_DECADES = 2.5  # labels whose middle 95 % span more are shown on a logarithmic axis
_CONSOLE_TARGETS, _CONSOLE_REASONS = 3, 3
_LEFT_OUT = {"no label": "without a label", "a limit": "left out as limits"}  # not rejected
_MAY_BE_ODD = re.compile(r"[.*]|\[(?!nH]|C@@?H?])|InChI=")  # all others need no look by RDKit
_CHANGED = ("salts or mixtures", "charged molecules", "isotopes")  # by --standardize
_ISOTOPES = (
    "isotopes stay in the SMILES of their molecules, and the model does not see them; in splits "
    "and counts of repeated molecules, isotopologues are one molecule"
)
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?: [A-Z][a-z]?\b)?")  # values, numbers and elements


def summarize(
    dataset: Any,
    *,
    keys: np.ndarray,
    rows: int,
    rejected: Sequence[tuple[int, str, str]],
    notes: Iterable[str] = (),
    warnings: Iterable[str] = (),
    bounds: np.ndarray | None = None,
    standardize: Sequence[str] = (),
    alike: np.ndarray | None = None,
) -> Summary:
    """Describe a `MoleculeDataset` of ``N`` molecules from a table, as values for JSON.

    Args:
        dataset: the data set.
        keys: ``[N]`` uint64; rows with the same key are the same molecule.
        rows: the number of rows of the table.
        rejected: the row, the text and the reason of every row that cannot be used.
        notes: what was guessed, and how to override it; one sentence each.
        warnings: what the user must know; one sentence each.
        bounds: ``[N, L]`` int8, not 0 for a label that is a bound (">10").
        standardize: the steps that changed the molecules.
        alike: ``[N]`` uint64; rows with the same number should have the same label (default: those
            with the same key).
    """
    alike = keys if alike is None else alike
    store, task = dataset.store, dataset.task
    reasons = [reason for *_, reason in rejected]
    labels = dataset.labels(np.arange(len(store))).astype(np.float64)
    splits = {name: np.asarray(part) for name, part in dataset.splits.items()}
    used = np.concatenate([np.empty(0, np.int64), *splits.values()])
    names = [np.unique(keys[part]) for part in splits.values()]
    times_used = np.unique(np.concatenate([keys[:0], *names]), return_counts=True)[1]
    targets = [
        _target(task, column, labels[:, column], splits, None if bounds is None else bounds != 0)
        for column in range(task.num_targets)
    ]
    atoms = store.num_atoms
    summary: Summary = {
        "file": str(dataset.source.get("name") or dataset.name),
        "rows": int(rows),
        "accepted": int(rows) - len(rejected),
        "rejected": group_reasons(rejected),
        "lost": dict.fromkeys((*_LEFT_OUT.values(), "rejected"), 0) | Counter(map(_how, reasons)),
        "rejected_file": str(store.folder / REJECTED),
        "left_out": int(rows) - len(rejected) - len(used),
        "duplicates": len(keys) - len(np.unique(keys)),
        "conflicts": count_conflicts(alike, labels),
        "splits": {
            name: {"rows": len(part), "molecules": len(unique)}
            for (name, part), unique in zip(splits.items(), names, strict=True)
        },
        "overlap": int((times_used > 1).sum()),
        "targets": targets,
        "sizes": {
            "smallest": int(atoms.min()),
            "median": float(np.median(atoms)),
            "largest": int(atoms.max()),
        },
        "similarity": similarity(store.smiles, splits.get("test", ()), splits.get("train", ())),
        "odd": odd_molecules(store.smiles, atoms),
        "standardize": list(standardize),
    }
    if odd := summary["odd"]:
        drawn = f" of {odd['of']:,} drawn at random" if odd["of"] < len(atoms) else ""
        listed = ", ".join(counted(count, kind) for kind, count in odd["counts"].items())
        remedy = not standardize and any(kind in odd["counts"] for kind in _CHANGED)
        odd["text"] = listed + drawn + " (--standardize)" * remedy
    summary["notes"] = [*map(str, notes), *_hints(targets)]
    if "isotopes" in summary["odd"].get("counts", ()):
        summary["notes"].append(_ISOTOPES)
    found = [*_warnings(summary, labels), *_contradictions(targets, alike[used], labels[used])]
    summary["warnings"] = list(dict.fromkeys([*map(str, warnings), *found]))
    return summary


def group_reasons(rejected: Sequence[tuple[int, str, str]]) -> list[dict[str, Any]]:
    """Group rejected rows whose reasons differ only in values, the most frequent reason first."""
    groups: dict[str, list[tuple[int, str, str]]] = {}
    for entry in rejected:
        groups.setdefault(reason_kind(entry[2]), []).append(entry)
    found: list[dict[str, Any]] = []
    for entries in sorted(groups.values(), key=lambda entries: -len(entries)):
        same = len({reason for _, _, reason in entries}) == 1
        examples = [{"row": int(row), "text": text} for row, text, _ in entries[:MOST_EXAMPLES]]
        reason = entries[0][2] + ("" if same else ", and similar")
        found.append({"reason": reason, "count": len(entries), "examples": examples})
    if more := found[MOST_REASONS:]:
        rest = {"count": sum(entry["count"] for entry in more), "examples": []}
        found[MOST_REASONS:] = [{"reason": counted(len(more), "other reasons"), **rest}]
    return found


def reason_kind(reason: str) -> str:
    """Return a reason without its values, so that equal problems are counted together."""
    return _DETAIL.sub("#", reason)


def count_conflicts(keys: np.ndarray, labels: np.ndarray) -> int:
    """Count the molecules that occur with different labels; a missing one does not differ."""
    return int((_spreads(keys, labels) > 0).any(axis=1).sum())


def _spreads(keys: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the largest label minus the smallest of each molecule and target, NaN without any."""
    if not len(keys):
        return labels
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=~keys[order[:1]]))
    lowest, highest = (f.reduceat(labels[order], starts) for f in (np.fmin, np.fmax))
    return highest - lowest


def similarity(
    smiles: Callable[[int], str], test: Sequence[int] | np.ndarray, train: Any
) -> dict[str, Any] | None:
    """Compare test molecules with their nearest training molecules; None if there are none.

    The similarity is Tanimoto's of the `fingerprints`, of at most 1,000 test molecules to at most
    20,000 training molecules, drawn at random with a fixed seed.
    """

    def drawn(positions: Any, most: int) -> list[Any]:
        chosen = np.asarray(positions)[np.sort(permutation(len(positions), seed=0)[:most])]
        texts = filter(None, (smiles(int(position)) for position in chosen))
        return [found for found in fingerprints(texts) if found is not None]

    queries = drawn(test, MOST_QUERIES)
    known = drawn(train, MOST_NEIGHBOURS) if queries else []
    if not known:
        return None
    similar = np.array([best for best, _ in nearest(queries, known)])
    return {
        "median": round(float(np.median(similar)), 4),
        "share_below_0.4": round(float((similar < SIMILAR).mean()), 4),
        "histogram": np.histogram(similar, 20, (0, 1))[0].tolist(),
        "test": len(queries),
        "train": len(known),
    }


def odd_molecules(smiles: Callable[[int], str], num_atoms: np.ndarray) -> dict[str, Any]:
    """Count salts, metals and other molecules that models rarely see; empty if there are none.

    A molecule may be of several kinds. At most 50,000 are searched, drawn at random.
    """
    counts: Counter[str] = Counter()
    drawn = permutation(len(num_atoms), seed=0)[:MOST_SEARCHED]
    with rdBase.BlockLogs():
        for position in drawn.tolist():
            text = smiles(position)
            if num_atoms[position] <= MANY_ATOMS and not _MAY_BE_ODD.search(text):
                continue
            parts = list(map(Chem.MolFromSmiles, text.split(JOINT)))
            if not all(parts):
                continue
            mol: Any = reduce(Chem.CombineMols, parts)
            remark = remarks(mol)
            kinds = {
                "salts or mixtures": "." in text,
                "metals": "metal (" in remark,
                "wildcards": "wildcard" in remark,
                "charged molecules": any(map(Chem.GetFormalCharge, parts)),
                "isotopes": any(atom.GetIsotope() for atom in mol.GetAtoms()),
                "macromolecules": "heavy atoms" in remark,
            }
            counts.update({kind: bool(holds) for kind, holds in kinds.items()})
    found = {kind: count for kind, count in counts.items() if count}
    return {"counts": found, "of": len(drawn)} if found else {}


def _target(
    task: Any,
    column: int,
    values: np.ndarray,
    splits: dict[str, np.ndarray],
    censored: np.ndarray | None,
) -> dict[str, Any]:
    known = values[~np.isnan(values)]
    is_class = task.kind != "regression"
    classes = [str(name) for name in getattr(task, "class_names", ())]
    if is_class and len(classes) != task.num_classes:
        classes = list(map(str, range(task.num_classes)))
    known = known if len(known) else np.zeros(1)
    positive = known[known > 0]
    logarithmic = not is_class and known.min() >= 0 and _decades(positive, 0.025) > _DECADES
    shown = positive if logarithmic else known  # zeros are counted in the first bin
    space, half = np.geomspace if logarithmic else np.linspace, 0.5 * (shown.min() == shown.max())
    bins = BINS if min(map(len, filter(len, splits.values())), default=0) >= ENOUGH else BINS // 2
    edges = np.array([]) if is_class else space(shown.min() - half, shown.max() + half, bins + 1)
    found = {}
    for name, part in splits.items():
        labels = values[part]
        missing = np.isnan(labels)
        labels = labels[~missing]
        facts: dict[str, Any] = {"count": len(labels), "missing": int(missing.sum())}
        facts["censored"] = 0 if censored is None else int(censored[part, column][~missing].sum())
        for key in ("mean", "std", "min", "max"):
            facts[key] = float(getattr(labels, key)()) if len(labels) else None
        if is_class:
            facts["classes"] = [int((labels == number).sum()) for number in range(len(classes))]
        else:
            inside = np.clip(labels, edges[0], edges[-1])
            facts["histogram"] = np.histogram(inside, edges)[0].tolist()
        found[name] = facts
    return {
        "name": task.target_names[column],
        "kind": task.kind,
        "unit": task.unit,
        "classes": classes if is_class else [],
        "splits": found,
        "edges": edges.tolist(),
        "log": bool(logarithmic),
    }


def _decades(values: np.ndarray, tail: float) -> float:
    """Return the orders of magnitude that positive values span, without the tails."""
    if not len(values):
        return 0.0
    low, high = np.quantile(values, (tail, 1 - tail))
    return math.log10(high / low)


def _hints(targets: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how labels could be given instead."""
    for target in targets:
        if target["log"]:
            spans = f"spans {_decades(np.array(target['edges']), 0):.1f} orders of magnitude"
            yield f"{target['name']} {spans}; a column of its logarithm is often learnt better"


def _warnings(summary: Summary, labels: np.ndarray) -> Iterator[str]:
    """Yield what is wrong with the splits and the labels."""
    if count := summary["overlap"]:
        shared = f"{counted(count, 'molecules')} {'is' if count == 1 else 'are'}"
        yield f"{shared} in two splits: the scores will be too good"
    tested = summary["splits"].get("test", {"molecules": 0})["molecules"]
    if 0 < tested < FEW:
        few = "its scores have wide intervals" if tested > 2 else "its scores mean little"
        yield f"the test split has only {counted(tested, 'molecules')}: {few}"
    rare = []
    for column, target in enumerate(summary["targets"]):
        name, values = target["name"], labels[~np.isnan(labels[:, column]), column]
        for split, facts in target["splits"].items():
            if not facts["count"] and summary["splits"][split]["rows"]:
                rare.append(f"{split} has no label of {name}")
            for title, count in zip(target["classes"], facts.get("classes", ()), strict=True):
                if facts["count"] and count < (RARE if split == "test" else 1):
                    labelled = f"{count or 'no'} label{'s' * (count > 1)} of class {title}"
                    rare.append(f"{split} has {labelled} ({name})")
        if target["kind"] == "regression" and len(values):
            if values.min() == values.max():
                yield f"all labels of {name} are {_short(values[0])}: there is nothing to learn"
            scaled = np.log10(np.maximum(values, target["edges"][0])) if target["log"] else values
            first, middle, third = np.quantile(scaled, (0.25, 0.5, 0.75))
            far = values[np.abs(scaled - middle) > _FAR * (third - first)]
            if third > first and len(far):
                few, examples = counted(len(far), "labels"), map(_short, np.unique(far)[:3])
                yield f"{name} has {few} far from all others ({', '.join(examples)}): check them"
    if rare:
        yield _first_three(rare)


def _contradictions(
    targets: list[dict[str, Any]], keys: np.ndarray, labels: np.ndarray
) -> Iterator[str]:
    """Yield how many molecules are used more than once with different labels, and how different."""
    spreads = _spreads(keys, labels)
    if not (count := int((spreads > 0).any(axis=1).sum())):
        return
    details = []
    for target, own in zip(targets, spreads.T, strict=True):
        if not len(own := own[own > 0]):
            continue
        name = f"{target['name']}: " if len(targets) > 1 else ""
        if target["kind"] == "regression":
            typical = f"{_short(float(np.median(own)))} {target['unit']}".rstrip()
            details.append(f"{name}typical difference {typical}")
        else:
            classes = "both" if target["kind"] == "binary" else "several"
            details.append(f"{name}{len(own):,} with {classes} classes")
    verb = "occurs" if count == 1 else "occur"
    yield (
        f"{counted(count, 'molecules')} {verb} more than once with different labels "
        f"({_first_three(details)}), salts, stereoisomers and isotopologues counted as one "
        "molecule: this bounds the reachable error; see --replicates"
    )


def _first_three(texts: list[str]) -> str:
    return "; ".join([*texts[:3], *([f"and {len(texts) - 3} more such"] * (len(texts) > 3))])


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary as lines for the console, the warnings last."""
    lost = summary["lost"]
    share = f" ({_percent(lost['rejected'], summary['rows'])})" if lost["rejected"] else ""
    counts = [f"{count:,} {how}" for how, count in lost.items() if count or how == "rejected"]
    read = ", ".join([f"{summary['accepted']:,} read", *counts])
    lines = [("rows", f"{summary['rows']:,} in {summary['file']}: {read}{share}")]
    for entry in summary["rejected"][:_CONSOLE_REASONS]:
        shown = ", ".join(f"data row {e['row']} {_cut(e['text'])!r}" for e in entry["examples"])
        shown = f" ({shown})" if shown else ""
        how = _how(entry["reason"])
        why = f": {entry['reason']}" if how == "rejected" else ""
        lines.append(("", f"{entry['count']:,} {how}{why}{shown}"))
    if more := summary["rejected"][_CONSOLE_REASONS:]:
        lines.append(("", f"{sum(e['count'] for e in more):,} for other reasons"))
    if summary["rejected"]:
        where = f"see {summary['rejected_file']}"
        lines.append(("", f"data rows are counted from 0, without the header; {where}"))
    if summary["standardize"]:
        steps = ", ".join(summary["standardize"])
        lines.append(("change", f"molecules standardised: {steps}; predict does the same"))
    lines.append(("same", repeats(summary)))
    parts = ", ".join(f"{name} {part['rows']:,}" for name, part in summary["splits"].items())
    sides = f"{counted(summary['overlap'], 'molecules')} in two splits"
    left = summary["left_out"]
    left = f"; {counted(left, 'rows')} merged or left out" if left else ""
    lines.append(("split", f"{parts} rows; {sides}{left}"))
    targets = summary["targets"]
    lines += [("label", _target_line(target)) for target in targets[:_CONSOLE_TARGETS]]
    if len(targets) > _CONSOLE_TARGETS:
        lines.append(("", counted(len(targets) - _CONSOLE_TARGETS, "more targets")))
    sizes = "{smallest:,} to {largest:,}, median {median:g}".format(**summary["sizes"])
    lines.append(("atoms", sizes))
    if odd := summary["odd"]:
        lines.append(("odd", odd["text"]))
    if near := summary["similarity"]:
        below = f"{_percent(near['share_below_0.4'], 1)} below {SIMILAR}"
        text = f"Tanimoto similarity of test to the nearest of train: median {near['median']:.2f}"
        lines.append(("near", f"{text}, {below}"))
    lines += [("note", note) for note in summary["notes"]]
    lines += [("WARNING", warning) for warning in summary["warnings"]]
    printable = ("".join(c if c.isprintable() else " " for c in text) for _, text in lines)
    return [f"{name:<7} {text}" for (name, _), text in zip(lines, printable, strict=True)]


def repeats(summary: Summary) -> str:
    """Say how many rows repeat a molecule, and how many molecules have different labels."""
    rows, molecules = summary["duplicates"], summary["conflicts"]
    if not rows:
        return "no molecule occurs twice"
    text = f"{counted(rows, 'rows')} {'repeats' if rows == 1 else 'repeat'} a molecule"
    if not molecules:
        return f"{text}, with the same labels"
    different = f"{counted(molecules, 'molecules')} {'has' if molecules == 1 else 'have'}"
    return f"{text}; {different} different labels (see --replicates)"


def _how(reason: str) -> str:
    """Return why a row is not used: without a label, left out as a limit, or rejected."""
    return next((how for text, how in _LEFT_OUT.items() if reason.startswith(text)), "rejected")


def _target_line(target: dict[str, Any]) -> str:
    unit = f" ({target['unit']})" if target["unit"] else ""
    parts = []
    for split, facts in target["splits"].items():
        text = f"{split} {facts['count']:,}"
        if target["kind"] == "binary":
            ones = facts["classes"][1]
            text += f" ({ones:,} of class {target['classes'][1]}"
            text += f", {_percent(ones, facts['count'])})" if facts["count"] else ")"
        elif target["kind"] == "multiclass":
            text += f" ({'/'.join(map(str, facts['classes']))})"
        elif facts["count"]:
            text += f" ({_short(facts['min'])} to {_short(facts['max'])}, "
            text += f"mean {_short(facts['mean'])})"
        others = [f"{facts[key]:,} {key}" for key in ("missing", "censored") if facts[key]]
        parts.append(", ".join([text, *others]))
    return f"{target['name']}{unit}, {target['kind']}: {'; '.join(parts)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}".replace("%", " %") if whole else ""


def _cut(text: str) -> str:
    return text if len(text) <= 30 else f"{text[:29]}…"
