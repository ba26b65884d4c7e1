"""Count the kernels that a training step launches on a GPU, without one: `python -m
benchmarks.launches`.

The step runs on the CPU by the code of a GPU (`slicegraph.ops.operator.as_on_gpu`), and every
operator of torch counts as one launch, unless it only makes a view or allocates memory. An operator
of ours counts as the launches of its Triton kernel, or as the operators of its reference if it has
none. Torch's attention and dropout are one kernel forward and one backward, as on CUDA. A layer is
the difference between models of different depth, divided by the number of layers; the step is the
forward pass, the loss and the backward pass, without the optimizer.
"""

import argparse
import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported: there may be no GPU

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch

from benchmarks.markdown import row
from slicegraph.cli.gpu_check import molecules
from slicegraph.models import GraphSliceformer
from slicegraph.models.graph import preset
from slicegraph.ops import reference, triton
from slicegraph.ops.operator import as_on_gpu, use_backend

PRESETS = ("sliceformer-base", "slicegraph-base", "graphormer-base")
DEPTHS = (2, 12)
# Operators of torch that launch nothing, besides those that return a view.
FREE = {"detach", "_unsafe_view", "_reshape_alias", "lift_fresh", "is_same_size", "alias"}
FREE |= {"promote_types", "randint"}  # random integers are only seeds, drawn on the host
FREE |= {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_data"}


class Launches(TorchDispatchMode):
    """Counts launches by the name of the operator, as long as it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2].removesuffix("_kernel")
        ours = func.namespace == "slicegraph"
        if ours and name not in triton.DTYPES:
            with self:  # the operators of torch that run on CUDA instead
                return getattr(reference, name)(*args)
        views = any(r.alias_info and not r.alias_info.is_write for r in func._schema.returns)
        if ours or not (views or name in FREE):
            self.counts[name] += 1
            # The gradients of the quantiles' weights and of a norm are summed over the programs.
            self.counts[name] += name == "dense_mix_backward" and args[3] is not None
            self.counts[name] += name == "dropout_add_norm_backward"
        if ours:  # not in Triton's interpreter
            return getattr(reference, name)(*args)
        return func(*args, **(kwargs or {}))


class _OneKernel(Function):
    """A function of torch that is one kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, launches: Launches, name: str, run: Any, *tensors: Any) -> Tensor:
        ctx.launches, ctx.name, ctx.run = launches, name, run
        ctx.save_for_backward(*tensors)
        launches.counts[name] += 1
        with _paused():
            return run(*tensors)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> Any:
        ctx.launches.counts[f"{ctx.name}_backward"] += 1
        tensors = [None if x is None else x.detach() for x in ctx.saved_tensors]
        needed = [x for x, n in zip(tensors, ctx.needs_input_grad[3:], strict=True) if n]
        with _paused(), torch.enable_grad():
            for x in needed:
                x.requires_grad_()
            found = iter(torch.autograd.grad(ctx.run(*tensors), needed, grad_out))
        return None, None, None, *(next(found) if n else None for n in ctx.needs_input_grad[3:])


@contextlib.contextmanager
def _paused() -> Iterator[None]:
    with torch.utils._python_dispatch._disable_current_modes():
        yield


class AsOnCuda(TorchFunctionMode):
    """Replaces the functions that torch computes by one kernel on CUDA and by several on a CPU."""

    def __init__(self, launches: Launches) -> None:
        super().__init__()
        self.launches = launches

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.dropout:
            x, p, training = (*args, 0.5, True)[:3]
            return torch.native_dropout(x, kwargs.get("p", p), kwargs.get("training", training))[0]
        if func is functional.scaled_dot_product_attention:
            q, k, v, mask = (*args, None)[:4]

            def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
                return func(q, k, v, mask)

            return _OneKernel.apply(self.launches, "attention", run, q, k, v, mask)
        return func(*args, **kwargs)


def step(name: str, layers: int, batch: Batch, fused: bool, autocast: bool = False) -> Counter[str]:
    """The launches of the forward and the backward pass of a preset, narrow and `layers` deep;
    `fused` says whether the mix of a layer is one Triton kernel."""
    narrow = {"channels": 32, "ffn_channels": 32, "heads": 4, "num_layers": layers}
    model = GraphSliceformer(preset(name, **narrow)).train()
    if model.ring_nodes is not None:  # they are found on the CPU, before
        batch = molecules(batch.num_graphs, model.ring_nodes)
    launches = Launches()
    precision = torch.autocast("cpu", torch.bfloat16, enabled=autocast)
    backend = use_backend("triton" if fused else "reference")
    with as_on_gpu(), backend, launches, AsOnCuda(launches), precision:
        loss = functional.l1_loss(model(batch).float(), torch.zeros(batch.num_graphs, 1))
        loss.backward()
    return launches.counts


def per_layer(name: str, batch: Batch, fused: bool, autocast: bool = False) -> tuple[float, int]:
    """The launches of one layer, forward and backward, and of the step of 12 layers."""
    few, many = (step(name, layers, batch, fused, autocast).total() for layers in DEPTHS)
    return (many - few) / (DEPTHS[1] - DEPTHS[0]), many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--molecules", type=int, default=32, help="of a batch (default: 32)")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 by autocast")
    parser.add_argument("--fused", action="store_true", help="with --operators: by the kernel")
    parser.add_argument("--operators", metavar="PRESET", help="list the operators of one layer")
    args = parser.parse_args()
    batch = molecules(args.molecules)
    if args.operators:
        few, many = (step(args.operators, n, batch, args.fused, args.bf16) for n in DEPTHS)
        layers = DEPTHS[1] - DEPTHS[0]
        print(row("operator", "launches a layer"), row("---", "---"), sep="\n")
        for name in sorted(many, key=lambda name: few[name] - many[name]):
            if many[name] > few[name]:
                print(row(name, f"{(many[name] - few[name]) / layers:g}"))
        return
    print(row("preset", "mix", "a layer", "a step of 12 layers"), row(*["---"] * 4), sep="\n")
    for name in PRESETS:
        for fused in (False, True):
            layer, total = per_layer(name, batch, fused, args.bf16)
            kind = "one kernel" if fused else "operators of torch"
            print(row(name, kind, f"{layer:g}", f"{total:,}"), flush=True)


if __name__ == "__main__":
    main()
