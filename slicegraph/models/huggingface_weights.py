"""The tensors of a Graphormer of the `transformers` library, under our names.

Its tables are read at shifted rows: an atom or an edge at ``raw + 3 + 512 * column``, distances and
degrees at ``value + 1``, no path at 511, and row 0 is padding. Ours begin with the padding row and
have no further shift. The padding row of the edge table counts, as it need not be zero: it is added
for each of the ``multi_hop_max_dist`` slots that a path leaves empty. (The collator of transformers
leaves out the slots that are empty in a whole batch; then its predictions depend on the batch.)
"""

from typing import Any

import torch
from torch import Tensor

from slicegraph.models.graphormer_v1 import _roll
from slicegraph.nn.pair_bias import padding_value

NO_PATH_ROW = 511
"""Where the table of distances is read for two nodes without a path."""

_TABLES = {
    "graph_node_feature.atom_encoder": "embedding.nodes.weight",
    "graph_node_feature.in_degree_encoder": "embedding.in_degree.weight",
    "graph_node_feature.out_degree_encoder": "embedding.out_degree.weight",
    "graph_node_feature.graph_token": "embedding.token",
    "graph_attn_bias.edge_encoder": "structural_bias.path_bias.edge_table.weight",
    "graph_attn_bias.edge_dis_encoder": "structural_bias.path_bias.weight",
    "graph_attn_bias.spatial_pos_encoder": "structural_bias.distance",
    "graph_attn_bias.graph_token_virtual_distance": "structural_bias.virtual_distance",
}
_LAYER = {
    "self_attn.q_proj": "mixer.query_proj",
    "self_attn.k_proj": "mixer.key_proj",
    "self_attn.v_proj": "mixer.value_proj",
    "self_attn.out_proj": "mixer.out_proj",
    "self_attn_layer_norm": "mixer_norm",
    "fc1": "ffn_in",
    "fc2": "ffn_out",
    "final_layer_norm": "ffn_norm",
}


def convert_weights(tensors: dict[str, Tensor], settings: dict[str, Any]) -> dict[str, Tensor]:
    """The weights of ours, from all tensors of a checkpoint and the values of its `config.json`."""
    names = _names(settings, has_head=any(name.startswith("encoder.") for name in tensors))
    _check_names(names, tensors)
    return {new: _convert(new, tensors[old], settings) for old, new in names.items() if new}


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor]) -> None:
    """Gives a model those of the weights that it has; a head of another size keeps its own."""
    own = model.state_dict()
    used = {name: value for name, value in weights.items() if name in own}
    if "head.weight" in used and used["head.weight"].shape != own["head.weight"].shape:
        del used["head.weight"], used["head.bias"]
    missing = model.load_state_dict(used, strict=False).missing_keys
    if missing := [name for name in missing if not name.startswith("head.")]:
        raise ValueError(
            f"from_huggingface: the checkpoint has nothing for {missing[0]!r}; leave out the "
            "override that asks for it"
        )


def _names(settings: dict[str, Any], has_head: bool) -> dict[str, str | None]:
    """Our name for every tensor of a checkpoint; none for what its model never applies."""
    top = "encoder." if has_head else ""
    encoder = f"{top}graph_encoder."
    parts: dict[str, str | None] = {
        f"{top}lm_head_transform_weight": "final_transform",
        f"{top}layer_norm": "final_norm",
    }
    if settings["encoder_normalize_before"]:
        parts[f"{encoder}emb_layer_norm"] = "embedding_norm"
    if settings["pre_layernorm"]:
        parts[f"{encoder}final_layer_norm"] = None
    for layer in range(settings["num_hidden_layers"]):
        for old, new in _LAYER.items():
            parts[f"{encoder}layers.{layer}.{old}"] = f"blocks.{layer}.{new}"
    names: dict[str, str | None] = {f"{encoder}{old}.weight": new for old, new in _TABLES.items()}
    for kind in ("weight", "bias"):
        names |= {f"{old}.{kind}": new and f"{new}.{kind}" for old, new in parts.items()}
    if has_head:
        names["classifier.classifier.weight"] = "head.weight"
        names["classifier.lm_output_learned_bias"] = "head.bias"
    return names


def _check_names(names: dict[str, str | None], tensors: dict[str, Tensor]) -> None:
    for problem, one, other in (("is missing", names, tensors), ("is not known", tensors, names)):
        if wrong := [name for name in one if name not in other]:
            raise ValueError(
                f"from_huggingface: the tensor {wrong[0]!r} {problem}, expected those of a "
                "Graphormer of transformers, as config.json describes it"
            )


def _convert(name: str, value: Tensor, settings: dict[str, Any]) -> Tensor:
    if name in ("embedding.nodes.weight", "structural_bias.path_bias.edge_table.weight"):
        value = _roll(value, 2)
    if name.startswith("embedding.") and settings["embed_scale"] is not None:
        return value * settings["embed_scale"]
    if name == "structural_bias.path_bias.weight":
        heads = settings["num_attention_heads"]
        return value.view(-1, heads, heads)
    if name == "structural_bias.distance":
        return _distances(value, settings["spatial_pos_max"])
    return value.expand(settings["num_classes"]) if name == "head.bias" else value


def _distances(table: Tensor, spatial_pos_max: int) -> Tensor:
    """The table up to the row for no path, which smaller ones lack: transformers fails there.

    Pairs from distance ``spatial_pos_max - 1`` on do not see each other. This is an argument of the
    collator of transformers, 20 if not given, and a field of `config.json`, 1024: all pairs do.
    """
    if table.shape[0] <= NO_PATH_ROW:
        table = torch.cat([table, table[-1:]])
    table = table[: NO_PATH_ROW + 1].clone()
    table[spatial_pos_max:] = padding_value(table.dtype)
    return table
