"""Draws a molecule as SVG, to stand inside an HTML page."""

import re
from typing import Any

from rdkit import Chem, rdBase
from rdkit.Chem import rdDepictor
from rdkit.Chem.Draw import rdMolDraw2D

_WIDTH, _HEIGHT = 160, 110
# Elements by atomic number, in colours that are read on light and on dark ground.
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


def draw_molecule(smiles: str) -> str | None:
    """The drawing of a molecule, on a transparent ground; None if RDKit cannot read it.

    Every letter of the SVG is RDKit's: the text of the SMILES is not part of it.
    """
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None or molecule.GetNumAtoms() == 0:
            return None
        return _svg(molecule)


def _svg(molecule: Chem.Mol) -> str:
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(0)
    rdDepictor.Compute2DCoords(molecule)
    canvas = rdMolDraw2D.MolDraw2DSVG(_WIDTH, _HEIGHT)
    options: Any = canvas.drawOptions()
    options.clearBackground = False
    options.useBWAtomPalette()
    options.updateAtomPalette(_COLOURS)
    options.fixedBondLength = 30
    options.bondLineWidth = 1
    options.minFontSize = 9
    options.padding = 0.06
    rdMolDraw2D.PrepareAndDrawMolecule(canvas, molecule)
    canvas.FinishDrawing()
    return _inline(canvas.GetDrawingText())


def _inline(svg: str) -> str:
    """Without what only XML needs; black becomes the colour of the text around it."""
    svg = re.sub(r"<\?xml.*?\?>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s+xmlns(:\w+)?='[^']*'|\s+xml:space='[^']*'", "", svg)
    svg = svg.replace("#000000", "currentColor")
    return re.sub(r"\s*\n\s*", "\n", svg).strip()
