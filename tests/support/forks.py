"""Codes that each need a fresh interpreter, in forks of one that has imported what they share."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

import pytest

_FORKS = """
import json, os, sys, {imports}
found = {{}}
for name, (code, environment) in json.loads(sys.argv[1]).items():
    files = [os.memfd_create(which) for which in ("out", "err")]
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found[name] = (status, *(os.pread(file, 1 << 20, 0).decode() for file in files))
        continue
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    os.environ.update(environment)
    exec(code, {{"__name__": "__main__"}})
    sys.exit(0)
print(json.dumps(found))
"""


class Outcome(NamedTuple):
    """The exit status of a code, and what it has printed."""

    status: int
    output: str
    errors: str


def run_in_forks(
    imports: str, cases: Mapping[str, tuple[str, Mapping[str, str]]]
) -> dict[str, Outcome]:
    """Run each code, with its variables in the environment, one after another."""
    if not hasattr(os, "memfd_create"):
        pytest.skip("forks, and keeps what is printed in memory")
    chosen = ("SLICEGRAPH_BACKEND", "TRITON_INTERPRET")  # what they choose is read on import
    kept = {name: value for name, value in os.environ.items() if name not in chosen}
    words = [sys.executable, "-c", _FORKS.format(imports=imports), json.dumps(cases)]
    done = subprocess.run(words, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: Outcome(*found) for name, found in json.loads(done.stdout).items()}
