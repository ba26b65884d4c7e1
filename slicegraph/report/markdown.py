"""The few forms of Markdown that data cards use, as HTML: headings, lists, tables, code, text.

Everything is escaped first; links stay text, so that a card cannot bring anything into the page.
"""

import re
from collections.abc import Iterator
from html import escape
from itertools import groupby

_KINDS = {"#": "heading", "|": "table", "- ": "list", "* ": "list"}


def markdown(text: str) -> str:
    """A card as HTML; its headings rank below those of the page."""
    blocks = []
    for block in _blocks(text.splitlines()):
        for kind, lines in groupby(_joined(block), key=_kind):
            blocks.append(_RENDER[kind](list(lines)))
    return "\n".join(block for block in blocks if block)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Lines between blank lines; a fenced block is one, blank lines included."""
    block: list[str] = []
    fenced = False
    for line in [*lines, ""]:
        fence = line.startswith("```")
        if (fence and not fenced) or (not fenced and not line.strip()):
            yield block
            block = []
        if fence or fenced or line.strip():
            block.append(line)
        if fence and fenced:
            yield block
            block = []
        fenced ^= fence
    yield block


def _joined(block: list[str]) -> Iterator[str]:
    """An indented line goes on with the one before it; a fenced block is one line."""
    if block and block[0].startswith("```"):
        yield "\n".join(block)
        return
    held = ""
    for line in block:
        if held and line.startswith("  "):
            held = f"{held} {line.strip()}"
        else:
            if held:
                yield held
            held = line.strip()
    if held:
        yield held


def _kind(line: str) -> str:
    if line.startswith("```"):
        return "code"
    return next((kind for sign, kind in _KINDS.items() if line.startswith(sign)), "text")


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def _headings(lines: list[str]) -> str:
    return "\n".join(f"<h4>{_inline(line.lstrip('#').strip())}</h4>" for line in lines)


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"


def _table(lines: list[str]) -> str:
    rows = [line for line in lines if not re.fullmatch(r"[|\s:-]*", line)]
    return '<div class="scroll"><table>' + "".join(map(_row, rows)) + "</table></div>"


def _row(line: str) -> str:
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return "<tr>" + "".join(f"<td>{_inline(cell.strip())}</td>" for cell in cells) + "</tr>"


def _code(lines: list[str]) -> str:
    inner = [part for line in lines for part in line.splitlines() if not part.startswith("```")]
    return f"<pre>{escape(chr(10).join(inner))}</pre>"


def _text(lines: list[str]) -> str:
    return f"<p>{_inline(' '.join(lines))}</p>"


_RENDER = {"heading": _headings, "list": _list, "table": _table, "code": _code, "text": _text}
