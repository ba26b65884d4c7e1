"""Write tables in Markdown between the markers of a page."""

from pathlib import Path

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
"""The markers: a benchmark writes between these lines of a page."""


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def write_between_marks(file: Path, text: str) -> None:
    """Replace the text between the markers of a page; a new page contains nothing else."""
    page = file.read_text("utf-8") if file.exists() else f"{BEGIN}\n{END}\n"
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(
            f"benchmarks: {file} has no lines {BEGIN} and {END} to write between; add them, or "
            "name a new file"
        )
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")
