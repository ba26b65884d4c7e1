"""Rows of a table in Markdown, and where it stands in a page."""

from pathlib import Path

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
"""The lines of a page between which a benchmark writes."""


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def write_between_marks(file: Path, text: str) -> None:
    """Replaces what is between the marks of a page; a new page has nothing else."""
    page = file.read_text("utf-8") if file.exists() else f"{BEGIN}\n{END}\n"
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(
            f"benchmarks: {file} has no lines {BEGIN} and {END} to write between; add them, or "
            "name a new file"
        )
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
