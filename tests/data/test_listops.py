"""ListOps: the published grammar and settings, and every label."""

import itertools
import random
import statistics

import numpy as np
import pytest

from slicegraph.data.sequences.listops import END, FIRST_OPERATOR, TOKENS, decode, generate_listops

SMALL = {"min_length": 2, "max_length": 60}


@pytest.fixture(scope="module")
def listops():
    return generate_listops(300, seed=1)


def depths(tokens: np.ndarray) -> list[int]:
    """How many brackets are open around and at each token."""
    opens = (tokens >= FIRST_OPERATOR) & (tokens != END)
    return np.cumsum(opens.astype(int) - np.concatenate([[0], tokens[:-1] == END])).tolist()


def value_of(words: list[str]) -> int:
    """Reads an expression from the left, removing what it has understood."""
    word = words.pop(0)
    if word.isdigit():
        return int(word)
    arguments = []
    while words[0] != "]":
        arguments.append(value_of(words))
    words.pop(0)
    assert 2 <= len(arguments) <= 10
    functions = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda values: int(statistics.median(values)),
        "[SM": lambda values: sum(values) % 10,
    }
    return functions[word](arguments)


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["published", "small"])
def test_every_label_is_the_value_of_its_expression(settings):
    drawn = generate_listops(300, seed=2, **settings)
    for tokens, label in zip(drawn, drawn.labels, strict=True):
        words = decode(tokens).split()
        assert value_of(words) == label
        assert words == []


def test_lengths_are_between_500_and_2000(listops):
    assert listops.lengths.min() > 500
    assert listops.lengths.max() < 2000


def grow(rng: random.Random, around: int = 0) -> tuple[int, list[int]]:
    """The published grammar: a value, and how many brackets are open at each of the tokens."""
    if around == 9 or rng.random() > 0.25:
        return rng.randrange(10), [around]
    arguments = [grow(rng, around + 1) for _ in range(rng.randint(2, 10))]
    values, inside = zip(*arguments, strict=True)
    value = rng.choice([min(values), max(values), int(statistics.median(values)), sum(values) % 10])
    return value, [around + 1, *itertools.chain(*inside), around + 1]


@pytest.fixture(scope="module")
def grown() -> list[tuple[int, list[int]]]:
    """800 expressions of the lengths that are kept."""
    rng = random.Random(6)
    drawn = (grow(rng) for _ in itertools.count())
    kept = (one for one in drawn if 500 < len(one[1]) < 2000)
    return list(itertools.islice(kept, 800))


def homogeneity(one: np.ndarray, other: np.ndarray) -> float:
    """Chi-square of two samples having one law, in standard deviations above its mean."""
    pooled = np.concatenate([one, other])
    # At most ten bins of about as many; values that are frequent have one for themselves.
    edges = np.unique(np.quantile(pooled, np.arange(10) / 10, method="nearest"))
    a, b = (np.bincount(np.searchsorted(edges, x, "right"), minlength=11)[1:] for x in (one, other))
    ratio = np.sqrt(len(other) / len(one))
    statistic = ((a * ratio - b / ratio) ** 2 / np.maximum(a + b, 1)).sum()
    freedom = max(len(edges) - 1, 1)
    return (statistic - freedom) / np.sqrt(2 * freedom)


MEASURES = {
    "value": lambda value, nested: value,
    "length": lambda value, nested: len(nested),
    "depth": lambda value, nested: max(nested),
    "mean_depth": lambda value, nested: sum(nested) / len(nested),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_expressions_have_the_law_of_the_published_grammar(measure, grown):
    drawn = generate_listops(3000, seed=7)
    ours = [
        measure(int(value), depths(one)) for one, value in zip(drawn, drawn.labels, strict=True)
    ]
    assert homogeneity(np.array(ours), np.array([measure(*one) for one in grown])) < 6


def test_operations_are_nested_at_most_nine_deep_around_digits(listops):
    deepest = [max(depths(tokens)) for tokens in listops]
    assert max(deepest) == 9
    assert max(max(depths(t)) for t in generate_listops(50, max_depth=4, **SMALL)) == 3


def test_digits_and_operators_are_uniform(listops):
    counts = np.bincount(listops.elements, minlength=len(TOKENS))
    assert counts[0] == 0
    for group in (counts[1:11], counts[FIRST_OPERATOR:END]):
        # Five standard deviations of a fair draw.
        share = 1 / len(group)
        spread = 5 * np.sqrt(group.sum() * share * (1 - share))
        assert np.abs(group - group.sum() * share).max() < spread
    assert counts[END] == counts[FIRST_OPERATOR:END].sum()


def test_an_argument_is_an_operation_with_the_published_probability():
    # Without a bound on lengths nothing is selected, but for the roots that are digits.
    drawn = generate_listops(2000, min_length=1, max_length=10**9, max_depth=3)
    tokens = drawn.elements
    inside = np.concatenate([depths(one) for one in drawn])
    operators = (tokens >= FIRST_OPERATOR) & (tokens != END)
    below_root = int((operators & (inside == 2)).sum())
    digits = int(((tokens < FIRST_OPERATOR) & (inside == 1)).sum())
    assert below_root / (below_root + digits) == pytest.approx(0.25, abs=0.02)


def test_no_expression_is_drawn_twice():
    drawn = generate_listops(3000, min_length=2, max_length=6)
    assert len({one.tobytes() for one in drawn}) == 3000


def test_a_seed_gives_the_same_expressions_and_fewer_are_the_first_of_more():
    few, many = generate_listops(20, seed=3, **SMALL), generate_listops(5000, seed=3, **SMALL)
    assert np.array_equal(few.elements, many.elements[: len(few.elements)])
    assert np.array_equal(few.labels, many.labels[:20])
    other = generate_listops(20, seed=4, **SMALL)
    assert not np.array_equal(few.elements, other.elements[: len(few.elements)])


def test_lengths_that_do_not_occur_are_named():
    with pytest.raises(ValueError, match="gave 0 expressions of 501 to 1999 tokens"):
        generate_listops(1, max_depth=2)
