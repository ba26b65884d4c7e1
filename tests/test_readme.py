"""Every Python example of the README runs as written, by itself."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def python_blocks() -> list:
    text = README.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [(text.count("\n", 0, match.start()) + 1, match[1]) for match in found]
    return [pytest.param(line, block, id=f"line {line}") for line, block in lines]


def test_there_are_examples():
    assert python_blocks()


@pytest.mark.parametrize(("line", "block"), python_blocks())
def test_the_example_runs_as_written(line, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # data sets are prepared in the folder one is in
    # The blank lines make a traceback name the line of the README.
    code = compile("\n" * line + block, str(README), "exec")
    exec(code, {"__name__": "__main__"})
