"""The package builds without torch, and without a C++ compiler."""

import ast
import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slicegraph.ops.operator import problem

ROOT = Path(__file__).parents[1]
LIBRARY = "slicegraph/ops/_kernels.so"
# An environment with torch cannot show that the build works without it: forbid the import.
BUILD = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = None
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])("dist"))
"""
API = """
#if SLICEGRAPH_X86_LEVELS && !defined(SLICEGRAPH_WITHOUT_AVX512)
#define HAS_AVX512 1
#else
#define HAS_AVX512 0
#endif
extern "C" __attribute__((visibility("default"))) int has_avx512() { return HAS_AVX512; }
"""
LEVEL = """
#include "level.h"
#define NAME(level) vector_bytes_##level
#define EXPAND(level) NAME(level)
extern "C" __attribute__((visibility("default"))) int EXPAND(SLICEGRAPH_LEVEL)() {
    return SLICEGRAPH_VECTOR_BYTES;
}
"""

x86 = platform.machine().lower() in ("x86_64", "amd64")
with_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler here"
)


@pytest.fixture
def project(tmp_path) -> Path:
    """A copy of the project whose kernels compile at once."""
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "csrc")
    shutil.copytree(ROOT / "slicegraph", tmp_path / "slicegraph", ignore=ignored)
    shutil.copytree(ROOT / "datasets", tmp_path / "datasets")
    csrc = tmp_path / "slicegraph" / "csrc"
    csrc.mkdir()
    for name, text in (("api.cpp", API), ("level.cpp", LEVEL), ("level.h", "")):
        (csrc / name).write_text(text)
    return tmp_path


def python(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "CXX"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={**kept, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done


def build_wheel(project: Path, **environment: str) -> tuple[zipfile.ZipFile, str]:
    done = python(project, "-c", BUILD, "build_wheel", **environment)
    return zipfile.ZipFile(project / "dist" / done.stdout.splitlines()[-1]), done.stderr


def load(wheel: zipfile.ZipFile, folder: Path) -> ctypes.CDLL:
    return ctypes.CDLL(wheel.extract(LIBRARY, folder / "unpacked"))


def test_the_build_requires_setuptools_alone():
    requires = re.search(r"^requires = (\[.*?\])", (ROOT / "pyproject.toml").read_text(), re.M)
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in ast.literal_eval(requires[1])]
    assert names == ["setuptools"]


@with_compiler
def test_the_kernels_are_installed_where_there_is_a_compiler():
    assert problem("cpu", "cpu") is None


@with_compiler
def test_the_wheel_serves_every_python_and_has_every_simd_level_the_types_and_the_template(project):
    wheel, _ = build_wheel(project)
    expected = {LIBRARY, "slicegraph/py.typed", "slicegraph/report/page.html.j2"}
    assert expected <= set(wheel.namelist())
    assert re.search(r"-py3-none-(?!any)\w+\.whl$", wheel.filename)
    library = load(wheel, project)
    assert library.vector_bytes_baseline() == 16
    if x86:
        assert library.vector_bytes_avx2() == 32
        assert library.vector_bytes_avx512() == 64
        assert library.has_avx512() == 1


@with_compiler
@pytest.mark.skipif(not x86, reason="other machines have one level")
def test_a_level_that_the_compiler_refuses_is_left_out(project):
    compiler = project / "old-compiler"
    compiler.write_text('#!/bin/sh\ncase "$*" in *x86-64-v4*) exit 1;; esac\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    wheel, _ = build_wheel(project, CXX=str(compiler))
    library = load(wheel, project)
    assert library.vector_bytes_avx2() == 32
    assert library.has_avx512() == 0
    assert not hasattr(library, "vector_bytes_avx512")


@pytest.mark.parametrize("environment", [{"CXX": "/nonexistent/c++"}, {"PATH": "/nonexistent"}])
def test_without_a_compiler_the_wheel_has_every_module_no_library_and_says_so(project, environment):
    wheel, messages = build_wheel(project, **environment)
    assert LIBRARY not in wheel.namelist()
    assert "WARNING: slicegraph is built without its C++ kernels: no C++ compiler" in messages
    assert_every_module_and_nothing_else(wheel, project)


@with_compiler
def test_kernels_that_do_not_compile_are_left_out(project):
    (project / "slicegraph" / "csrc" / "level.h").write_text("#error no good here")
    wheel, messages = build_wheel(project)
    assert LIBRARY not in wheel.namelist()
    assert "WARNING: slicegraph is built without its C++ kernels: " in messages


def assert_every_module_and_nothing_else(wheel: zipfile.ZipFile, project: Path) -> None:
    expected = {str(file.relative_to(project)) for file in project.rglob("slicegraph/**/*.py")}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name for name in found if name.endswith(".py")} == {
        name for name in expected if not name.startswith("build/")
    }
    data = {f"slicegraph/data/embedded/mini/{name}" for name in ("mini.csv.gz", "README.md")}
    template = "slicegraph/report/page.html.j2"
    weights = {
        f"slicegraph/models/slicegraph-chem/{name}"
        for name in ("config.json", "model.safetensors", "README.md")
    }
    served = {"slicegraph/cli/serve.html", "slicegraph/cli/serve.js"}
    assert found - expected == {"slicegraph/py.typed", template, *data, *weights, *served}


def test_the_source_distribution_has_the_kernels_and_the_data_sets(project):
    name = python(project, "-c", BUILD, "build_sdist").stdout.splitlines()[-1]
    shutil.unpack_archive(project / "dist" / name, project / "unpacked")
    files = {file.name for file in project.glob("unpacked/*/slicegraph/csrc/*")}
    assert files == {"api.cpp", "level.cpp", "level.h"}
    files = {file.name for file in project.glob("unpacked/*/slicegraph/models/slicegraph-chem/*")}
    assert files == {"config.json", "model.safetensors", "README.md"}
    files = {file.name for file in project.glob("unpacked/*/datasets/mini/*")}
    assert files == {"mini.csv.gz", "README.md", "make.py"}


@with_compiler
def test_kernels_are_compiled_again_only_when_a_source_changed(project):
    def compiles() -> bool:
        return "level.cpp" in python(project, "setup.py", "-q", "build_kernels").stdout

    assert compiles()
    assert not compiles()
    header = project / "slicegraph" / "csrc" / "level.h"
    header.write_text("// changed\n")
    assert compiles()
