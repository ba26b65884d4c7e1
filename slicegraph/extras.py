"""Optional packages: which extra installs them, and the error for a missing one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

PACKAGES = {
    "mol": ("rdkit", "ogb", "pandas", "scikit-learn", "filelock", "tqdm", "pillow"),
    "train": ("lightning", "matplotlib", "jinja2", "pyyaml"),
    "parquet": ("pyarrow",),
    "xlsx": ("openpyxl",),
    "serve": ("starlette", "uvicorn", "python-multipart"),
    "tune": ("optuna",),
}
"""The packages of each extra, as in ``setup.cfg``."""

_MODULES = {  # others have one name
    **{"scikit-learn": "sklearn", "pillow": "PIL", "pyyaml": "yaml"},
    "python-multipart": "python_multipart",
}


class MissingPackage(ImportError):
    """A package of an extra is not installed."""


@contextmanager
def needs(user: str, *extras: str) -> Iterator[None]:
    """Replace the error of an import that fails for lack of an extra by one sentence.

    The sentence names all packages of these extras that are missing, so that one installation is
    enough. Other errors are not changed.

    Args:
        user: what needs the packages, such as the name of a module or a command.
        extras: names in :data:`PACKAGES`.

    Example:
        >>> with needs("slicegraph.train", "train"):
        ...     import lightning
        MissingPackage: slicegraph.train needs lightning; install it with: pip install "slicegraph[train]"
    """  # noqa: E501
    try:
        yield
    except ImportError as error:
        lacking = {extra: missing(extra) for extra in extras}
        packages = [package for found in lacking.values() for package in found]
        module = (error.name or "").partition(".")[0]
        if module not in map(_module, packages):
            raise
        what, pronoun = ", ".join(packages), "it" if len(packages) == 1 else "them"
        remedy = pip_install(*(extra for extra in extras if lacking[extra]))
        text = f"{user} needs {what}; install {pronoun} with: {remedy}"
        raise MissingPackage(text, name=module) from None


def missing(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed."""
    return [package for package in PACKAGES[extra] if find_spec(_module(package)) is None]


def pip_install(*extras: str) -> str:
    """Return the command that installs these extras."""
    return f'pip install "slicegraph[{",".join(extras)}]"'


def _module(package: str) -> str:
    return _MODULES.get(package, package)


def import_ogb() -> None:
    """Import ogb without its check for a newer version.

    On import ogb looks up its newest version on PyPI, in a thread, if it can import ``outdated``,
    which looks up its own newest version in another thread.
    """
    kept = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        import_module("ogb")
    finally:
        del sys.modules["outdated"]
        if kept is not None:
            sys.modules["outdated"] = kept
