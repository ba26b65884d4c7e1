"""The molecules with the largest errors, drawn."""

from html import escape

import numpy as np

from slicegraph.report.molecule_drawing import draw_molecule
from slicegraph.report.numbers import number
from slicegraph.report.plot import in_unit
from slicegraph.report.predictions import Predictions

COUNT = 10


def worst(errors: np.ndarray, count: int = COUNT) -> np.ndarray:
    """The positions of the largest errors that are not zero, the largest first."""
    order = np.argsort(-np.abs(errors), kind="stable")[:count]
    return order[errors[order] != 0]


def worst_molecules(table: Predictions, kind: str, unit: str = "") -> str:
    """A card for each: the drawing, the SMILES, the true and the predicted value, the error."""
    if not table.smiles:
        return ""
    errors = (table.true != table.predicted) if kind == "multiclass" else table.error
    cards = [_card(table, int(place), kind) for place in worst(errors.astype(np.float64))]
    if not cards:
        return ""
    heading = in_unit(f"The {len(cards)} molecules with the largest errors", unit)
    listed = "\n".join(cards)
    return f'<h3>{escape(heading)}</h3>\n<ol class="molecules">\n{listed}\n</ol>'


def _card(table: Predictions, place: int, kind: str) -> str:
    smiles = table.smiles[place]
    drawing = draw_molecule(smiles) or '<p class="undrawn">RDKit cannot draw it</p>'
    values = _values(table, place, kind)
    rows = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in values.items())
    title = f"row {table.rows[place]} of the data" if table.rows else ""
    return (
        f'<li title="{escape(title)}">\n<div class="drawing">{drawing}</div>\n'
        f"<code>{escape(smiles)}</code>\n<dl>{rows}</dl>\n</li>"
    )


def _values(table: Predictions, place: int, kind: str) -> dict[str, str]:
    true, predicted = float(table.true[place]), float(table.predicted[place])
    if kind == "multiclass":
        names = (escape(table.class_name(int(value))) for value in (true, predicted))
        return dict(zip(("true class", "predicted"), names, strict=True))
    if kind == "binary":
        return {"true class": escape(table.class_name(int(true))), "predicted": number(predicted)}
    error = predicted - true
    sign = "+" if error > 0 else "\N{MINUS SIGN}"
    return {
        "true": number(true),
        "predicted": number(predicted),
        "error": sign + number(abs(error)),
    }
