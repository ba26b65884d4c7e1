"""Graphormer weights of other code bases as ours: the official v1 code, and transformers.

Both read their tables at shifted rows: row 0 is padding, and the first category of a feature is at
row ``shift + 1``. Our tables begin with the padding row and have no further shift, so the imported
tables are rolled. An atom or bond feature has 512 categories; distances and degrees have no shift.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from slicegraph.models.base import CONFIG_FILE, WEIGHTS_FILE
from slicegraph.nn.bias import padding_value

Weights = dict[str, Tensor]

_FEATURE_ROWS = 512
_QUIRKS = {"padding_row": True, "empty_hops": True, "in_degree_twice": True}
_NODES, _EDGES = "embedding.nodes.weight", "structural_bias.path_bias.edge_table.weight"
_HOPS, _DISTANCE = "structural_bias.path_bias.weight", "structural_bias.distance"
_IN_DEGREE = "embedding.in_degree.weight"
_TABLES = {
    "atom_encoder": _NODES,
    "edge_encoder": _EDGES,
    "edge_dis_encoder": _HOPS,
    "in_degree_encoder": _IN_DEGREE,
    "out_degree_encoder": "embedding.out_degree.weight",
    "spatial_pos_encoder": _DISTANCE,
    "graph_token": "embedding.token",
    "graph_token_virtual_distance": "structural_bias.virtual_distance",
}


def _vocabulary(rows: int) -> tuple[int, ...]:
    """Features of 512 categories each, or a single feature if that does not fit."""
    columns, rest = divmod(rows, _FEATURE_ROWS)
    return (rows,) if rest else (_FEATURE_ROWS,) * columns


def _roll(table: Tensor, shift: int) -> Tensor:
    """Moves the rows between padding and the first category, which nothing reads, to the end."""
    return torch.cat([table[:1], table[1:].roll(-shift, 0)])


def _names(
    parts: dict[str, str | None], layer: dict[str, str], layers: int, prefixes: tuple[str, str, str]
) -> dict[str, str | None]:
    """Our name for each tensor of a checkpoint; None if its model never applies it.

    The prefixes are those of the tables of nodes, of the tables of pairs, and of the layers.
    """
    names: dict[str, str | None] = {}
    for old, new in _TABLES.items():
        names[f"{prefixes[new.startswith('structural_bias')]}{old}.weight"] = new
    for number in range(layers):
        for old, new in layer.items():
            parts[f"{prefixes[2]}layers.{number}.{old}"] = f"blocks.{number}.{new}"
    for kind in ("weight", "bias"):
        names |= {f"{old}.{kind}": new and f"{new}.{kind}" for old, new in parts.items()}
    return names


# The official code of Graphormer v1 and of the Sliceformer.

_V1_LAYER = {
    "self_attention_norm": "mixer_norm",
    "self_attention.linear_q": "mixer.query_proj",
    "self_attention.linear_k": "mixer.key_proj",
    "self_attention.linear_v": "mixer.value_proj",
    "self_attention.output_layer": "mixer.out_proj",
    "ffn_norm": "ffn_norm",
    "ffn.layer1": "ffn_in",
    "ffn.layer2": "ffn_out",
}


def read_graphormer_v1(state_dict: Weights, needs_queries: bool) -> tuple[dict[str, Any], Weights]:
    """Converts an official state dict, in which queries and keys may be missing if not needed.

    Returns:
        The fields of the configuration, and the weights under our names.
    """
    layers = {name.split(".")[1] for name in state_dict if name.startswith("layers.")}
    head = "out_proj" if "out_proj.weight" in state_dict else "downstream_out_proj"
    parts: dict[str, str | None] = {"final_ln": "final_norm", head: "head"}
    names = _names(parts, _V1_LAYER, max(1, len(layers)), ("", "", ""))
    optional = () if needs_queries else ("linear_q", "linear_k")
    for name in names:
        if name not in state_dict and not any(part in name for part in optional):
            raise ValueError(
                f"from_graphormer_v1: {name!r} is missing, expected the state dict of the official "
                "Graphormer v1 or Sliceformer code, with out_proj or downstream_out_proj"
            )
    weights = {new: state_dict[old] for old, new in names.items() if new and old in state_dict}
    heads = weights[_DISTANCE].shape[1]
    weights[_NODES], weights[_EDGES] = _roll(weights[_NODES], 1), _roll(weights[_EDGES], 2)
    weights[_HOPS] = weights[_HOPS].view(-1, heads, heads)
    fields = {
        "num_layers": len(layers),
        "channels": weights[_NODES].shape[1],
        "ffn_channels": weights["blocks.0.ffn_in.weight"].shape[0],
        "heads": heads,
        "node_vocabulary": _vocabulary(len(weights[_NODES]) - 1),
        "edge_vocabulary": _vocabulary(len(weights[_EDGES]) - 1),
        "max_distance": len(weights[_DISTANCE]) - 3,
        "max_degree": len(weights[_IN_DEGREE]) - 2,
        "hop_blocks": len(weights[_HOPS]),
        "num_targets": len(weights["head.weight"]),
    }
    return fields | _QUIRKS, weights


# A folder of the transformers library. What only training uses (activation_dropout, layerdrop,
# frozen layers, apply_graphormer_init) is not read.

_HF_DEFAULTS: dict[str, Any] = {
    "num_classes": 1,
    "num_atoms": 512 * 9,
    "num_edges": 512 * 3,
    "num_in_degree": 512,
    "num_out_degree": 512,
    "num_spatial": 512,
    "num_edge_dis": 128,
    "multi_hop_max_dist": 5,
    "spatial_pos_max": 1024,
    "num_hidden_layers": 12,
    "embedding_dim": 768,
    "ffn_embedding_dim": 768,
    "num_attention_heads": 32,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "encoder_normalize_before": False,
    "pre_layernorm": False,
    "embed_scale": None,
}
_HF_ONLY = {
    "edge_type": "multi_hop",
    "activation_fn": "gelu",
    "q_noise": 0,
    "bias": True,
    "share_input_output_embed": False,
}
_HF_LAYER = {
    "self_attn.q_proj": "mixer.query_proj",
    "self_attn.k_proj": "mixer.key_proj",
    "self_attn.v_proj": "mixer.value_proj",
    "self_attn.out_proj": "mixer.out_proj",
    "self_attn_layer_norm": "mixer_norm",
    "fc1": "ffn_in",
    "fc2": "ffn_out",
    "final_layer_norm": "ffn_norm",
}
_HF_NO_PATH = 511  # the row of the table of distances for two nodes without a path


def read_huggingface(path: str | Path, task: str | None) -> tuple[dict[str, Any], Weights]:
    """Reads a folder with ``config.json`` and ``model.safetensors``.

    By default one output is a regression, and several are binary tasks.

    Returns:
        The fields of the configuration, and the weights under our names.
    """
    folder = Path(path)
    s, tensors = _read_settings(folder), _read_tensors(folder)
    has_head = any(name.startswith("encoder.") for name in tensors)
    top = "encoder." if has_head else ""
    encoder = f"{top}graph_encoder."
    parts: dict[str, str | None] = {
        f"{top}lm_head_transform_weight": "final_transform",
        f"{top}layer_norm": "final_norm",
    }
    if s["encoder_normalize_before"]:
        parts[f"{encoder}emb_layer_norm"] = "embedding_norm"
    if s["pre_layernorm"]:
        parts[f"{encoder}final_layer_norm"] = None
    prefixes = (f"{encoder}graph_node_feature.", f"{encoder}graph_attn_bias.", encoder)
    names = _names(parts, _HF_LAYER, s["num_hidden_layers"], prefixes)
    if has_head:
        names["classifier.classifier.weight"] = "head.weight"
        names["classifier.lm_output_learned_bias"] = "head.bias"
    for problem, one, other in (("is missing", names, tensors), ("is not known", tensors, names)):
        if wrong := [name for name in one if name not in other]:
            raise ValueError(
                f"from_huggingface: the tensor {wrong[0]!r} {problem}, expected those of a "
                "Graphormer of transformers, as config.json describes it"
            )
    weights = {new: _convert(new, tensors[old], s) for old, new in names.items() if new}
    task = task or ("regression" if s["num_classes"] == 1 else "binary")
    outputs = {"num_targets": s["num_classes"]}
    if task == "multiclass":
        outputs = {"num_targets": 1, "num_classes": s["num_classes"]}
    fields = {
        "num_layers": s["num_hidden_layers"],
        "channels": s["embedding_dim"],
        "ffn_channels": s["ffn_embedding_dim"],
        "heads": s["num_attention_heads"],
        "node_vocabulary": _vocabulary(s["num_atoms"]),
        "edge_vocabulary": _vocabulary(s["num_edges"]),
        "max_distance": min(s["num_spatial"], _HF_NO_PATH) - 2,
        "max_hops": s["multi_hop_max_dist"],
        "max_degree": s["num_in_degree"] - 2,
        "hop_blocks": s["num_edge_dis"],
        "task": task,
        **outputs,
        "dropout": s["dropout"],
        "input_dropout": s["dropout"],
        "attention_dropout": s["attention_dropout"],
        "post_norm": not s["pre_layernorm"],
        "embedding_norm": s["encoder_normalize_before"],
        "final_transform": True,
    }
    return fields | _QUIRKS, weights


def _read_settings(folder: Path) -> dict[str, Any]:
    if not (file := folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(
            f"from_huggingface: {folder} has no {CONFIG_FILE}, expected a local folder"
        )
    settings = _HF_DEFAULTS | _HF_ONLY | json.loads(file.read_text())
    only = _HF_ONLY | {"model_type": "graphormer", "num_out_degree": settings["num_in_degree"]}
    for field, value in only.items():
        if settings.get(field) != value:
            found = f"{field} = {settings.get(field)!r}"
            raise ValueError(f"from_huggingface: {file} has {found}, supported is {value!r}")
    if (hops := settings["multi_hop_max_dist"]) < 1:
        raise ValueError(f"from_huggingface: multi_hop_max_dist = {hops} must be at least 1")
    return settings


def _read_tensors(folder: Path) -> Weights:
    files, index = [WEIGHTS_FILE], folder / f"{WEIGHTS_FILE}.index.json"
    if not (folder / WEIGHTS_FILE).is_file() and index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    for file in files:
        if not (folder / file).is_file():
            remedy = (
                "; its pytorch_model.bin is a pickle, which is not read: convert it with "
                "safetensors.torch.save_file(torch.load('pytorch_model.bin', weights_only=True), "
                f"'{WEIGHTS_FILE}')"
            )
            remedy = remedy if (folder / "pytorch_model.bin").is_file() else ""
            raise FileNotFoundError(f"from_huggingface: {folder} has no {file}{remedy}")
    return {name: x.float() for file in files for name, x in load_file(folder / file).items()}


def _convert(name: str, value: Tensor, settings: dict[str, Any]) -> Tensor:
    if name in (_NODES, _EDGES):
        value = _roll(value, 2)
    if name.startswith("embedding.") and settings["embed_scale"] is not None:
        return value * settings["embed_scale"]
    if name == _HOPS:
        heads = settings["num_attention_heads"]
        return value.view(-1, heads, heads)
    if name == _DISTANCE:
        # Smaller tables lack the row for no path, where transformers fails. Pairs from distance
        # spatial_pos_max - 1 on do not see each other: this is an argument of the collator of
        # transformers, 20 if not given, and a field of config.json, 1024, so that all pairs do.
        if len(value) <= _HF_NO_PATH:
            value = torch.cat([value, value[-1:]])
        value = value[: _HF_NO_PATH + 1].clone()
        value[settings["spatial_pos_max"] :] = padding_value(value.dtype)
    # The padding row of the edge table counts: it is added for every empty slot of a path.
    return value.expand(settings["num_classes"]) if name == "head.bias" else value
