"""Classify surfaces from points on them, in any order and any orientation, with SliceSort.

A cloud has 64 to 256 noisy points of a sphere, torus, box, cone, cylinder or saddle, rotated at
random, as PyG `Data(pos=...)`. The first layer sorts every channel of the points: row j of its
output has the j-th smallest value of each channel, for any order of the points. A second layer
refines these rows; SliceSortAggregation reads out quantiles. Run: python examples/point_cloud.py
"""

import argparse
import math
import time

import torch
from torch import Tensor
from torch.nn import GELU, LayerNorm, LazyLinear, Linear, Sequential, functional
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from slicegraph.nn import SliceSort, SliceSortAggregation

parser = argparse.ArgumentParser(description="classify surfaces from points on them")
parser.add_argument("--clouds", type=int, default=4000, help="training clouds (default: 4000)")
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


def sphere(n: int) -> Tensor:
    return functional.normalize(torch.randn(n, 3), dim=1)


def torus(n: int) -> Tensor:
    tube, angle = uniform(0.25, 0.45), uniform(0, 2 * math.pi, n)
    return ring(1 + tube * angle.cos(), tube * angle.sin())


def box(n: int) -> Tensor:
    points, side = uniform(-1, 1, n, 3), torch.randint(3, (n,))
    points[torch.arange(n), side] = points[torch.arange(n), side].sign()
    return points * uniform(0.7, 1.3, 3)


def cone(n: int) -> Tensor:
    radius, height = uniform(0, 1, n).sqrt(), uniform(1.2, 2.2)
    on_base = torch.rand(n) < 0.3
    return ring(radius, torch.where(on_base, 0.0, height * (1 - radius)))


def cylinder(n: int) -> Tensor:
    height, level = uniform(0.8, 1.6), uniform(-1, 1, n)
    on_lid = torch.rand(n) < 0.3
    radius = torch.where(on_lid, uniform(0, 1, n).sqrt(), 1.0)
    return ring(radius, height * torch.where(on_lid, level.sign(), level))


def saddle(n: int) -> Tensor:
    x, y = uniform(-1, 1, 2, n)
    return torch.stack([x, y, uniform(0.6, 1.0) * (x * x - y * y)], dim=1)


SURFACES = (sphere, torus, box, cone, cylinder, saddle)


def cloud(kind: int) -> Data:
    pos = SURFACES[kind](int(torch.randint(64, 257, ())))
    pos = (pos - pos.mean(0)) / pos.norm(dim=1).max()
    pos = pos @ torch.linalg.qr(torch.randn(3, 3)).Q + NOISE * torch.randn_like(pos)
    return Data(pos=pos, y=torch.tensor([kind]))


class PointNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = Sequential(Linear(4, CHANNELS), GELU(), Linear(CHANNELS, CHANNELS), GELU())
        self.first, self.read = SliceSort(CHANNELS), SliceSortAggregation(k=9)
        self.norm, self.second = LayerNorm(CHANNELS), SliceSort(CHANNELS, order="interleave")
        self.head = Sequential(LazyLinear(CHANNELS), GELU(), Linear(CHANNELS, len(SURFACES)))

    def forward(self, data: Data) -> Tensor:
        x = torch.cat([data.pos, data.pos.norm(dim=1, keepdim=True)], dim=1)
        x = self.first(self.lift(x), batch=data.batch)
        x = x + functional.gelu(self.second(self.norm(x), batch=data.batch))
        return self.head(self.read(x, ptr=data.ptr, dim=0))


start = time.perf_counter()
clouds = [cloud(i % len(SURFACES)) for i in range(600 + arguments.clouds)]
test_batch = Batch.from_data_list(clouds[:600])
loader = DataLoader(clouds[600:], batch_size=32, shuffle=True)
model = PointNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, arguments.epochs * len(loader))
for epoch in range(1, arguments.epochs + 1):
    for batch in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        right = (model(test_batch).argmax(1) == test_batch.y).float().mean()
    print(f"epoch {epoch:2}: {right:.1%} of 600 new clouds, {time.perf_counter() - start:.0f} s")
shuffled = [Data(pos=data.pos[torch.randperm(data.num_nodes)]) for data in clouds[:600]]
with torch.no_grad():
    same = torch.allclose(model(test_batch), model(Batch.from_data_list(shuffled)), atol=1e-3)
print("Same answers with the points in another order:", same)
