"""Trace the mixing layers of a model and measure the singular spectra of their outputs."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slicegraph.nn.block import EncoderBlock
from slicegraph.nn.mixer import Mixer
from slicegraph.nn.packed import PaddedSets
from slicegraph.nn.slice_sort import Order
from slicegraph.ops import column_sort

_MAX_ELEMENTS = 1 << 14  # in a batch: the outputs of all layers of a model are in memory at once


@dataclass(frozen=True)
class Samples:
    """Samples of a data set, read in small batches."""

    read: Callable[[np.ndarray], tuple[Any, ...]]  # arguments of the model for these samples
    sizes: np.ndarray  # number of elements of each sample: atoms, tokens, numbers, pixels
    name: str  # of the data
    note: str = ""  # a remark to print

    def batches(self) -> Iterator[tuple[Any, ...]]:
        """Yield the arguments of the model for a few samples at a time."""
        each = max(1, _MAX_ELEMENTS // max(1, int(self.sizes.max())))
        numbers = np.arange(len(self.sizes))
        for first in range(0, len(numbers), each):
            yield self.read(numbers[first : first + each])


def spaced_positions(
    splits: dict[str, np.ndarray], split: str, data: str, count: int
) -> np.ndarray:
    """Return up to ``count`` positions of a split, evenly spaced, as files are often sorted."""
    if split not in splits:
        raise ValueError(f"{data} has no split {split!r}, expected {', '.join(splits)}")
    positions = splits[split]
    if not len(positions):
        raise ValueError(f"split {split!r} of {data} has no samples")
    count = min(count, len(positions))
    return positions[np.arange(count) * len(positions) // count]


@dataclass(frozen=True)
class LayerTrace:
    """One mixing layer and the packed rows of the sets that went through it."""

    mixer: Mixer
    ptr: Tensor  # [B + 1], where each set begins; a token that the model adds is a row of its set
    mixed: Tensor  # [T, H], rows before the output projection: Sort(V), softmax(QK^T / sqrt(D)) V
    block: Tensor  # [T, C], rows after the block of the layer, with its residuals
    unordered: Tensor | None = None  # [T, H], input of the sort, if the layer sorts
    ordered: Tensor | None = None  # [T, H], the same channels sorted, or as quantiles are read
    keys: Tensor | None = None  # [T, slices], the keys of the slices, if the layer has any

    @property
    def order(self) -> Order | None:
        """How each channel is sorted, or None; channels are sorted upwards to read quantiles."""
        quantiles = self.mixer.context is not None
        return Order("ascending", self.mixer.channels) if quantiles else self.mixer.order

    def rows(self, x: Tensor, number: int) -> Tensor:
        """``[N, C]``: the rows of one set."""
        return x[self.ptr[number] : self.ptr[number + 1]]

    def only(self, number: int) -> "LayerTrace":
        """The layer with a copy of the rows of one set, so that the others can be freed."""
        parts = (self.mixed, self.block, self.unordered, self.ordered, self.keys)
        own: list[Any] = [None if x is None else self.rows(x, number).clone() for x in parts]
        return LayerTrace(self.mixer, self.ptr[number : number + 2] - self.ptr[number], *own)


def trace(model: torch.nn.Module, *inputs: Any, **options: Any) -> list[LayerTrace]:
    """Run a model once in evaluation mode and record its mixing layers, in order.

    Args:
        model: a model with :class:`~slicegraph.nn.EncoderBlock` layers.
        inputs, options: the arguments of the model.

    Example:
        >>> model = VisionSliceformer.from_preset("vit-mnist", num_layers=2)
        >>> layers = trace(model, torch.randn(3, 1, 28, 28))
        >>> layers[1].mixed.shape, layers[1].ptr
        (torch.Size([591, 512]), tensor([  0, 197, 394, 591]))
    """
    blocks = [module for module in model.modules() if isinstance(module, EncoderBlock)]
    if not blocks:
        raise ValueError(f"trace: {type(model).__name__} has no mixing layers")
    found: list[tuple[EncoderBlock, dict[str, Tensor]]] = [(block, {}) for block in blocks]
    with ExitStack() as stack, torch.no_grad():
        stack.callback(model.train, model.training)
        for block, tensors in found:
            for handle in _record(block, tensors):
                stack.callback(handle.remove)
        model.eval()(*inputs, **options)
    return [LayerTrace(block.mixer, **tensors) for block, tensors in found]


def _record(block: EncoderBlock, tensors: dict[str, Tensor]) -> Iterator[Any]:
    """Add hooks to a block that fill the fields of its trace."""
    signature, mixer, wanted = inspect.signature(block.forward), block.mixer, {}

    def compute_all_rows(module: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        # The last block may be called for some rows only: compute all, return those.
        call = signature.bind(*inputs, **options)
        tensors["ptr"], wanted["rows"] = call.arguments["ptr"], call.arguments.pop("rows", None)
        return (), call.arguments

    def keep_block(module: Any, inputs: Any, output: Tensor) -> Tensor:
        tensors["block"] = output
        return output if wanted["rows"] is None else output[wanted["rows"]]

    def keep_order(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if module is mixer.context:
            output = Order("ascending", mixer.channels)(inputs[0], ptr=inputs[1])
        tensors.update(unordered=inputs[0], ordered=output)

    yield block.register_forward_pre_hook(compute_all_rows, with_kwargs=True)
    yield block.register_forward_hook(keep_block)
    yield mixer.out_proj.register_forward_pre_hook(
        lambda module, inputs: tensors.update(mixed=inputs[0])
    )
    if mixer.slices is not None:
        yield mixer.slices.register_forward_pre_hook(
            lambda module, inputs: tensors.update(keys=inputs[0])
        )
    for module in (mixer.order, mixer.context):
        if module is not None:
            yield module.register_forward_hook(keep_order)


def implicit_permutation(order: Order, x: Tensor, channel: int) -> Tensor:
    r"""Find the row that each row of a sorted channel comes from.

    .. math:: \mathrm{Order}(x)_{jc} = x_{p(j) c}

    Args:
        order: the order of the layer.
        x: input of the order, one set, ``[N, C]``.
        channel: number of the channel, from 0.

    Example:
        >>> order = Order("ascending", channels=1)
        >>> implicit_permutation(order, torch.tensor([[3.0], [1.0], [2.0]]), channel=0)
        tensor([1, 2, 0])
    """
    if not 0 <= channel < x.shape[1]:
        raise ValueError(f"there is no channel {channel}, they are 0..{x.shape[1] - 1}")
    if not order.exchanges:
        return column_sort(x, descending=order.descending)[1][:, channel]
    sources = torch.arange(x.shape[0], device=x.device)
    if len(sources):
        top = int(x[:, channel].argmax())
        sources[top], sources[0] = 0, top
    return sources


def slice_weights(keys: Tensor, tau: Tensor) -> Tensor:
    r"""Compute the attention weights of a slice for the sorted keys, with all pairs.

    .. math:: w_{ij} = e^{-|k_i - k_j| / \tau} / \textstyle\sum_l e^{-|k_i - k_l| / \tau}

    In the order of the keys ``[N]`` of one set the weights of a row fall off to both sides of its
    own: the matrix is a band around the diagonal, of a width that follows the density of the keys.

    Example:
        >>> slice_weights(torch.tensor([0.0, 9.0, 0.0]), torch.tensor(0.1))
        tensor([[0.5000, 0.5000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    ranked = keys.sort(stable=True).values
    return (-(ranked.unsqueeze(1) - ranked).abs() / tau).softmax(1)


def singular_values(rows: Tensor, ptr: Tensor) -> Tensor:
    r"""Compute the singular values :math:`\sigma_1 \ge \sigma_2 \ge \ldots` of every set of rows.

    Set ``b`` is the rows ``ptr[b]`` to ``ptr[b + 1]`` of ``rows`` ``[T, C]``. The output is
    ``[B, min(N, C)]`` for ``N`` rows in the largest set; smaller sets end in zeros.

    Example:
        >>> rows = torch.tensor([[3.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
        >>> singular_values(rows, torch.tensor([0, 2, 3]))
        tensor([[3., 2.],
                [5., 0.]])
    """
    # Rows of zeros do not change the singular values of a matrix.
    return torch.linalg.svdvals(PaddedSets(ptr).pad(rows.float()))


def effective_rank(values: Tensor) -> Tensor:
    r"""Compute the effective rank of `Roy and Vetterli
    <https://ieeexplore.ieee.org/document/7098875>`_ from singular values.

    .. math:: \exp\Big(-\sum_k p_k \log p_k\Big), \quad p_k = \sigma_k / \sum_j \sigma_j

    It is :math:`n` for :math:`n` equal singular values, 1 for a matrix of rank one, 0 for zeros.
    The values are ``[..., K]`` and the output ``[...]``.

    Example:
        >>> effective_rank(torch.tensor([[1.0, 1.0, 1.0], [4.0, 0.0, 0.0]]))
        tensor([3., 1.])
    """
    total = values.sum(-1, keepdim=True)
    rank = torch.special.entr(values / total).sum(-1).exp()
    return torch.where(total.squeeze(-1) > 0, rank, 0)


@dataclass(frozen=True)
class Measures:
    """Measures of a matrix of rows, as means over the samples."""

    effective_rank: float
    first_share: float  # square of the largest singular value over the sum of squares
    spectrum: np.ndarray  # [K], singular values divided by the largest


def _measures(parts: Sequence[Tensor]) -> Measures:
    """Average over the singular values ``[b, k]`` of all parts."""
    most = max(part.shape[1] for part in parts)
    values = torch.cat([functional.pad(part, (0, most - part.shape[1])) for part in parts])
    squares = values.square()
    first_share = (squares[:, 0] / squares.sum(1)).nan_to_num()  # 0 for rows of zeros
    spectrum = (values / values[:, :1]).nan_to_num().mean(0).numpy()
    return Measures(float(effective_rank(values).mean()), float(first_share.mean()), spectrum)


@dataclass(frozen=True)
class LayerFindings:
    """Measures of the mixed rows of a layer and of the rows after its block."""

    mixed: Measures
    block: Measures


@dataclass(frozen=True)
class Findings:
    """Measures of a model."""

    name: str
    mixer: str  # mixers of the layers, with their orders
    layers: list[LayerFindings]  # measures of all samples
    traces: list[LayerTrace]  # rows of the sample to draw; of a pair, those of the first text
    sample: int = 0  # number of that sample, from 0
    towers: int = 1  # number of sequences in a sample, 2 for pairs
    sizes: tuple[int, ...] = ()  # number of rows of every sequence, image or graph

    @property
    def drawn(self) -> str:
        """Description of the sample that is drawn."""
        return f"{'the first text of pair' if self.towers == 2 else 'sample'} {self.sample}"

    @property
    def effective_rank(self) -> float:
        """Effective rank of the mixed rows, the mean over the layers."""
        return float(np.mean([layer.mixed.effective_rank for layer in self.layers]))

    @property
    def spectrum(self) -> np.ndarray:
        """Spectrum of the mixed rows, the mean over the layers."""
        return np.mean([layer.mixed.spectrum for layer in self.layers], axis=0)


def measure(
    name: str, parts: Iterable[list[LayerTrace]], sample: int = 0, towers: int = 1
) -> Findings:
    """Measure a traced model.

    Of every batch only singular values are kept, and the rows of a single sample.

    Args:
        name: name of the model.
        parts: the results of :func:`~slicegraph.analysis.trace`, a few samples at a time.
        sample: number of the sample whose rows are kept, from 0.
        towers: number of sequences in a sample, 2 for pairs.
    """
    sizes: list[int] = []
    kept: list[LayerTrace] = []
    values: defaultdict[tuple[str, int], list[Tensor]] = defaultdict(list)
    for layers in parts:
        place, own = sample * towers - len(sizes), layers[0].ptr.diff().tolist()
        if 0 <= place < len(own):
            kept = [layer.only(place) for layer in layers]
        sizes += own
        for number, layer in enumerate(layers, start=1):
            for what, rows in (("layer", layer.mixed), ("block", layer.block)):
                if not bool(rows.isfinite().all()):
                    raise ValueError(
                        f"{name}: {what} {number} has an output that is not finite; train it again"
                    )
                values[what, number].append(singular_values(rows, layer.ptr))
    check_sample(sample, len(sizes) // towers)
    measures = {key: _measures(found) for key, found in values.items()}
    numbers = range(1, len(kept) + 1)
    measured = [LayerFindings(measures["layer", i], measures["block", i]) for i in numbers]
    orders = [(layer.mixer.mixer, layer.mixer.order) for layer in kept]
    names = [mixer if order is None else f"{mixer} {order.name}" for mixer, order in orders]
    mixers = ", ".join(dict.fromkeys(names))
    return Findings(name, mixers, measured, kept, sample, towers, tuple(sizes))


def check_sample(sample: int, count: int) -> None:
    """Raise an error if the number of the sample is not below ``count``."""
    if not 0 <= sample < count:
        raise ValueError(f"analyze: there is no sample {sample}, they are 0..{count - 1}")


COUNTS = tuple(round(10 ** (half / 2)) for half in range(2, 13))  # 10, 32, 100 ... 1,000,000


@dataclass(frozen=True)
class Smoothing:
    """Measures of attention weights :math:`w = softmax(s)`, ``[K]`` each, means over draws."""

    counts: np.ndarray  # number of random scores
    largest: np.ndarray  # largest weight
    sharpness: np.ndarray  # exp(-entropy), one over the effective number of rows that are read
    # Norm of w: the standard deviation of the weighted mean of independent values of deviation 1.
    spread: np.ndarray


def softmax_smoothing(
    counts: Sequence[int] = COUNTS, draws: int = 16, deviation: float = 1.0, seed: int = 0
) -> Smoothing:
    r"""Measure softmax weights of :math:`N` scores :math:`s_i \sim \mathcal{N}(0, \sigma^2)`.

    For :math:`\sigma = 1` these are the scores :math:`q^T k / \sqrt{D}` of independent queries and
    keys of variance 1. For large :math:`N` every weight goes to zero:

    .. math::
        \max_i w_i \approx e^{\sigma \sqrt{2 \ln N} - \sigma^2/2} / N, \quad
        e^{-H(w)} \to e^{\sigma^2/2} / N, \quad
        \Vert w \Vert \to e^{\sigma^2/2} / \sqrt{N}

    so the output of an attention layer tends to the mean of the values, the same for every row.

    Args:
        counts: the values of :math:`N`.
        draws: number of softmaxes to average for each :math:`N`.
        deviation: :math:`\sigma`.
        seed: seed of the scores.

    Example:
        >>> softmax_smoothing([10, 1000]).largest.round(2)
        array([0.34, 0.01])
    """
    random = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[float]:
        weights = (deviation * torch.randn(count, generator=random)).double().softmax(0)
        entropy = torch.special.entr(weights).sum()
        return [float(weights.max()), float((-entropy).exp()), float(weights.norm())]

    found = [np.mean([draw(count) for _ in range(draws)], axis=0) for count in counts]
    return Smoothing(np.asarray(counts), *np.stack(found, axis=1))
