"""Compiles the C++ kernels into one plain shared library, and takes the shipped data along.

The library is loaded with ctypes: it includes no header of Python or torch, so that neither is
needed to build it and one wheel serves every version of both. Without a working C++ compiler the
package is built without the library, and the operators run on torch. The data sets of `datasets/`
are installed in the package; an editable install finds them in the repository. Everything else is
in setup.cfg.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

CSRC = Path("slicegraph", "csrc")
LIBRARY = Path("slicegraph", "ops", "_kernels.so")
DATASETS = Path("datasets")
INSTALLED_DATASETS = Path("slicegraph", "data", "embedded")
FLAGS = ["-O3", "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-pthread"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-psabi"]
X86_LEVELS = {
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512", "-DSLICEGRAPH_VECTOR_BYTES=64"],
    "avx2": ["-march=x86-64-v3", "-DSLICEGRAPH_VECTOR_BYTES=32"],
}
BASELINE = {"baseline": ["-DSLICEGRAPH_VECTOR_BYTES=16"]}


class BuildError(Exception):
    """The kernels cannot be built here."""


def find_compiler() -> list[str]:
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for command in map(shlex.split, names):
        if shutil.which(command[0]):
            return command
    raise BuildError(f"no C++ compiler found (tried {', '.join(names)})")


def call(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise BuildError(f"{command[0]}: {error}") from error
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise BuildError(f"{command[0]} failed with status {done.returncode}")


def accepts(compiler: list[str], flags: list[str], folder: Path) -> bool:
    probe = folder / "probe.cpp"
    probe.write_text("int probe() { return 0; }\n")
    try:
        call([*compiler, *flags, "-c", str(probe), "-o", str(folder / "probe.o")])
    except BuildError:
        return False
    return True


def compile_jobs(compiler: list[str], folder: Path) -> dict[Path, list[str]]:
    """The sources and flags of each object file: level.cpp once a SIMD level, the others once."""
    levels, defines = dict(BASELINE), []
    if platform.machine().lower() in ("x86_64", "amd64"):
        refused = [name for name in X86_LEVELS if not accepts(compiler, X86_LEVELS[name], folder)]
        levels |= {name: X86_LEVELS[name] for name in X86_LEVELS if name not in refused}
        defines = ["-DSLICEGRAPH_X86_LEVELS=1"]
        defines += [f"-DSLICEGRAPH_WITHOUT_{name.upper()}" for name in refused]
    level = CSRC / "level.cpp"
    jobs = {
        folder / f"level_{name}.o": [str(level), f"-DSLICEGRAPH_LEVEL={name}", *flags]
        for name, flags in levels.items()
    }
    once = [file for file in sorted(CSRC.glob("*.cpp")) if file != level]
    return jobs | {folder / f"{file.stem}.o": [str(file), *defines] for file in once}


def compile_library(target: Path, folder: Path) -> None:
    compiler = find_compiler()
    jobs = compile_jobs(compiler, folder)
    common = [*compiler, *FLAGS, *WARNINGS, "-c"]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda name: call([*common, *jobs[name], "-o", str(name)]), jobs))
    # Linked elsewhere and moved: a process that has the old library loaded keeps it intact.
    linked = folder / target.name
    call([*compiler, "-shared", "-pthread", *map(str, jobs), "-o", str(linked)])
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(linked, target)


class BuildStep(Command):
    """A step of the build that puts files into the build folder, or in place if editable."""

    user_options: ClassVar[list] = []
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))


class build_kernels(BuildStep):
    """Builds the kernels: in place for an editable install, else into the build folder."""

    description = "build the C++ kernels"

    def run(self) -> None:
        target = LIBRARY if self.editable_mode else Path(self.build_lib, LIBRARY)
        newest = max((Path(f).stat().st_mtime for f in self.get_source_files()), default=0)
        if target.exists() and target.stat().st_mtime > newest:
            return
        target.unlink(missing_ok=True)
        try:
            with tempfile.TemporaryDirectory() as folder:
                compile_library(target, Path(folder))
        except BuildError as error:
            message = f"WARNING: slicegraph is built without its C++ kernels: {error}"
            print(f"{message}\nThe operators will run on torch, which is slower.", file=sys.stderr)

    def get_source_files(self) -> list[str]:
        return ["setup.py", *sorted(str(f) for f in CSRC.glob("*") if f.suffix in (".cpp", ".h"))]

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib, LIBRARY))]

    def get_output_mapping(self) -> dict[str, str]:
        return {self.get_outputs()[0]: str(LIBRARY)} if self.editable_mode else {}


class build_datasets(BuildStep):
    """Copies each shipped data set and its card into the package; not the script that made it."""

    description = "copy the shipped data sets"

    def run(self) -> None:
        for source, target in self._files().items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

    def get_source_files(self) -> list[str]:
        return sorted(str(file) for file in DATASETS.glob("*/*") if file.suffix in (".gz", ".md"))

    def get_outputs(self) -> list[str]:
        return [str(target) for target in self._files().values()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _files(self) -> dict[Path, Path]:
        if self.editable_mode:
            return {}
        folder = Path(self.build_lib) / INSTALLED_DATASETS
        files = [Path(file) for file in self.get_source_files()]
        if not files:
            raise FileNotFoundError(f"{DATASETS} has no data sets, and they belong to the package")
        return {file: folder / file.relative_to(DATASETS) for file in files}


class platform_wheel(bdist_wheel):
    """The library depends on the platform, and on no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class PlatformDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


build.sub_commands += [("build_kernels", None), ("build_datasets", None)]
setup(
    distclass=PlatformDistribution,
    cmdclass={
        "build_kernels": build_kernels,
        "build_datasets": build_datasets,
        "bdist_wheel": platform_wheel,
    },
)
