"""Drawings of molecules as SVG or PNG, with a colour for each atom if it has a contribution."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

CARD, FIGURE = (160, 110), (420, 300)  # width and height in pixels

# Elements by atomic number, in colours that are legible on light and on dark background.
_COLOURS = {
    7: (0.23, 0.49, 0.87),
    8: (0.86, 0.28, 0.23),
    9: (0.16, 0.60, 0.38),
    15: (0.85, 0.47, 0.17),
    16: (0.68, 0.52, 0.04),
    17: (0.16, 0.60, 0.38),
    35: (0.70, 0.38, 0.22),
    53: (0.58, 0.37, 0.80),
}
_UP, _DOWN = (0.84, 0.37, 0.0), (0.0, 0.36, 0.75)  # also told apart by the colour-blind
_DEEPEST = 0.75  # opacity of the largest contribution
_LEGEND, _STEPS = 58, 40  # height in pixels, colours of the bar
_ALPHA = re.compile(r"(fill|stroke):(#[0-9A-F]{6})([0-9A-F]{2})\b")


def draw_molecule(
    smiles: str,
    contributions: Sequence[float] | None = None,
    *,
    limit: float | None = None,
    legend: str = "",
    size: tuple[int, int] = FIGURE,
    png: bool = False,
) -> Any:
    """Draw a molecule; None if RDKit cannot read it.

    RDKit writes the whole picture, and neither the text of the SMILES nor the legend is a text in
    it: letters are outlines.

    Args:
        smiles: the molecule.
        contributions: a number for each atom, in the order of the SMILES: those above 0 are orange,
            those below 0 blue, and the colour is as deep as the number is large.
        limit: the number with the deepest colour (default: the largest contribution).
        legend: what the contributions are; with it, a bar of the colours is below the molecule.
        size: width and height of the molecule in pixels.
        png: whether to return the bytes of a PNG, on white; otherwise the text of an SVG.

    Raises:
        ValueError: there are more or fewer contributions than atoms.
    """
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None or molecule.GetNumAtoms() == 0:
            return None
        atoms = molecule.GetNumAtoms()
        values = [] if contributions is None else list(map(float, contributions))
        if contributions is not None and len(values) != atoms:
            raise ValueError(f"{len(values)} contributions for {atoms} atoms of {smiles!r}")
        for atom in molecule.GetAtoms():
            atom.SetAtomMapNum(0)
        rdDepictor.Compute2DCoords(molecule)
        width, height = size
        below = _LEGEND if values and legend else 0
        kind = rdMolDraw2D.MolDraw2DCairo if png else rdMolDraw2D.MolDraw2DSVG
        canvas: Any = kind(width, height + below, width, height)
        options: Any = canvas.drawOptions()
        options.clearBackground = png
        options.useBWAtomPalette()
        options.updateAtomPalette(_COLOURS)
        options.fixedBondLength = min(42, 30 * width / CARD[0])
        options.bondLineWidth = 1 if width <= CARD[0] else 2
        options.minFontSize = 9
        options.padding = 0.06
        limit = limit or max(map(abs, values), default=0) or 1.0
        colours = {i: _colour(value / limit) for i, value in enumerate(values)}
        marks: dict[str, Any] = {}
        if values:  # the letters are black on a colour
            options.useBWAtomPalette()
            marks = {"highlightAtoms": list(colours), "highlightAtomColors": colours}
            marks |= {"highlightBonds": [], "highlightAtomRadii": dict.fromkeys(colours, 0.4)}
        rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule, **marks)
        if below:
            _draw_legend(canvas, width, height, limit, legend)
        canvas.FinishDrawing()
        drawn = canvas.GetDrawingText()
    return drawn if png else _ALPHA.sub(_opacity, drawn)


def as_html(svg: str) -> str:
    """Return an SVG as part of a page in light or dark: black becomes the colour of its text."""
    svg = re.sub(r"<\?xml.*?\?>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+xmlns(:\w+)?='[^']*'|\s+xml:space='[^']*'", "", svg)
    return re.sub(r"\s*\n\s*", "\n", svg.replace("#000000", "currentColor")).strip()


def on_white(svg: str) -> str:
    """Return an SVG with a white background, to be legible in every viewer."""
    return svg.replace(
        "<!-- END OF HEADER -->", "<rect width='100%' height='100%' fill='#FFFFFF'/>", 1
    )


def _colour(share: float) -> tuple[float, ...]:
    return (*(_UP if share > 0 else _DOWN), _DEEPEST * min(1.0, abs(share)))


def _opacity(found: re.Match[str]) -> str:
    """Write a colour with transparency as SVG 1.1 has it, for older viewers."""
    what, colour, alpha = found.groups()
    return (
        f"fill:{colour};fill-opacity:{int(alpha, 16) / 255:.3f}"
        if what == "fill"
        else "stroke:none"
    )


def _draw_legend(canvas: Any, width: int, height: int, limit: float, text: str) -> None:
    """Draw the bar of the colours with its ends and its middle, and what it shows."""
    left, right, top = 0.15 * width, 0.85 * width, height + 4
    step = (right - left) / _STEPS
    canvas.SetFillPolys(True)
    canvas.SetLineWidth(0)
    for number in range(_STEPS):
        canvas.SetColour(_colour((2 * number + 1) / _STEPS - 1))
        x0, x1 = left + step * number, left + step * (number + 1)
        corners = ((x0, top), (x1, top), (x1, top + 9), (x0, top + 9))
        canvas.DrawPolygon([Point2D(*corner) for corner in corners], True)
    canvas.SetColour((0.0, 0.0, 0.0))
    canvas.SetFontSize(12)
    for x, label in ((left, f"{-limit:.2g}"), ((left + right) / 2, "0"), (right, f"+{limit:.2g}")):
        canvas.DrawString(label, Point2D(x, top + 21), 0, True)
    # RDKit's font has no letters with accents.
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    canvas.DrawString(plain, Point2D(width / 2, top + 40), 0, True)
