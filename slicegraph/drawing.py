"""Drawings of molecules as SVG or PNG, with a colour for each atom if it has a contribution.

A drawing of an editor, as plain atoms and bonds, becomes a SMILES and comes from one.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import reduce
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor
from rdkit.Chem.Draw import rdMolDraw2D
from rdkit.Geometry import Point2D

from slicegraph.vocabulary import JOINT

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
_BOND = 1.5  # length of a bond in RDKit's drawings
MOST_DRAWN, _MOST_CHARGE = 150, 9  # atoms of a drawing, and the charge of each
_ELEMENTS = {Chem.GetPeriodicTable().GetElementSymbol(number) for number in range(1, 119)}
_ORDERS = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
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
        smiles: the molecule, or those of a row.
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
        parts = list(map(Chem.MolFromSmiles, smiles.split(JOINT)))
        if not all(parts) or not parts[0].GetNumAtoms():
            return None
        molecule = reduce(Chem.CombineMols, parts)
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


def read_drawing(atoms: Any, bonds: Any) -> str:
    """Return the canonical SMILES of drawn atoms and bonds; hydrogens are added to them.

    Args:
        atoms: ``{"element": "N", "charge": 1}`` for each; without a charge it is 0.
        bonds: ``{"begin": 0, "end": 1, "order": 2}`` for each, of places in ``atoms``.

    Raises:
        ValueError: what is wrong, with the number of the atom or bond, from 1.

    Example:
        >>> read_drawing([{"element": "C"}, {"element": "O"}], [{"begin": 0, "end": 1, "order": 2}])
        'C=O'
    """
    if not isinstance(atoms, list) or not isinstance(bonds, list):
        raise ValueError("expected a list of atoms and a list of bonds")
    if not 0 < len(atoms) <= MOST_DRAWN:
        raise ValueError(f"{len(atoms)} atoms, more than {MOST_DRAWN}" if atoms else "no atoms")
    if len(bonds) > 2 * MOST_DRAWN:
        raise ValueError(f"{len(bonds)} bonds, more than {2 * MOST_DRAWN}")
    molecule = Chem.RWMol()
    for number, given in enumerate(atoms, 1):
        element, charge = _fields(f"atom {number}", given, element=None, charge=0)
        if not isinstance(element, str) or element not in _ELEMENTS:
            raise ValueError(f"atom {number}: there is no element {str(element)[:20]!r}")
        if type(charge) is not int or abs(charge) > _MOST_CHARGE:
            raise ValueError(f"atom {number}: a charge of {str(charge)[:20]}")
        atom = Chem.Atom(element)
        atom.SetFormalCharge(charge)
        molecule.AddAtom(atom)
    valences = [0] * len(atoms)
    for number, given in enumerate(bonds, 1):
        begin, end, order = _fields(f"bond {number}", given, begin=None, end=None, order=1)
        for place in (begin, end):
            if type(place) is not int or not 0 <= place < len(atoms):
                raise ValueError(
                    f"bond {number}: there is no atom {str(place)[:20]}, counted from 0"
                )
        if type(order) is not int or order not in _ORDERS:
            raise ValueError(f"bond {number}: an order of {str(order)[:20]}, expected 1, 2 or 3")
        if begin == end:
            raise ValueError(f"bond {number}: from atom {begin + 1} to itself")
        if molecule.GetBondBetweenAtoms(begin, end) is not None:
            raise ValueError(f"bond {number}: atoms {begin + 1} and {end + 1} have a bond already")
        molecule.AddBond(begin, end, _ORDERS[order])
        valences[begin] += order
        valences[end] += order
    with rdBase.BlockLogs():
        for problem in Chem.DetectChemistryProblems(molecule):
            if problem.GetType() != "AtomValenceException":
                raise ValueError(problem.Message())
            place = problem.GetAtomIdx()
            charge = molecule.GetAtomWithIdx(place).GetFormalCharge()
            name = Chem.GetPeriodicTable().GetElementName(
                molecule.GetAtomWithIdx(place).GetAtomicNum()
            )
            kind = name.lower() + (f" of charge {charge:+d}" if charge else "")
            raise ValueError(f"atom {place + 1}: {kind} with {valences[place]} bonds")
        Chem.SanitizeMol(molecule)
        return Chem.MolToSmiles(Chem.RemoveHs(molecule))


def make_drawing(molecule: Chem.Mol) -> dict[str, Any]:
    """Return a molecule as `read_drawing` reads it, with a place for each atom.

    The places are 1 apart along a bond, and y grows downwards. ``complete`` is whether the drawing
    has all of the molecule: it has no stereochemistry, isotopes and radicals.

    Raises:
        ValueError: there are too many atoms, or a bond is not single, double or triple.
    """
    if (count := molecule.GetNumAtoms()) > MOST_DRAWN:
        raise ValueError(f"{count} atoms, more than {MOST_DRAWN}, are not drawn")
    with rdBase.BlockLogs():
        whole = Chem.MolToSmiles(molecule)
        molecule = Chem.Mol(molecule)
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        rdDepictor.Compute2DCoords(molecule)
    places = molecule.GetConformer().GetPositions() / _BOND
    atoms = [
        {"element": atom.GetSymbol(), "charge": atom.GetFormalCharge(), "x": x, "y": -y}
        for atom, (x, y, _) in zip(molecule.GetAtoms(), places.tolist(), strict=True)
    ]
    orders = {kind: order for order, kind in _ORDERS.items()}
    bonds = []
    for bond in molecule.GetBonds():
        if bond.GetBondType() not in orders:
            raise ValueError(f"a bond of type {bond.GetBondType()} cannot be drawn")
        order = orders[bond.GetBondType()]
        bonds.append({"begin": bond.GetBeginAtomIdx(), "end": bond.GetEndAtomIdx(), "order": order})
    try:
        complete = read_drawing(atoms, bonds) == whole
    except ValueError:  # an atom that a drawing cannot have, such as *
        complete = False
    return {"atoms": atoms, "bonds": bonds, "complete": complete}


def _fields(name: str, given: Any, **usual: Any) -> list[Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{name}: expected an object with {', '.join(usual)}")
    return [given.get(field, value) for field, value in usual.items()]


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
