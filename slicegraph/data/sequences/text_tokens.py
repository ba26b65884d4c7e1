"""A text as the tokens that a model reads: the numbers of the words that it knows, or bytes."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

VOCABULARY, PADDING, UNKNOWN = 16_000, "<pad>", "<unk>"
BYTES = 256
EMPTY = b" "
"""What stands for a text without bytes, as a model reads no empty sequence."""
_WORD, _TAG = re.compile(r"[a-z0-9']+"), re.compile(r"<[^>]*>")


def text_reader(words: Sequence[str], tokens: int | None) -> Callable[[str], np.ndarray]:
    """What reads whole texts for a model; raises for a model that reads none.

    Args:
        words: those that the model knows, in the order of their numbers; none for bytes.
        tokens: how many the model has.
    """
    if words:
        return partial(encode, number=word_numbers(words))
    if tokens == BYTES:
        return byte_tokens
    raise ValueError(
        "predict: the model takes no text: it was saved without words, and "
        + ("its elements are numbers" if tokens is None else f"its {tokens} tokens are no bytes")
    )


def vocabulary(texts: Iterable[str]) -> list[str]:
    """The most frequent words, among equals by the alphabet, after those for padding and others."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(split_words(text))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return [PADDING, UNKNOWN, *ranked[: VOCABULARY - 2]]


def word_numbers(words: Sequence[str]) -> dict[str, int]:
    """The number of each word; raises if there is none for a word that is not among them."""
    if UNKNOWN not in words:
        raise ValueError(f"words = {words!r:.60} lack {UNKNOWN!r}, which stands for all others")
    return {word: place for place, word in enumerate(words)}


def encode(text: str, number: dict[str, int]) -> np.ndarray:
    """The numbers of the words of a text; one that has none is one unknown word."""
    unknown = number[UNKNOWN]
    found = [number.get(word, unknown) for word in split_words(text)]
    return np.array(found or [unknown], np.uint16)


def split_words(text: str) -> list[str]:
    """Small letters, digits and apostrophes; marks of HTML are left out."""
    return _WORD.findall(_TAG.sub(" ", text.lower()))


def byte_tokens(text: str) -> np.ndarray:
    """The bytes of a text in UTF-8; one that has none is a space."""
    return np.frombuffer(text.encode() or EMPTY, np.uint8)
