"""Learn ListOps by sorting and by attention, and time both on long sequences.

ListOps are expressions such as [MAX 4 3 [MIN 2 3 ] 1 0 ], whose value is a digit. The models have
the same size except for the queries and keys of attention. First both learn short expressions, in
the same number of steps. Then a training step is timed at the lengths of the Long Range Arena, up
to 2,000 tokens: the time of sorting grows like N log N, that of attention like N squared.
Run: python examples/long_range.py
"""

import argparse
import time

import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.models import SequenceSliceformer, SequenceSliceformerConfig
from slicegraph.tasks.generated import TOKENS, decode, generate_listops
from slicegraph.tasks.store import Sequences, pad

SHORT, TEST, BATCH_SIZE, TIMED_STEPS = 40, 1000, 64, 4
parser = argparse.ArgumentParser(description="learn ListOps by sorting and by attention")
parser.add_argument("--epochs", type=int, default=1, help="training epochs (default: 1)")
parser.add_argument(
    "--expressions", type=int, default=25600, help="training expressions (default: 25600)"
)
parser.add_argument(
    "--lengths", type=int, nargs="+", default=[500, 1000, 2000], help="tokens of the timed steps"
)
arguments = parser.parse_args()
if min(arguments.epochs, *arguments.lengths) < 1:
    parser.error(f"--epochs {arguments.epochs} --lengths {arguments.lengths}, expected at least 1")
if arguments.expressions < BATCH_SIZE:
    parser.error(f"--expressions {arguments.expressions}, expected at least {BATCH_SIZE}, a batch")
FORMULAS = {
    "sort": {"mixer": "sort", "order": "interleave"},
    "attention": {"mixer": "qkv"},
}
torch.set_num_threads(1)


def new_model(max_length: int, **formula: str) -> SequenceSliceformer:
    torch.manual_seed(0)
    config = SequenceSliceformerConfig(
        num_layers=2,
        channels=64,
        ffn_channels=128,
        heads=4,
        vocabulary=len(TOKENS),
        max_length=max_length,
        num_classes=10,
        **formula,
    )
    return SequenceSliceformer(config)


def tensors(lists: Sequences, first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
    x, mask, y = pad(lists, range(first, last))
    return torch.from_numpy(x).long(), torch.from_numpy(mask), torch.from_numpy(y).long()


def train(
    model: SequenceSliceformer, lists: Sequences, batch_size: int, lr: float, epochs: int = 1
) -> float:
    """Train for some passes over the lists; return the seconds per step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    firsts = epochs * list(range(0, len(lists) - batch_size + 1, batch_size))
    steps = len(firsts)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
    start = time.perf_counter()
    for first in firsts:
        x, mask, y = tensors(lists, first, first + batch_size)
        optimizer.zero_grad()
        functional.cross_entropy(model(x, mask), y).backward()
        optimizer.step()
        schedule.step()
    return (time.perf_counter() - start) / steps


short = generate_listops(arguments.expressions + TEST, min_length=2, max_length=SHORT, max_depth=3)
learnt = Sequences(short.elements, short.ptr[TEST:], short.labels[TEST:])
x, mask, y = tensors(short, 0, TEST)
print(f"{len(learnt):,} expressions of up to {SHORT - 1} tokens, such as")
print("".join(f"  {decode(text)} = {value}\n" for text, value in zip(short, y[:2], strict=False)))
for name, formula in FORMULAS.items():
    model = new_model(SHORT, **formula)
    train(model, learnt, BATCH_SIZE, lr=3e-3, epochs=arguments.epochs)
    with torch.no_grad():
        right = (model.eval()(x, mask).argmax(1) == y).float().mean()
    print(f"{name:10} {right:6.1%} of {TEST:,} new ones are right", flush=True)
print(f"always {int(y.mode().values)}   {(y == y.mode().values).float().mean():6.1%}\n")

print("tokens  sort: ms a step  attention  times")
for length in arguments.lengths:
    lists = generate_listops(4 * TIMED_STEPS, min_length=length * 3 // 4, max_length=length + 1)
    sort, attention = (
        train(new_model(length, **formula), lists, batch_size=4, lr=1e-3)
        for formula in FORMULAS.values()
    )
    print(
        f"{length:6,} {1000 * sort:16,.0f} {1000 * attention:10,.0f} {attention / sort:6.1f}",
        flush=True,
    )
