"""The files for hosted services and packagers are valid and name what exists."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SETUP = (ROOT / "setup.cfg").read_text(encoding="utf-8")


def commands(job: str) -> list[str]:
    return [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step]


def test_the_hosted_tests_are_those_of_the_repository():
    assert commands("test") == [".ci/run"]
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    made = [line for line in script.read_text().splitlines() if line.startswith("make ")]
    assert {"lint", "test", "docs"} <= set(" ".join(made).split())


def test_the_hosted_tests_use_every_python_that_is_supported():
    tested = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert tested == re.findall(r"Python :: (3\.\d+)", SETUP)


def test_every_action_has_a_version():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert all(re.search(r"@v\d+", step["uses"]) for step in steps if "uses" in step)


def test_wheels_are_built_once_for_each_platform_and_checked():
    tomllib = pytest.importorskip("tomllib")  # new in Python 3.11
    settings = tomllib.loads(PYPROJECT)["tool"]["cibuildwheel"]
    assert settings["build"] == ["cp312-manylinux_*", "cp312-macosx_arm64"]
    compile(re.search(r'python -c "(.*)"$', settings["test-command"])[1], "test-command", "exec")
    assert any("cibuildwheel" in command for command in commands("wheels"))


def test_the_image_runs_the_command_as_a_user_without_rights():
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"^USER (?!root)", last, re.M)
    assert re.search(r'^ENTRYPOINT \["slicegraph"\]$', last, re.M)
    assert '".[all]"' in DOCKERFILE
    assert "-c constraints.txt" in DOCKERFILE


def test_the_image_gets_every_file_that_the_build_reads():
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert all((ROOT / name).exists() for name in kept)
    assert {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "slicegraph", "datasets"} <= {
        *kept
    }


def test_the_citation_names_this_version_and_the_paper():
    version = re.search(
        r'^__version__ = "(.*)"', (ROOT / "slicegraph/__init__.py").read_text(), re.M
    )
    assert CITATION["version"] == version[1]
    (paper,) = CITATION["references"]
    assert paper["url"] == "https://arxiv.org/abs/2310.17683"
    assert [author["family-names"] for author in paper["authors"]] == ["Yuan", "Xu"]
