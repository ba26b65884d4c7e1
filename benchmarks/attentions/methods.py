"""The methods of the table, in the order of its rows."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from benchmarks.attentions import library
from benchmarks.attentions.cosformer import Cosformer
from benchmarks.attentions.encoder import CHANNELS, HEADS, LAYERS
from benchmarks.attentions.linear import LinearAttention
from benchmarks.attentions.sinkformer import Sinkformer
from benchmarks.attentions.strided import StridedAttention
from benchmarks.attentions.synthesizer import Synthesizer
from slicegraph.nn import SliceSort


@dataclass(frozen=True)
class Method:
    """One way to mix the rows of a sequence.

    Args:
        label: the name in the table.
        source: the package that the code comes from, or "here".
        mixer: returns the mixer of a layer, given the length and the number of the layer.
        module: the module that must be installed, or None.
    """

    label: str
    source: str
    mixer: Callable[[int, int], torch.nn.Module]
    module: str | None = None

    @property
    def installed(self) -> bool:
        return self.module is None or find_spec(self.module) is not None


def _longformer(length: int, layer: int) -> torch.nn.Module:
    from benchmarks.attentions.huggingface import Longformer

    return Longformer()


def _big_bird(length: int, layer: int) -> torch.nn.Module:
    from benchmarks.attentions.huggingface import BigBird

    return BigBird(length, seed=layer)


def _ours(kind: Callable[..., torch.nn.Module]) -> Callable[[int, int], torch.nn.Module]:
    return lambda length, layer: kind(CHANNELS, HEADS)


METHODS = {
    "slice_sort": Method(
        "SliceSort",
        "slicegraph",
        lambda length, layer: SliceSort(CHANNELS, layer=layer, num_layers=LAYERS),
    ),
    "attention": Method("Attention (SDPA)", "torch", lambda length, layer: library.SelfAttention()),
    "local": Method(
        "Local attention",
        "local-attention",
        lambda length, layer: library.local_attention(),
        "local_attention",
    ),
    "reformer": Method(
        "Reformer",
        "reformer-pytorch",
        lambda length, layer: library.reformer(),
        "reformer_pytorch",
    ),
    "linformer": Method(
        "Linformer", "linformer", lambda length, layer: library.linformer(length), "linformer"
    ),
    "performer": Method(
        "Performer",
        "performer-pytorch",
        lambda length, layer: library.performer(),
        "performer_pytorch",
    ),
    "pyg_performer": Method(
        "Performer (PyG)", "torch-geometric", lambda length, layer: library.pyg_performer()
    ),
    "efficient": Method(
        "Linear attention (softmax)",
        "linear-attention-transformer",
        lambda length, layer: library.linear_attention(),
        "linear_attention_transformer",
    ),
    "sinkhorn": Method(
        "Sinkhorn Transformer",
        "sinkhorn-transformer",
        lambda length, layer: library.sinkhorn(length),
        "sinkhorn_transformer",
    ),
    "longformer": Method("Longformer", "transformers", _longformer, "transformers"),
    "big_bird": Method("BigBird (block sparse)", "transformers", _big_bird, "transformers"),
    "linear": Method("Linear attention (elu + 1)", "here", _ours(LinearAttention)),
    "cosformer": Method("Cosformer", "here", _ours(Cosformer)),
    "sparse": Method("Sparse Transformer (strided)", "here", _ours(StridedAttention)),
    "synthesizer": Method(
        "Synthesizer (factorised random)",
        "here",
        lambda length, layer: Synthesizer(CHANNELS, HEADS, length),
    ),
    "sinkformer": Method("Sinkformer", "here", _ours(Sinkformer)),
}
