"""Classify surfaces, or the meshes of ModelNet, from points on them in any order, with SliceSort.

A cloud has 64 to 256 noisy points of a sphere, torus, box, cone, cylinder or saddle, rotated at
random; with `--name ModelNet10`, 256 points of a mesh. The first layer sorts every channel: row j
has the j-th smallest value of each channel, for any order of the points. A second layer refines
these rows; SliceSortAggregation reads out quantiles. Run: python examples/point_cloud.py
"""

import argparse
import math
import sys

import torch
from torch import Tensor
from torch.nn import GELU, LayerNorm, LazyLinear, Linear, Sequential, functional
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import ModelNet
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose, NormalizeScale, SamplePoints

from slicegraph.nn import SliceSort, SliceSortAggregation

CLASSES = {"surfaces": 6, "ModelNet10": 10, "ModelNet40": 40}
parser = argparse.ArgumentParser(description="classify surfaces from points on them")
parser.add_argument("--name", choices=CLASSES, default="surfaces", help="default: surfaces")
parser.add_argument("--root", default="dataset", help="folder of data sets (default: dataset)")
parser.add_argument("--clouds", type=int, default=4000, help="training surfaces (default: 4000)")
parser.add_argument("--epochs", type=int, default=12, help="training epochs (default: 12)")
parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
arguments = parser.parse_args()
if min(arguments.clouds, arguments.epochs) < 1:
    parser.error(f"--clouds {arguments.clouds} --epochs {arguments.epochs}, expected at least 1")
CHANNELS, NOISE = 64, 0.02
torch.manual_seed(arguments.seed)
torch.set_num_threads(1)


def uniform(low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape)


def ring(radius: Tensor, height: Tensor) -> Tensor:
    angle = uniform(0, 2 * math.pi, len(radius))
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], dim=1)


def cloud(kind: int) -> Data:
    n = int(torch.randint(64, 257, ()))
    x, y, radius = uniform(-1, 1, n), uniform(-1, 1, n), uniform(0, 1, n).sqrt()
    tube, angle, height = uniform(0.25, 0.45), math.pi * x, uniform(0.8, 1.6)
    flat = torch.rand(n) < 0.3  # on the base of the cone, or on a lid of the cylinder
    cube, side = uniform(-1, 1, n, 3), torch.arange(3) == torch.randint(3, (n, 1))
    pos = (
        functional.normalize(torch.randn(n, 3), dim=1),  # sphere
        ring(1 + tube * angle.cos(), tube * angle.sin()),  # torus
        torch.where(side, cube.sign(), cube) * uniform(0.7, 1.3, 3),  # box
        ring(radius, torch.where(flat, 0.0, (height + 0.5) * (1 - radius))),  # cone
        ring(torch.where(flat, radius, 1.0), height * torch.where(flat, y.sign(), y)),  # cylinder
        torch.stack([x, y, uniform(0.6, 1.0) * (x * x - y * y)], dim=1),  # saddle
    )[kind]
    pos = (pos - pos.mean(0)) / pos.norm(dim=1).max()
    pos = pos @ torch.linalg.qr(torch.randn(3, 3)).Q + NOISE * torch.randn_like(pos)
    return Data(pos=pos, y=torch.tensor([kind]))


def model_net(train: bool) -> ModelNet:
    name, kind = arguments.name, arguments.name.removeprefix("ModelNet")
    root = f"{arguments.root}/{name}"
    try:
        return ModelNet(root, kind, train, Compose([SamplePoints(256), NormalizeScale()]))
    except OSError as error:
        remedy = f"connect to the network, or put the folders of {ModelNet.urls[kind]} there"
        sys.exit(f"{name} is not in {root}/raw and cannot be downloaded ({error}); {remedy}")


class PointNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = Sequential(Linear(4, CHANNELS), GELU(), Linear(CHANNELS, CHANNELS), GELU())
        self.first, self.read = SliceSort(CHANNELS), SliceSortAggregation(k=9)
        self.norm, self.second = LayerNorm(CHANNELS), SliceSort(CHANNELS, order="interleave")
        self.head = Sequential(LazyLinear(CHANNELS), GELU(), LazyLinear(CLASSES[arguments.name]))

    def forward(self, data: Data) -> Tensor:
        x = torch.cat([data.pos, data.pos.norm(dim=1, keepdim=True)], dim=1)
        x = self.first(self.lift(x), batch=data.batch)
        x = x + functional.gelu(self.second(self.norm(x), batch=data.batch))
        return self.head(self.read(x, ptr=data.ptr, dim=0))


@torch.no_grad()
def accuracy(loader: DataLoader) -> float:
    return float(torch.cat([model(batch).argmax(1) == batch.y for batch in loader]).float().mean())


if arguments.name == "surfaces":
    clouds = [cloud(i % CLASSES["surfaces"]) for i in range(1200 + arguments.clouds)]
    parts = clouds[1200:], clouds[600:1200], clouds[:600]
else:
    meshes = model_net(train=True).shuffle()
    parts = meshes[0.1:], meshes[:0.1], model_net(train=False)
train, valid, test = (DataLoader(part, 32, shuffle=part is parts[0]) for part in parts)
model, best = PointNet(), (-1.0, 0.0, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, arguments.epochs * len(train))
for epoch in range(1, arguments.epochs + 1):
    for batch in train:
        optimizer.zero_grad()
        functional.cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
        schedule.step()
    if (right := accuracy(valid)) > best[0]:
        best = right, accuracy(test), epoch
    print(f"epoch {epoch}: valid {right:.1%}", flush=True)
batch = next(iter(test))
shuffled = [Data(pos=data.pos[torch.randperm(len(data.pos))]) for data in batch.to_data_list()]
same = torch.allclose(model(batch), model(Batch.from_data_list(shuffled)), atol=1e-3)
print("Same answers with the points in another order:", same)
result = f"accuracy valid {best[0]:.1%}, test {best[1]:.1%}"
print(f"{arguments.name}: {result} (epoch {best[2]} of {arguments.epochs})")
