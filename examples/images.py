"""Classify digits of 8 x 8 pixels with a vision Transformer that sorts, and with a ViT.

An image is cut into 16 patches of 2 x 2 pixels. The Sliceformers mix the patches by sorting every
channel, the ViT by attention. Everything else is the same, except that sorting has no queries and
keys. The data are 1,797 scanned digits of scikit-learn. Run: python examples/images.py
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from slicegraph.models import VisionSliceformer, VisionSliceformerConfig

parser = argparse.ArgumentParser(description="classify digits by sorting and by attention")
parser.add_argument("--epochs", type=int, default=30, help="training epochs (default: 30)")
parser.add_argument("--images", type=int, default=1797, help="number of images (default: 1797)")
arguments = parser.parse_args()
if arguments.epochs < 1:
    parser.error(f"--epochs {arguments.epochs}, expected at least 1")
if arguments.images < 10:
    parser.error(f"--images {arguments.images}, expected at least 10")
BATCH_SIZE, SHADES = 64, " .:-=+*#@"
MODELS = {
    "Sliceformer, ascending": {"mixer": "sort", "order": "ascending"},
    "Sliceformer, interleave": {"mixer": "sort", "order": "interleave"},
    "Sliceformer, max_exchange": {"mixer": "sort", "order": "max_exchange"},
    "ViT": {"mixer": "qkv"},
}
torch.set_num_threads(1)

digits = load_digits()
shuffled = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
shuffled = shuffled[: arguments.images]
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)[shuffled] / 8 - 1
labels = torch.tensor(digits.target)[shuffled]
count = len(images) // 5
train_images, train_labels, test_images, test_labels = (
    images[count:],
    labels[count:],
    images[:count],
    labels[:count],
)


def new_model(**formula: str) -> VisionSliceformer:
    torch.manual_seed(0)
    config = VisionSliceformerConfig(
        num_layers=3,
        channels=64,
        ffn_channels=128,
        heads=4,
        image_size=8,
        patch_size=2,
        image_channels=1,
        num_classes=10,
        **formula,
    )
    return VisionSliceformer(config)


def train(model: VisionSliceformer) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    steps = arguments.epochs * -(-len(train_images) // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps)
    for _ in range(arguments.epochs):
        for rows in torch.randperm(len(train_images)).split(BATCH_SIZE):
            optimizer.zero_grad()
            scores = model(train_images[rows])
            functional.cross_entropy(scores, train_labels[rows]).backward()
            optimizer.step()
            schedule.step()


def picture(image: Tensor) -> list[str]:
    shades = ((image[0] + 1) / 2 * (len(SHADES) - 1)).round().int().tolist()
    return ["".join(SHADES[shade] * 2 for shade in row) for row in shades]


print(f"{len(train_images):,} images to train on, {count} to test\n")
print(f"{'model':26} parameters  accuracy  seconds")
answers = {}
for name, formula in MODELS.items():
    model = new_model(**formula)
    start = time.perf_counter()
    train(model)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        answers[name] = model.eval()(test_images).argmax(1)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    right = (answers[name] == test_labels).float().mean()
    print(f"{name:26} {parameters:10,} {right:9.1%} {seconds:8.1f}", flush=True)

first, shown = next(iter(answers.values())), slice(0, 4)
print(f"\nThe first reads {first[shown].tolist()}, and there is {test_labels[shown].tolist()}:")
for lines in zip(*map(picture, test_images[shown]), strict=True):
    print("   ".join(lines).rstrip())
