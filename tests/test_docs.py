"""The Python examples of the README and of the site run as written; every page can be reached."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_run import tiny_run

ROOT = Path(__file__).parents[1]
README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PICTURES = ["path.svg", "quantiles.svg", "sort.svg"]


def python_blocks(file: Path) -> list[tuple[int, str]]:
    """The line of each Python example of a page, and its text."""
    text = file.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start()) + 1, match[1]) for match in found]


def run_block(file: Path, line: int, block: str, names: dict) -> None:
    # The blank lines make a traceback name the line of the page.
    exec(compile("\n" * line + block, str(file), "exec"), names)


def page_id(file: Path) -> str:
    return file.relative_to(DOCS).with_suffix("").as_posix()


def listed_pages(file: Path) -> set[Path]:
    """The pages in the tables of contents of a page."""
    blocks = re.findall(
        r"^```\{toctree\}\n(.*?)^```|^\.\. toctree::\n(.*?)(?=^\S|\Z)",
        file.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    lines = [line.strip() for block in blocks for line in "".join(block).splitlines()]
    return {file.parent / line for line in lines if line and not line.startswith(":")}


@pytest.mark.parametrize(
    ("line", "block"),
    [pytest.param(*found, id=f"line {found[0]}") for found in python_blocks(README)],
)
def test_an_example_of_the_readme_runs_by_itself(line, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # data sets are prepared in the folder one is in
    run_block(README, line, block, {"__name__": "__main__"})


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=page_id)
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for line, block in python_blocks(page):
        run_block(page, line, block, names)


def test_the_readme_and_the_first_steps_have_examples():
    for page in (README, *sorted((DOCS / "start").glob("*.md"))):
        assert python_blocks(page), page


def test_every_page_is_in_a_table_of_contents():
    pages = {file.with_suffix("") for file in (*PAGES, *DOCS.rglob("*.rst"))}
    listed = set().union(*map(listed_pages, (DOCS / "index.md", DOCS / "api" / "index.rst")))
    assert pages - listed == {DOCS / "index"}
    assert listed <= pages


def test_every_public_module_has_a_page_of_the_reference():
    names = {file.stem for file in (DOCS / "api").glob("*.rst")} - {"index"}
    assert names == {
        *("nn", "ops", "models", "data", "train", "predict", "estimators"),
        *("metrics", "transforms", "testing"),
    }


def test_commands_of_the_pages_exist_with_their_flags():
    help_texts = {
        file.stem: file.read_text(encoding="utf-8")
        for file in (ROOT / "tests" / "cli" / "help").glob("*.txt")
    }
    checked = 0
    for page in PAGES:
        for command, words in re.findall(
            r"^(?:torchrun .* -m )?slicegraph (\w+)(.*)$", page.read_text(encoding="utf-8"), re.M
        ):
            flags = re.findall(r"(?<=\s)--[\w-]+", words.partition("#")[0])
            assert all(flag in help_texts[command] for flag in flags), (page, command, words)
            checked += 1
    assert checked > 10


def test_the_pictures_are_drawn_from_a_run(tmp_path):
    run = tiny_run(tmp_path).folder
    out = tmp_path / "pictures"
    command = [sys.executable, str(DOCS / "pictures.py"), str(run), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for folder in (out, DOCS / "pictures"):
        assert sorted(file.name for file in folder.iterdir()) == PICTURES
