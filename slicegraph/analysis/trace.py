"""What goes through the mixing layers of a model, caught by forward hooks."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from slicegraph.nn.encoder_block import EncoderBlock
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.order import Order


@dataclass
class LayerTrace:
    """One mixing layer, and what went through it: packed rows, set ``b`` from ``ptr[b]`` on.

    Args:
        mixer: the layer.
        ptr: ``[B + 1]``, where each set begins; a token that the model adds is a row of its set.
        unordered, ordered: ``[T, H]``, what the sort was given and what it made of it: of
            ``"quantile_attn"`` the channels whose quantiles it reads. None if the layer does not
            sort.
        mixed: ``[T, H]``, what the layer mixed, before its output projection:
            :math:`\\mathrm{Sort}(V)`, :math:`\\mathrm{softmax}(QK^T / \\sqrt{D}) V` ...
        block: ``[T, C]``, the rows after the block that the layer is in, residuals and all.
    """

    mixer: Mixer
    ptr: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    unordered: Tensor | None = None
    ordered: Tensor | None = None
    mixed: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    block: Tensor = field(default_factory=lambda: torch.empty(0, 0))

    @property
    def order(self) -> Order | None:
        """How each channel is sorted, if it is; quantiles are read from the smallest value on."""
        if self.mixer.context is not None:
            return Order("ascending", self.mixer.channels)
        return self.mixer.order

    def rows(self, x: Tensor, number: int) -> Tensor:
        """``[N, C]``: those of one set."""
        return x[self.ptr[number] : self.ptr[number + 1]]

    def only(self, number: int) -> "LayerTrace":
        """The layer with the rows of one set, which keep those of no other in memory."""

        def own(x: Tensor | None) -> Any:
            return None if x is None else self.rows(x, number).clone()

        ptr = self.ptr[number : number + 2] - self.ptr[number]
        parts = (self.unordered, self.ordered, self.mixed, self.block)
        return LayerTrace(self.mixer, ptr, *map(own, parts))


def trace(model: torch.nn.Module, *inputs: Any, **options: Any) -> list[LayerTrace]:
    """Runs a model once, in evaluation mode, and returns what its mixing layers did, in order.

    Args:
        model: a model with :class:`~slicegraph.nn.EncoderBlock` layers.
        inputs, options: what the model is called with.

    Example:
        >>> model = VisionSliceformer.from_preset("vit-mnist", num_layers=2)
        >>> layers = trace(model, torch.randn(3, 1, 28, 28))
        >>> layers[1].mixed.shape, layers[1].ptr
        (torch.Size([591, 512]), tensor([  0, 197, 394, 591]))
    """
    blocks = [module for module in model.modules() if isinstance(module, EncoderBlock)]
    if not blocks:
        raise ValueError(f"trace: {type(model).__name__} has no mixing layers")
    layers = [LayerTrace(block.mixer) for block in blocks]
    with ExitStack() as hooks, _evaluating(model), torch.no_grad():
        for layer, block in zip(layers, blocks, strict=True):
            for handle in _hooks(layer, block):
                hooks.callback(handle.remove)
        model(*inputs, **options)
    return layers


def _hooks(layer: LayerTrace, block: EncoderBlock) -> Iterator[Any]:
    asked: list[Tensor | None] = []

    def ask_for_all_rows(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        asked[:] = [inputs[3] if len(inputs) > 3 else None]
        return (*inputs[:3], None, *inputs[4:])

    def keep_block(module: Any, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        layer.ptr, layer.block = inputs[1], output
        return output if asked[0] is None else output[asked[0]]

    def keep_mixed(module: Any, inputs: tuple[Tensor, ...]) -> None:
        layer.mixed = inputs[0]

    def keep_order(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        layer.unordered, layer.ordered = inputs[0], output

    def keep_what_is_read(module: Any, inputs: tuple[Tensor, Tensor]) -> None:
        assert layer.order is not None
        layer.unordered, layer.ordered = inputs[0], layer.order(inputs[0], ptr=inputs[1])

    yield block.register_forward_pre_hook(ask_for_all_rows)
    yield block.register_forward_hook(keep_block)
    yield block.mixer.out_proj.register_forward_pre_hook(keep_mixed)
    if block.mixer.order is not None:
        yield block.mixer.order.register_forward_hook(keep_order)
    if block.mixer.context is not None:
        yield block.mixer.context.register_forward_pre_hook(keep_what_is_read)


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
