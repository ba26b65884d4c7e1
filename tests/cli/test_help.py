"""The help of every command, word for word.

A change of the texts is seen in the files of `tests/cli/help`, which are written by

    SLICEGRAPH_WRITE_HELP=1 python -m pytest tests/cli/test_help.py

Line breaks are not compared: those of argparse differ between versions of Python.
"""

import os
from pathlib import Path

import pytest

from slicegraph.cli import COMMANDS, main

GOLDEN = Path(__file__).parent / "help"
WIDTH = 100


@pytest.fixture
def help_of(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")

    def read(*command: str) -> str:
        with pytest.raises(SystemExit) as exit:
            main([*command, "--help"])
        assert exit.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return "\n".join(line.rstrip() for line in printed.out.splitlines()) + "\n"

    return read


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids="-".join)
def test_the_help_is_the_golden_text(help_of, command):
    text, file = help_of(*command), GOLDEN / f"{'-'.join(command) or 'slicegraph'}.txt"
    if os.environ.get("SLICEGRAPH_WRITE_HELP"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(text)
    assert text.split() == file.read_text().split()


def test_every_golden_text_is_of_a_command():
    assert {path.stem for path in GOLDEN.iterdir()} == {"slicegraph", *COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_is_narrow_and_says_what_the_command_does(help_of, command):
    text = help_of(command)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert f"slicegraph {command}" in text.splitlines()[0]
    assert len(text.splitlines()) <= (130 if command == "train" else 50)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"info", "datasets"}))
def test_the_help_of_a_command_with_arguments_has_an_example(help_of, command):
    examples = help_of(command).partition("examples:\n")[2]
    assert f"slicegraph {command} " in examples


def test_the_help_of_the_whole_names_every_command(help_of):
    text = help_of()
    assert all(summary in " ".join(text.split()) for summary in COMMANDS.values())
