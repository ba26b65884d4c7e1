"""SMILES text to an RDKit molecule, quietly, or an error that says what is wrong with it."""

import os
import re
import threading
from functools import lru_cache
from typing import cast

from rdkit import rdBase
from rdkit.Chem import Mol, MolFromSmiles, SanitizeMol
from rdkit.rdBase import DisableLog, EnableLog, LogStatus

MOST_ATOMS = 65_535
"""Atoms are numbered in 16 bits."""

_TEXT_SHOWN, _REASON_SHOWN = 80, 200
_TIME = re.compile(r"^\[\d\d:\d\d:\d\d\] ?", re.MULTILINE)
_SYNTAX = re.compile(r"SMILES Parse Error: (.*?)(?: while parsing:| for input:|$)")
_PLACE = re.compile(r"check for mistakes around position \d+")
_ENABLED = re.compile(r"(\S+):enabled")


def lock_for_threads() -> threading.Lock:
    """A lock that is free in a forked process, whichever thread of its parent had it."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


# RDKit has one log for the whole process: two threads that silence it must not overlap.
_LOG = lock_for_threads()


class SmilesError(ValueError):
    """A text that is no molecule, and why.

    Attributes:
        smiles: the whole text.
        reason: RDKit's own, such as ``"unclosed ring"``.
    """

    def __init__(self, smiles: str, reason: str) -> None:
        super().__init__(smiles, reason)
        self.smiles = smiles
        self.reason = reason

    def __str__(self) -> str:
        return f"featurize: cannot read {_shortened(self.smiles, _TEXT_SHOWN)!r} ({self.reason})"


def parse_smiles(smiles: str) -> Mol:
    """The sanitized molecule of a text. RDKit prints nothing, whatever it has to say.

    Blanks around the text do not count. What follows a blank within it is an extension (CXSMILES,
    ``|...|``) or a name, as RDKit has it.
    """
    if not isinstance(smiles, str):
        raise TypeError(f"featurize: smiles is {smiles!r}, not a str")
    try:
        mol = _parsed(smiles)
    except UnicodeEncodeError as error:
        raise SmilesError(smiles, f"not Unicode text: {error.reason}") from None
    if mol is None:
        raise SmilesError(smiles, _reason(smiles))
    if not 0 < mol.GetNumAtoms() <= MOST_ATOMS:
        raise SmilesError(smiles, _wrong_size(mol.GetNumAtoms()))
    return mol


def _parsed(smiles: str) -> Mol | None:
    # As within `rdBase.BlockLogs()`, which takes a tenth of the time of parsing itself.
    with _LOG:
        enabled = _enabled(LogStatus())
        DisableLog("rdApp.*")
        try:
            return MolFromSmiles(smiles)
        finally:
            for log in enabled:
                EnableLog(log)


@lru_cache
def _enabled(status: str) -> list[str]:
    return _ENABLED.findall(status)


def _wrong_size(num_atoms: int) -> str:
    return f"{num_atoms:,} atoms, more than {MOST_ATOMS:,}" if num_atoms else "no atoms"


def _reason(smiles: str) -> str:
    """Why RDKit does not read the text, which is read once more to hear it."""
    # RDKit quotes part of the text, and may cut it within a character of several bytes.
    text = smiles.encode("ascii", "replace").decode()
    with _LOG, rdBase.BlockLogs():
        said = _logged(text) if hasattr(rdBase, "CaptureErrorLog") else _raised(text)
    lines = [line.strip() for line in _TIME.sub("", said).splitlines() if line.strip("* ")]
    if not lines:
        return "its extension is no CXSMILES" if "|" in smiles else "RDKit gives no reason"
    if syntax := _SYNTAX.match(lines[0]):
        place = _PLACE.search(said)
        return f"{syntax[1]}, {place[0]}" if place else syntax[1]
    broken = lines[0].endswith("Violation")  # an assertion in RDKit, whose text is the next line
    return _shortened(": ".join(lines[: 1 + broken]), _REASON_SHOWN)


def _logged(smiles: str) -> str:
    with rdBase.CaptureErrorLog() as log:
        MolFromSmiles(smiles)
    return str(log.messages)


def _raised(smiles: str) -> str:
    """As `_logged` for an RDKit that cannot capture its log: reasons of syntax are lost."""
    mol = cast("Mol | None", MolFromSmiles(smiles, sanitize=False))
    if mol is None:
        return "syntax error"
    try:
        SanitizeMol(mol)
    except Exception as error:
        return str(error)
    return ""


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
