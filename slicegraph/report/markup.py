"""Pieces of HTML. Every text that comes from a file is escaped here."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from slicegraph.report.numbers import number
from slicegraph.report.plot import HALF, WIDE, Picture


def section(title: str, *parts: str) -> str:
    """A section with a heading; nothing if it has no parts."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def code_block(text: str) -> str:
    """Text to copy, letter by letter."""
    return f"<pre>{escape(text)}</pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], names: int = 1) -> str:
    """A table whose first columns are names and whose others are values."""
    body = "\n".join(_row(row, names) for row in rows)
    return (
        f'<div class="scroll"><table class="numbers">\n<thead>{_row(head, names)}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def folded(summary: str, content: str) -> str:
    """Content that is seen when its line is clicked, and on paper."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n{content}\n</details>"


def pairs(entries: Mapping[str, Any], kind: str) -> str:
    """Names and values, as a list of definitions."""
    items = "\n".join(
        f"<div><dt>{escape(str(name))}</dt><dd>{escape(spelled(value))}</dd></div>"
        for name, value in entries.items()
    )
    return f'<dl class="{kind}">\n{items}\n</dl>' if items else ""


def gallery(pictures: Sequence[Picture]) -> str:
    """The figures side by side, those that are wide below each other."""
    figures = "\n".join(_figure(picture) for picture in pictures)
    return f'<div class="gallery">\n{figures}\n</div>' if pictures else ""


def spelled(value: Any) -> str:
    """A value of a settings file as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(spelled(entry) for entry in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {spelled(entry)}" for name, entry in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell(value: Any) -> str:
    """A value of a table: numbers as the page spells them."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def _row(row: Sequence[Any], names: int) -> str:
    kinds = ["th"] * names + ["td"] * (len(row) - names)
    cells = (
        f"<{kind}>{escape(cell(value))}</{kind}>" for kind, value in zip(kinds, row, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _figure(picture: Picture) -> str:
    plot = picture.plot
    light, dark = _data_address(picture.light), _data_address(picture.dark)
    width, height = (round(100 * inches) for inches in (WIDE if plot.wide else HALF))
    alternative = escape(f"{plot.title}. {plot.note}")
    return (
        f"<figure{' class=wide' if plot.wide else ''}>\n"
        f"<h3>{escape(plot.title)}</h3>\n"
        f'<div class="scroll"><picture>'
        f'<source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{alternative}" width="{width}" height="{height}">'
        f"</picture></div>\n"
        f"<figcaption>{escape(plot.note)}</figcaption>\n</figure>"
    )


def _data_address(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
