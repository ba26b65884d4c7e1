"""Contributions of atoms to a prediction, and of substructures to the predictions of a table.

The contributions are Shapley values: the atoms of a molecule are players, a part of them is the
graph that is left without the other atoms, and no atom at all is worth the baseline, what is
predicted best without a molecule. They add up to the prediction minus the baseline, exactly. In a
row of several molecules the atoms of all of them are players, and a molecule without any atom has a
vector of an empty graph. See
`"A Unified Approach to Interpreting Model Predictions" <https://arxiv.org/abs/1705.07874>`_.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
from rdkit import Chem
from rdkit.Chem import BRICS

from slicegraph.data.descriptors import descriptor_changes, morgan_environments
from slicegraph.data.molecules import standardize
from slicegraph.data.smiles import (
    JOINT,
    MoleculeGraph,
    canonical_text,
    inchi_to_smiles,
    is_inchi,
    join_graphs,
    join_texts,
    parse_smiles,
    read_cells,
    read_smiles,
)
from slicegraph.drawing import draw_molecule, on_white

SAMPLES = 32  # orders of the atoms, an even number
_PARTS = 1024  # of a molecule that are predicted at a time
_LEAST = 1e-12  # a probability nearer to 0 or 1 counts as this one: its logit is infinite
_NUMBER = re.compile(r":\d+]")  # of an atom, which the model does not read either
_ORDER = "_smilesAtomOutputOrder"  # where RDKit keeps the order of the atoms that it wrote
_UNKNOWN = 119  # OGB's number of an element that it does not know
_NOT_FINITE = "the model gives no finite number for a part of the molecule"


@dataclass(frozen=True, eq=False)
class Explanation:
    """The contribution of every atom to one prediction, from ``model.explain``.

    For classes the log-odds are explained, not the probability, and for a model trained on
    logarithms the decimal logarithm: `prediction`, `baseline` and `contributions` are of these.

    Attributes:
        smiles: the molecule, as it was given; as the model read it if that standardises molecules
            or the text was an InChI. A row of several molecules has ``>>`` between them.
        symbols: the element of each atom, in the order of `smiles`.
        contributions: ``[atoms]``, which add up to ``prediction - baseline``.
        errors: ``[atoms]``, the standard errors of the contributions, as not all orders of the
            atoms are taken; 0 for small molecules, where all are.
        prediction: what the model predicts for the molecule.
        baseline: what it would be without a molecule: the mean of the training labels.
        target, class_name: what is predicted.
        quantity: what the contributions are of, such as "logS in mol/L".
    """

    smiles: str
    symbols: tuple[str, ...]
    contributions: np.ndarray
    errors: np.ndarray
    prediction: float
    baseline: float
    target: str = ""
    class_name: str = ""
    quantity: str = "prediction"

    def draw(self, png: bool = False, limit: float | None = None) -> Any:
        """Draw the molecule with a colour for every atom and a legend.

        Args:
            png: return the bytes of a PNG; otherwise the text of an SVG. Both are on white.
            limit: the contribution with the deepest colour (default: the largest of this molecule).
        """
        legend = f"contribution to {self.quantity}"
        options: Any = {"limit": limit, "legend": legend, "png": png}
        drawn = draw_molecule(self.smiles, self.contributions.tolist(), **options)
        return drawn if png or drawn is None else on_white(drawn)

    def _repr_svg_(self) -> str:
        return self.draw() or ""

    def __str__(self) -> str:
        parts = zip(self.symbols, self.contributions, strict=True)
        atoms = " ".join(f"{symbol} {value:+.3g}" for symbol, value in parts)
        total = f"{self.baseline:.4g} (baseline) {self.prediction - self.baseline:+.4g}"
        return f"{self.smiles}: {self.quantity} {self.prediction:.4g} = {total}: {atoms}"


class Explanations(list[Explanation]):
    """Explanations, a molecule and target each; a notebook shows their pictures."""

    def table(self) -> Any:
        """The contributions as a ``pandas.DataFrame``, a row for each atom."""
        import pandas as pd

        rows = [row for number, one in enumerate(self) for row in atom_rows(number, one)]
        return pd.DataFrame(rows, columns=ATOM_COLUMNS).drop(columns="problem")

    def _repr_html_(self) -> str:
        style = "display:inline-block;margin:4px;text-align:center;font-size:12px"
        cards = []
        for one in self:
            svg = (one.draw() or "").partition("?>")[2]
            text = f"{escape(one.quantity)}: {one.prediction:.4g}, baseline {one.baseline:.4g}"
            cards.append(f'<figure style="{style}">{svg}<figcaption>{text}</figcaption></figure>')
        return "".join(cards)


ATOM_COLUMNS = (
    *("row", "smiles", "target", "class", "prediction", "baseline"),
    *("atom", "symbol", "contribution", "standard_error", "problem"),
)
"""The columns of a table of contributions."""


def atom_rows(row: int, found: Explanation | str, text: str = "") -> Iterator[list[Any]]:
    """Yield the rows of `ATOM_COLUMNS` of a molecule; one with the reason if it has no atoms."""
    if isinstance(found, str):
        yield [row, text, *[""] * (len(ATOM_COLUMNS) - 3), found]
        return
    whole = [row, found.smiles, found.target, found.class_name, found.prediction, found.baseline]
    atoms = zip(found.symbols, found.contributions.tolist(), found.errors.tolist(), strict=True)
    for atom, (symbol, contribution, error) in enumerate(atoms):
        yield [*whole, atom, symbol, contribution, error, ""]


class Atoms(NamedTuple):
    """A molecule with atoms that can be named: where each atom of the graph is in the SMILES."""

    smiles: str
    symbols: tuple[str, ...]
    graph: MoleculeGraph
    places: np.ndarray  # [atoms]


def read_atoms(text: str, steps: Sequence[str] = ()) -> Atoms:
    """Read a molecule as a model does, and where its atoms are in the text.

    Raises:
        ValueError: RDKit cannot read the text.
    """
    smiles = standardize(text, steps).strip()
    smiles = inchi_to_smiles(smiles) if is_inchi(smiles) else _NUMBER.sub("]", smiles)
    graph, mol = read_smiles(smiles), parse_smiles(smiles)
    text = canonical_text(mol)
    places = np.array(mol.GetPropsAsDict(True, True)[_ORDER], dtype=np.int64)
    if ">" in text or "<" in text:  # RDKit writes dative bonds twice until their order is final
        smiles = canonical_text(parse_smiles(text))
        mol = parse_smiles(smiles)
        places = np.arange(mol.GetNumAtoms())
    own = graph.atoms[:, 0].astype(np.int64) + 1
    elements = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()])
    if len(own) != len(elements) or ((own != elements[places]) & (own < _UNKNOWN)).any():
        raise ValueError("its atoms cannot be told apart; write its canonical SMILES")
    return Atoms(smiles, tuple(atom.GetSymbol() for atom in mol.GetAtoms()), graph, places)


def read_row(text: str, config: Any) -> Atoms:
    """Read the molecules of a row as a model does: the atoms of one after those of the other."""
    columns = config.molecule_columns
    texts = text.split(JOINT) if columns else [text]
    found = read_cells(lambda one: _read_one(one, config.standardize), texts, columns or ("",))
    starts = np.cumsum([0, *(len(one.symbols) for one in found[:-1])])
    return Atoms(
        join_texts([one.smiles for one in found]),
        tuple(symbol for one in found for symbol in one.symbols),
        join_graphs([one.graph for one in found]),
        np.concatenate([one.places + start for one, start in zip(found, starts, strict=True)]),
    )


def _read_one(text: str, steps: Sequence[str]) -> Atoms:
    if not text.strip():
        raise ValueError("no SMILES")
    return read_atoms(text, steps)


def part_of(graph: MoleculeGraph, kept: np.ndarray) -> MoleculeGraph:
    """Return the graph of these atoms ``[atoms]`` (booleans) and of the bonds between them.

    The features of an atom stay those that it has in the whole molecule.
    """
    numbers = np.cumsum(kept) - 1
    bonds = kept[graph.bonds].all(1)
    ends = numbers[graph.bonds[bonds]].astype(np.uint16).reshape(-1, 2)
    each = np.split(kept, np.cumsum(graph.sizes[:-1])) if graph.sizes else ()
    sizes = tuple(int(own.sum()) for own in each)
    return MoleculeGraph(graph.atoms[kept], ends, graph.bond_features[bonds], sizes)


def shapley_values(
    worth: Callable[[np.ndarray], np.ndarray], players: int, samples: int = SAMPLES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    r"""Compute the share of every player in the worth of all players.

    .. math:: \phi_i = \frac{1}{N!} \sum_{\pi} \big( v(P_i^\pi \cup \{i\}) - v(P_i^\pi) \big)

    where :math:`P_i^\pi` are the players before :math:`i` in the order :math:`\pi`. It is the mean
    over ``samples`` orders, each one with its reverse; over all orders if there are no more groups
    of players than that takes. In both cases the shares add up to ``v(all) - v(none)``.

    Args:
        worth: the value of groups of players ``[M, players]`` (booleans), ``[M, K]``.
        players: the number of players.
        samples: how many orders to take, an even number.
        seed: of the orders.

    Returns:
        The shares ``[players, K]`` and their standard errors.
    """
    _check_samples(samples)
    if 2**players <= samples * players:
        groups = np.array(list(product((False, True), repeat=players)))
        values = worth(groups)
        number = groups @ (1 << np.arange(players)[::-1])  # of a group: its own row
        shares = np.zeros((players, values.shape[1]))
        for player in range(players):
            without = groups[~groups[:, player]]
            size = without.sum(1)
            weight = np.array([1 / (players * math.comb(players - 1, k)) for k in size])
            joined = (number[~groups[:, player]]) + (1 << (players - 1 - player))
            gain = values[joined] - values[number[~groups[:, player]]]
            shares[player] = weight @ gain
        return shares, np.zeros_like(shares)
    random = np.random.default_rng((seed, players))
    half = [random.permutation(players) for _ in range(samples // 2)]
    orders = np.array([order for one in half for order in (one, one[::-1])])  # [samples, players]
    ranks = np.argsort(orders, axis=1)
    groups = ranks[:, None, :] < np.arange(players + 1)[None, :, None]
    distinct, place = np.unique(groups.reshape(-1, players), axis=0, return_inverse=True)
    values = worth(distinct)[place.reshape(-1)].reshape(samples, players + 1, -1)
    gains = np.take_along_axis(np.diff(values, axis=1), ranks[:, :, None], axis=1)
    pairs = gains.reshape(samples // 2, 2, players, -1).mean(1)
    return gains.mean(0), pairs.std(0, ddof=1) / math.sqrt(len(pairs))


def _check_samples(samples: int) -> None:
    if samples < 4 or samples % 2:
        raise ValueError(f"explain: samples = {samples}, expected an even number, at least 4")


class Predictor(Protocol):
    """What is explained: a model of molecules, or several of them."""

    config: Any

    def predict_graphs(
        self, graphs: Sequence[Any], batch_size: int = 256, *, more: bool = True
    ) -> Any: ...


def explain_rows(
    model: Predictor,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    batch_size: int = 256,
    numbers: Sequence[np.ndarray | None] | None = None,
) -> Iterator[list[Explanation] | str]:
    """Yield for each text an explanation of each target, or the reason why there is none.

    `numbers` are the features ``[F]`` of each text, for a model that reads any: parts of its
    molecule keep them, or with a kernel head what belongs to them.
    """
    chosen = target_numbers(model.config, targets)
    _check_samples(samples)
    for text, own in zip(texts, numbers or [None] * len(texts), strict=True):
        try:
            if not isinstance(text, str):
                raise ValueError(f"{text!r} is not text")
            atoms = read_row(text, model.config)
            found: list[Explanation] | str = _explain(
                model, atoms, chosen, samples, seed, batch_size, own
            )
        except (ValueError, RuntimeError) as error:  # RDKit raises both
            found = getattr(error, "reason", str(error))
        yield found


def target_numbers(config: Any, targets: Sequence[str] | None) -> list[int]:
    """Return the numbers of these targets; of all if there are none."""
    names = config.target_names or [f"target{k}" for k in range(config.num_targets)]
    if targets is None:
        return list(range(config.num_targets))
    for name in targets:
        if name not in names:
            raise ValueError(f"explain: no target {name!r}, the model has {', '.join(names)}")
    return [list(names).index(name) for name in targets]


def _explain(
    model: Predictor,
    atoms: Atoms,
    targets: list[int],
    samples: int,
    seed: int,
    batch_size: int,
    numbers: np.ndarray | None = None,
) -> list[Explanation]:
    config, count = model.config, len(atoms.symbols)
    predict = partial(_predict, model, batch_size=batch_size)
    parts = _numbers_of_parts(config, atoms, numbers)
    whole = predict([atoms.graph], parts(np.ones((1, count), bool)))[0]
    classes = [int(whole[t].argmax()) if config.task == "multiclass" else 1 for t in targets]
    baseline = np.array([baseline_of(config, *pair) for pair in zip(targets, classes, strict=True)])

    def worth(groups: np.ndarray) -> np.ndarray:
        values = np.tile(baseline, (len(groups), 1))
        rows = np.flatnonzero(groups.any(1))
        for start in range(0, len(rows), _PARTS):
            own = rows[start : start + _PARTS]
            graphs = [part_of(atoms.graph, groups[row]) for row in own]
            found = predict(graphs, parts(groups[own]))
            for column, (target, number) in enumerate(zip(targets, classes, strict=True)):
                values[own, column] = score_of(config, found[:, target], number)
        return values

    shares, errors = shapley_values(worth, count, samples, seed)
    order = np.argsort(atoms.places)  # from the atoms of the graph to those of the text
    scores = [
        score_of(config, whole[target], number)
        for target, number in zip(targets, classes, strict=True)
    ]
    rest = np.abs(shares.sum(0) + baseline - scores)
    if (rest > 1e-3 * (1 + np.abs(scores) + np.abs(baseline))).any():
        raise ValueError(f"the contributions miss the prediction by {rest.max():.2g}")
    names = config.target_names or ("",) * config.num_targets
    return [
        Explanation(
            atoms.smiles,
            atoms.symbols,
            contributions=shares[order, column],
            errors=errors[order, column],
            prediction=float(baseline[column] + shares[:, column].sum()),
            baseline=float(baseline[column]),
            target=names[target],
            class_name=class_name(config, number),
            quantity=_quantity(config, names[target], number),
        )
        for column, (target, number) in enumerate(zip(targets, classes, strict=True))
    ]


class Sample(NamedTuple):
    """What a model reads of a row: a molecule and numbers."""

    graph: MoleculeGraph
    features: np.ndarray  # [F] float32


def _numbers_of_parts(
    config: Any, atoms: Atoms, numbers: np.ndarray | None
) -> Callable[[np.ndarray], np.ndarray | None]:
    """Return what makes the features ``[M, F]`` of groups of atoms ``[M, atoms]``.

    For a kernel head, whose prediction is mostly made of them, a part has the counts of the
    neighbourhoods that lie in it. A descriptor has its median in the training, and for each atom
    what it changes when the atom is removed; what these leave of its value is shared equally. All
    else is kept.
    """
    if numbers is None:
        return lambda groups: None
    columns, named = len(config.feature_columns), len(config.feature_mean)
    bits, members = np.empty(0, np.int64), np.empty((0, len(atoms.symbols)), bool)
    changes = np.zeros((len(atoms.symbols), named - columns))
    single = config.kernel_rows and config.molecules == 1
    if single and config.fingerprint:
        bits, members = morgan_environments(atoms.smiles)
    if single and config.descriptors:
        changes = np.nan_to_num(descriptor_changes(atoms.smiles, config.descriptors))
    counts = np.bincount(bits, minlength=config.fingerprint)
    known = config.fingerprint and np.array_equal(counts, numbers[named:])
    middle = np.array(config.feature_mean)[columns:]
    changes += (numbers[columns:named] - middle - changes.sum(0)) / len(changes)

    def parts(groups: np.ndarray) -> np.ndarray:
        found = np.tile(numbers, (len(groups), 1))
        if not config.kernel_rows:
            return found
        found[:, columns:named] = middle + groups @ changes
        if known:
            inside = (~groups).astype(np.float32) @ members.T.astype(np.float32) == 0
            found[:, named:] = 0
            for group, row in zip(inside, found, strict=True):
                np.add.at(row, named + bits[group], 1)
        return found

    return parts


def _predict(
    model: Predictor, graphs: list[MoleculeGraph], numbers: np.ndarray | None, batch_size: int
) -> np.ndarray:
    pairs = [] if numbers is None else zip(graphs, numbers, strict=True)
    rows = graphs if numbers is None else [Sample(*pair) for pair in pairs]
    found = model.predict_graphs(rows, batch_size, more=False)
    if any(error is not None for error in found.errors):
        raise ValueError(_NOT_FINITE)
    return found.values.astype(np.float64)


def class_name(config: Any, number: int) -> str:
    """The name of the class whose log-odds are explained; empty for a regression."""
    if config.task == "regression":
        return ""
    return str(config.class_names[number] if config.class_names else number)


def _quantity(config: Any, target: str, number: int) -> str:
    """What is explained, in words."""
    if name := class_name(config, number):
        return f"log-odds of {target or 'class'} {name}"
    unit = f" in {config.unit}" if config.unit else ""
    return f"{'log10 of ' * config.log_target}{target or 'prediction'}{unit}"


def score_of(config: Any, values: np.ndarray, number: int) -> np.ndarray:
    """The number that is explained, of predictions ``[...]`` or ``[..., classes]`` of a target."""
    if config.task == "regression":
        return np.log10(values) if config.log_target else values
    chance = values[..., number] if config.task == "multiclass" else values
    return log_odds(chance)


def log_odds(chance: Any) -> Any:
    """Return ``log(p / (1 - p))``."""
    chance = np.clip(chance, _LEAST, 1 - _LEAST)
    return np.log(chance) - np.log1p(-chance)


def baseline_of(config: Any, target: int, number: int) -> float:
    """What is predicted best for a target without a molecule, from the labels of the training.

    A model that does not have them, of an older version or without a training, has 0 or its mean;
    for classes equal shares.
    """
    kinds = config.num_classes if config.task == "multiclass" else 1
    means = config.label_means
    if config.task == "regression":
        return float((means or config.target_mean or (0.0,) * config.num_targets)[target])
    if config.task == "binary":
        return float(log_odds(means[target] if means else 0.5))
    return float(log_odds(means[target * kinds + number] if means else 1 / kinds))


class Substructures:
    """The mean contribution of every BRICS fragment and every ring of many molecules.

    The contribution of a substructure is the sum of those of its atoms. Stereochemistry does not
    count; ``*`` is where a fragment was cut off.
    """

    COLUMNS = (
        *("target", "class", "kind", "substructure", "molecules", "occurrences"),
        *("mean_contribution", "deviation"),
    )

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], list[float]] = {}

    def add(self, explanations: Iterable[Explanation]) -> None:
        """Add the substructures of molecules."""
        for one in explanations:
            seen = set()
            for kind, name, atoms in substructures_of(one.smiles):
                key = (one.target, one.class_name, kind, name)
                sums = self._found.setdefault(key, [0, 0, 0.0, 0.0])
                value = float(one.contributions[list(atoms)].sum())
                new = [key not in seen, 1, value, value * value]
                self._found[key] = [a + b for a, b in zip(sums, new, strict=True)]
                seen.add(key)

    def rows(self, least: int = 2) -> list[list[Any]]:
        """The rows of `COLUMNS` of what at least so many molecules have, the largest means first
        for each target."""
        rows = []
        for key, (molecules, count, total, squares) in self._found.items():
            if molecules >= least:
                mean = total / count
                deviation = math.sqrt(max(0.0, squares / count - mean * mean))
                rows.append([*key, int(molecules), int(count), mean, deviation])
        return sorted(rows, key=lambda row: (row[:2], -abs(row[6]), row[2:4]))


def substructures_of(smiles: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield kind, SMILES and atoms of every BRICS fragment and every ring of a molecule, or of the
    molecules of a row."""
    if JOINT in smiles:
        first = 0
        for text in smiles.split(JOINT):
            for kind, name, atoms in substructures_of(text):
                yield kind, name, tuple(first + atom for atom in atoms)
            first += parse_smiles(text).GetNumAtoms()
        return
    mol = parse_smiles(smiles)
    plain = Chem.Mol(mol)
    Chem.RemoveStereochemistry(plain)
    for atom in plain.GetAtoms():
        atom.SetAtomMapNum(0)
    count = mol.GetNumAtoms()
    bonds = [mol.GetBondBetweenAtoms(*ends).GetIdx() for ends, _ in BRICS.FindBRICSBonds(plain)]
    cut = Chem.FragmentOnBonds(plain, bonds, dummyLabels=[(0, 0)] * len(bonds)) if bonds else plain
    for atoms in Chem.GetMolFrags(cut):
        name = Chem.MolFragmentToSmiles(cut, atoms)
        yield "fragment", name, tuple(atom for atom in atoms if atom < count)
    for ring in plain.GetRingInfo().AtomRings():
        yield "ring", Chem.MolFragmentToSmiles(plain, ring), tuple(ring)
