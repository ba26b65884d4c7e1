"""Weights of the official Graphormer v1 and Sliceformer code, under our names.

The official tables are read at shifted rows: an atom at ``raw + 2 + 512 * column``, an edge at
``raw + 3 + 512 * column``, distances and degrees at ``value + 1``, and row 0 is padding. Ours begin
with the padding row, if at all, and have no further shift; so the tables are rolled when they are
read, and nothing else needs to know.
"""

from typing import Any

import torch
from torch import Tensor

from slicegraph.models.config import GraphSliceformerConfig

_FEATURE_ROWS = 512
_TABLES = {
    "in_degree_encoder.weight": "embedding.in_degree.weight",
    "out_degree_encoder.weight": "embedding.out_degree.weight",
    "spatial_pos_encoder.weight": "structural_bias.distance",
    "graph_token.weight": "embedding.token",
    "graph_token_virtual_distance.weight": "structural_bias.virtual_distance",
    "final_ln.weight": "final_norm.weight",
    "final_ln.bias": "final_norm.bias",
}
_LAYER = {
    "self_attention_norm": "mixer_norm",
    "self_attention.linear_q": "mixer.query_proj",
    "self_attention.linear_k": "mixer.key_proj",
    "self_attention.linear_v": "mixer.value_proj",
    "self_attention.output_layer": "mixer.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn.layer1": "ffn_in",
    "ffn.layer2": "ffn_out",
}
_HEADS = ("out_proj", "downstream_out_proj")


def read_graphormer_v1(
    state_dict: dict[str, Tensor], mixer: str, **overrides: Any
) -> tuple[GraphSliceformerConfig, dict[str, Tensor]]:
    """The configuration and the weights of ours that compute what the official model does."""
    _check_names(state_dict, mixer)
    head = next(name for name in _HEADS if f"{name}.weight" in state_dict)
    config = _config(state_dict, head, mixer, overrides)
    weights = {new: state_dict[old] for old, new in _TABLES.items()}
    weights["embedding.nodes.weight"] = _roll(state_dict["atom_encoder.weight"], 1)
    weights["structural_bias.path_bias.edge_table.weight"] = _roll(
        state_dict["edge_encoder.weight"], 2
    )
    weights["structural_bias.path_bias.weight"] = state_dict["edge_dis_encoder.weight"].view(
        -1, config.heads, config.heads
    )
    for kind in ("weight", "bias"):
        weights[f"head.{kind}"] = state_dict[f"{head}.{kind}"]
        for layer in range(config.num_layers):
            for old, new in _LAYER.items():
                if (name := f"layers.{layer}.{old}.{kind}") in state_dict:
                    weights[f"blocks.{layer}.{new}.{kind}"] = state_dict[name]
    return config, {name: value for name, value in weights.items() if _is_used(name, config)}


def _config(
    state_dict: dict[str, Tensor], head: str, mixer: str, overrides: dict[str, Any]
) -> GraphSliceformerConfig:
    rows = {name: value.shape[0] for name, value in state_dict.items()}
    heads = state_dict["spatial_pos_encoder.weight"].shape[1]
    layers = {name.split(".")[1] for name in state_dict if name.startswith("layers.")}
    sizes = {
        "num_layers": len(layers),
        "channels": state_dict["atom_encoder.weight"].shape[1],
        "ffn_channels": rows["layers.0.ffn.layer1.weight"],
        "heads": heads,
        "node_vocabulary": _vocabulary(rows["atom_encoder.weight"]),
        "edge_vocabulary": _vocabulary(rows["edge_encoder.weight"]),
        "max_distance": rows["spatial_pos_encoder.weight"] - 3,
        "max_degree": rows["in_degree_encoder.weight"] - 2,
        "hop_blocks": rows["edge_dis_encoder.weight"] // heads**2,
        "num_targets": rows[f"{head}.weight"],
    }
    quirks = {"padding_row": True, "empty_hops": True, "in_degree_twice": True}
    return GraphSliceformerConfig.from_dict(sizes | quirks | {"mixer": mixer} | overrides)


def _vocabulary(rows: int) -> tuple[int, ...]:
    """Features of 512 categories each, or a single one, after the padding row."""
    columns, rest = divmod(rows - 1, _FEATURE_ROWS)
    return (rows - 1,) if rest else (_FEATURE_ROWS,) * columns


def _roll(table: Tensor, shift: int) -> Tensor:
    """The table without the rows between padding and the first category; they go to the end."""
    return torch.cat([table[:1], table[1:].roll(-shift, 0)])


def _is_used(name: str, config: GraphSliceformerConfig) -> bool:
    if ".query_proj." in name or ".key_proj." in name:
        return config.mixer == "qkv"
    if name.startswith("structural_bias.") and config.mixer == "sort":
        return False
    return config.token or name not in ("embedding.token", "structural_bias.virtual_distance")


def _check_names(state_dict: dict[str, Tensor], mixer: str) -> None:
    needed = [*_TABLES, "atom_encoder.weight", "edge_encoder.weight", "edge_dis_encoder.weight"]
    optional = () if mixer == "qkv" else ("self_attention.linear_q", "self_attention.linear_k")
    needed += [f"layers.0.{name}.weight" for name in _LAYER if name not in optional]
    if missing := [name for name in needed if name not in state_dict]:
        raise ValueError(
            f"from_graphormer_v1: {missing[0]!r} is missing, expected the state dict of the "
            "official Graphormer v1 or Sliceformer code"
        )
    if not any(f"{name}.weight" in state_dict for name in _HEADS):
        raise ValueError(f"from_graphormer_v1: no output layer, expected {' or '.join(_HEADS)}")
