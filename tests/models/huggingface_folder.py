"""A Graphormer folder as the transformers library writes it, with weights given by a formula.

`huggingface_golden.json` holds what transformers 4.57.1 computes with these weights: the logits,
and the states of the token that its head reads, for six molecules in one batch, where every pair
has five hop slots. It was written from the output of `theirs` in `test_huggingface_peer.py`. The
molecules come with their features, which depend on the version of RDKit.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch_geometric.data import Data

GOLDEN = json.loads((Path(__file__).parent / "huggingface_golden.json").read_text())
SMALL = {
    "model_type": "graphormer",
    "num_hidden_layers": 2,
    "embedding_dim": 16,
    "ffn_embedding_dim": 24,
    "num_attention_heads": 4,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {"encoder_normalize_before": True},  # as the models for PCQM4M
    "pre_norm": {"pre_layernorm": True, "embed_scale": 0.5, "num_classes": 3},
    "near": {"multi_hop_max_dist": 3, "spatial_pos_max": 5},
}


def shapes(settings: dict[str, Any], head: bool = True) -> dict[str, tuple[int, ...]]:
    """The tensors of the format, with the sizes that `config.json` gives and 512-row tables."""
    c, f, h = (settings[n] for n in ("embedding_dim", "ffn_embedding_dim", "num_attention_heads"))
    encoder = {
        "graph_node_feature.atom_encoder.weight": (512 * 9 + 1, c),
        "graph_node_feature.in_degree_encoder.weight": (512, c),
        "graph_node_feature.out_degree_encoder.weight": (512, c),
        "graph_node_feature.graph_token.weight": (1, c),
        "graph_attn_bias.edge_encoder.weight": (512 * 3 + 1, h),
        "graph_attn_bias.edge_dis_encoder.weight": (128 * h * h, 1),
        "graph_attn_bias.spatial_pos_encoder.weight": (settings.get("num_spatial", 512), h),
        "graph_attn_bias.graph_token_virtual_distance.weight": (1, h),
    }
    linears = {f"self_attn.{name}_proj": (c, c) for name in ("q", "k", "v", "out")}
    linears |= {"fc1": (f, c), "fc2": (c, f)}
    linears |= {"self_attn_layer_norm": (c,), "final_layer_norm": (c,)}
    parts = {
        f"layers.{layer}.{name}": shape
        for layer in range(settings["num_hidden_layers"])
        for name, shape in linears.items()
    }
    if settings.get("encoder_normalize_before"):
        parts["emb_layer_norm"] = (c,)
    if settings.get("pre_layernorm"):
        parts["final_layer_norm"] = (c,)
    encoder |= {f"{name}.weight": shape for name, shape in parts.items()}
    encoder |= {f"{name}.bias": shape[:1] for name, shape in parts.items()}
    model = {f"graph_encoder.{name}": shape for name, shape in encoder.items()}
    model |= {"lm_head_transform_weight.weight": (c, c), "lm_head_transform_weight.bias": (c,)}
    model |= {"layer_norm.weight": (c,), "layer_norm.bias": (c,)}
    if not head:
        return model
    classifier = {
        "classifier.lm_output_learned_bias": (1,),
        "classifier.classifier.weight": (settings.get("num_classes", 1), c),
    }
    return {f"encoder.{name}": shape for name, shape in model.items()} | classifier


def formula(number: int, name: str, shape: tuple[int, ...]) -> Tensor:
    """Integers modulo a prime, so the same everywhere: between -0.5 and 0.5, a bias between -2
    and 2, a norm's weight around 1. Padding rows are not zero."""
    i = torch.arange(torch.Size(shape).numel())
    values = ((i * i + 389 * i + 97 * number) % 10007).double() / 10007 - 0.5
    if "norm.weight" in name:
        values = values + 1
    if "graph_attn_bias" in name:
        values = values * 4
    return values.float().view(shape)


def formula_weights(settings: dict[str, Any], head: bool = True) -> dict[str, Tensor]:
    named = sorted(shapes(settings, head).items())
    return {name: formula(k, name, shape) for k, (name, shape) in enumerate(named)}


def write_folder(folder: Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def formula_folder(folder: Path, **settings: Any) -> Path:
    """A small model with these fields, the rest by default."""
    return write_folder(folder, SMALL | settings, formula_weights(SMALL | settings))


def golden_graphs() -> list[Data]:
    def integers(values: list, *shape: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).view(shape)

    return [
        Data(
            x=integers(one["x"], len(one["x"]), 9),
            edge_index=integers(one["edge_index"], 2, len(one["edge_attr"])),
            edge_attr=integers(one["edge_attr"], len(one["edge_attr"]), 3),
        )
        for one in GOLDEN["molecules"]
    ]
