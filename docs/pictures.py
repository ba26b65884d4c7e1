"""Draw the pictures of how_it_works.md with the operators and a trained model.

Run: python docs/pictures.py RUN [--out docs/pictures]

RUN is the folder of a finished `slicegraph train`. The same run gives the same files.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rdkit import Chem
from rdkit.Chem import rdDepictor
from torch_geometric.data import Batch

import slicegraph
from slicegraph.analysis import implicit_permutation, trace
from slicegraph.data import featurize
from slicegraph.nn import Order, SliceSort, SliceSortAggregation
from slicegraph.report.plots import LIGHT
from slicegraph.transforms import StructuralEncoding

WIDTH = 5.6  # inches: letters stay readable on a phone
MOLECULE = "CC(O)Cc1ccco1"
SETS = ("CCO", "CC(C)=O", MOLECULE)
BLUES = LIGHT.ramp(LIGHT.background, LIGHT.first)
ATOM_COLOURS = {"C": LIGHT.text, "O": "#c0392b", "N": "#2b6cb0"}
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.edgecolor": LIGHT.line,
    "axes.labelcolor": LIGHT.muted,
    "axes.titlecolor": LIGHT.text,
    "xtick.color": LIGHT.muted,
    "ytick.color": LIGHT.muted,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "slicegraph",  # otherwise every file has other names inside
}


def heat(axes: Axes, values: Any, title: str) -> None:
    """Draw a matrix of positive numbers as coloured cells, white at zero."""
    axes.imshow(values, cmap=BLUES, vmin=0, aspect="auto")
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_sort() -> Figure:
    """Project a set and sort every channel: the same numbers, and one permutation a channel."""
    torch.manual_seed(5)
    rows, channels = 6, 4
    layer = SliceSort(8, channels, out_proj=False)
    x = torch.randn(rows, 8)
    with torch.no_grad():
        values, ordered = layer.value_proj(x), layer(x)
    order = Order("ascending", channels)
    sources = torch.stack([implicit_permutation(order, values, c) for c in range(channels)], 1)
    colours = matplotlib.colormaps["viridis"].resampled(rows)

    figure = Figure(figsize=(WIDTH, 5), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[3, 2])
    left, right = upper.subplots(1, 2)
    start = torch.arange(rows).unsqueeze(1).expand(rows, channels)
    for axes, numbers, origin, title in (
        (left, values, start, "$V = X\\,W_V$, a colour a row"),
        (right, ordered, sources, "Sort$_{\\rm col}(V)$"),
    ):
        axes.imshow(origin, cmap=colours, vmin=0, vmax=rows - 1, aspect="auto", alpha=0.75)
        for (i, c), value in np.ndenumerate(numbers.numpy()):
            light = int(origin[i, c]) < rows / 2
            axes.text(c, i, f"{value:.2f}", ha="center", va="center", color="w" if light else "k")
        axes.set_title(title)
        axes.set_xticks(range(channels), range(1, channels + 1))
        axes.set_yticks(range(rows), range(1, rows + 1))
        axes.set_xlabel("channel")
        axes.set_ylabel("row")
        axes.tick_params(length=0)
    for c, axes in enumerate(lower.subplots(1, channels)):
        matrix = torch.nn.functional.one_hot(sources[:, c], rows)
        axes.imshow(matrix, cmap=BLUES, vmin=0, vmax=1)
        axes.set_title(f"$P_{c + 1}$")
        axes.set_xticks(range(rows), range(1, rows + 1))
        axes.set_yticks(range(rows), range(1, rows + 1))
        axes.tick_params(length=0)
    return figure


def draw_molecule(axes: Axes, smiles: str) -> None:
    molecule = Chem.MolFromSmiles(smiles)
    rdDepictor.Compute2DCoords(molecule)
    places = molecule.GetConformer().GetPositions()[:, :2]
    for bond in molecule.GetBonds():
        ends = places[[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]]
        axes.plot(*ends.T, color=LIGHT.muted, linewidth=1 + bond.GetBondTypeAsDouble(), zorder=1)
    for atom, place in zip(molecule.GetAtoms(), places, strict=True):
        colour = ATOM_COLOURS[atom.GetSymbol()]
        axes.scatter(*place, s=170, color=LIGHT.background, edgecolor=colour, zorder=2)
        text = atom.GetSymbol()
        axes.text(*place, text, ha="center", va="center_baseline", color=colour, zorder=3)
    axes.margins(0.12)
    axes.set_aspect("equal")
    axes.axis("off")


def test_scores(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """The labels and the predictions of the test molecules of a run."""
    with (run / "predictions" / "test.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    name = next(name.removesuffix("_true") for name in rows[0] if name.endswith("_true"))
    pairs = np.array([(float(row[f"{name}_true"]), float(row[f"{name}_pred"])) for row in rows])
    return pairs[:, 0], pairs[:, 1]


def draw_path(run: Path, model: Any) -> Figure:
    """One molecule on its way through the first layer, and the metric at the end."""
    batch = StructuralEncoding()(Batch.from_data_list([featurize(MOLECULE)]))
    atoms = batch.num_nodes
    with torch.no_grad():
        weights = model.pair_bias(batch).weights[0, 0, :atoms, :atoms]
    first = trace(model, batch)[0]
    shown = slice(0, 12)

    figure = Figure(figsize=(WIDTH, 7.4), layout="constrained")
    axes = figure.subplots(3, 2).flatten()
    draw_molecule(axes[0], MOLECULE)
    axes[0].set_title(f"1  SMILES to graph\n{MOLECULE}")
    distance = batch.pair_distance.view(atoms, atoms)
    heat(axes[1], distance, "2  distances in bonds")
    for (i, j), hops in np.ndenumerate(distance.numpy()):
        colour = "w" if hops > distance.max() / 2 else LIGHT.text
        axes[1].text(j, i, hops, ha="center", va="center", fontsize=7, color=colour)
    heat(axes[2], weights, "3  softmax(S + E), head 1")
    # Each channel from its minimum, white, to its maximum: the order is what there is to see.
    low, high = first.unordered.amin(0), first.unordered.amax(0)
    for axis, rows, title in (
        (axes[3], first.unordered, "4  A = softmax(S + E) V"),
        (axes[4], first.ordered, "5  every channel of A sorted"),
    ):
        heat(axis, ((rows - low) / (high - low))[:, shown], title)
    labels, predictions = test_scores(run)
    error = float(np.abs(labels - predictions).mean())
    axes[5].plot(labels, predictions, ".", markersize=2, color=LIGHT.first, alpha=0.5)
    axes[5].axline((labels[0], labels[0]), slope=1, color=LIGHT.muted, linewidth=1)
    axes[5].set_title(f"6  readout and metric: MAE {error:.3f}")
    axes[5].set_xlabel("label")
    axes[5].set_ylabel("prediction")
    for axis in axes[1:5]:
        axis.set_ylabel("atom" if axis is not axes[4] else "rank")
    axes[1].set_xlabel("atom")
    axes[2].set_xlabel("atom")
    axes[3].set_xlabel("channel")
    axes[4].set_xlabel("channel")
    return figure


def draw_quantiles(model: Any) -> Figure:
    """One sorted channel of sets of different sizes, and its values at five quantiles."""
    data = Batch.from_data_list([featurize(smiles) for smiles in SETS])
    first = trace(model, StructuralEncoding()(data))[0]
    # The channel that differs most between atoms shows the curves best.
    channel = int(first.unordered.std(0).argmax())
    read = SliceSortAggregation(k=5)(first.unordered, ptr=first.ptr).view(len(SETS), 5, -1)
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    colours = (LIGHT.second, LIGHT.muted, LIGHT.first)
    for number, (smiles, colour) in enumerate(zip(SETS, colours, strict=True)):
        curve = first.rows(first.ordered, number)[:, channel]
        places = torch.linspace(0, 1, len(curve))
        axes.plot(places, curve, ".-", color=colour, linewidth=1, label=smiles)
        axes.plot(torch.linspace(0, 1, 5), read[number, :, channel], "o", color=colour, mfc="none")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["min", "1/4", "median", "3/4", "max"])
    axes.set_xlabel("rank in the sorted channel, from 0 to 1")
    axes.set_ylabel("value")
    axes.grid(color=LIGHT.line, linewidth=0.6)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="draw the pictures of how_it_works.md")
    parser.add_argument("run", type=Path, help="folder of a finished run")
    out = Path(__file__).parent / "pictures"
    parser.add_argument("--out", type=Path, default=out, help="folder to write to (docs/pictures)")
    arguments = parser.parse_args()
    model = slicegraph.load(arguments.run)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figures = {
            "sort": draw_sort(),
            "path": draw_path(arguments.run, model),
            "quantiles": draw_quantiles(model),
        }
        for name, figure in figures.items():
            file = arguments.out / f"{name}.svg"
            figure.savefig(file, facecolor=LIGHT.background, metadata={"Date": None})
            print(file)


if __name__ == "__main__":
    main()
