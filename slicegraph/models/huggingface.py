"""The folder in which the `transformers` library saves a Graphormer: `config.json`, safetensors.

What only training can notice (``activation_dropout``, ``layerdrop``, frozen layers,
``apply_graphormer_init``) is not read. Fields that are not given have the defaults of transformers.
"""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from slicegraph.models.checkpoint import CONFIG_FILE, WEIGHTS_FILE
from slicegraph.models.config import GraphSliceformerConfig
from slicegraph.models.graphormer_v1 import _vocabulary
from slicegraph.models.huggingface_weights import NO_PATH_ROW, convert_weights

_NAME = "from_huggingface"
_DEFAULTS = {
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
_ONLY = {
    "edge_type": "multi_hop",
    "activation_fn": "gelu",
    "q_noise": 0,
    "bias": True,
    "share_input_output_embed": False,
}


def read_huggingface(
    path: str | Path, mixer: str, **overrides: Any
) -> tuple[GraphSliceformerConfig, dict[str, Tensor]]:
    """The configuration and the weights of ours that compute what the saved model does."""
    settings = _read_settings(Path(path))
    weights = convert_weights(_read_tensors(Path(path)), settings)
    return _config(settings, mixer, overrides), weights


def _read_settings(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"{_NAME}: {folder} has no {CONFIG_FILE}, expected a local folder")
    settings = _DEFAULTS | _ONLY | json.loads((folder / CONFIG_FILE).read_text())
    only = _ONLY | {"model_type": "graphormer", "num_out_degree": settings["num_in_degree"]}
    for field, value in only.items():
        if settings.get(field) != value:
            raise ValueError(
                f"{_NAME}: {folder / CONFIG_FILE} has {field} = {settings.get(field)!r}, "
                f"supported is {value!r}"
            )
    if settings["multi_hop_max_dist"] < 1:
        raise ValueError(
            f"{_NAME}: multi_hop_max_dist = {settings['multi_hop_max_dist']} must be at least 1"
        )
    return settings


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    files, index = [WEIGHTS_FILE], folder / f"{WEIGHTS_FILE}.index.json"
    if not (folder / WEIGHTS_FILE).is_file() and index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    for file in files:
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{_NAME}: {folder} has no {file}{_remedy(folder)}")
    return {name: x.float() for file in files for name, x in load_file(folder / file).items()}


def _remedy(folder: Path) -> str:
    if not (folder / "pytorch_model.bin").is_file():
        return ""
    return (
        "; its pytorch_model.bin is a pickle, which is not read here: convert it with "
        "safetensors.torch.save_file(torch.load('pytorch_model.bin', weights_only=True), "
        f"'{WEIGHTS_FILE}')"
    )


def _config(
    settings: dict[str, Any], mixer: str, overrides: dict[str, Any]
) -> GraphSliceformerConfig:
    s, outputs = settings, settings["num_classes"]
    task = overrides.get("task", "regression" if outputs == 1 else "binary")
    multiclass = {"num_targets": 1, "num_classes": outputs}
    values = {
        "num_layers": s["num_hidden_layers"],
        "channels": s["embedding_dim"],
        "ffn_channels": s["ffn_embedding_dim"],
        "heads": s["num_attention_heads"],
        "mixer": mixer,
        "node_vocabulary": _vocabulary(s["num_atoms"] + 1),
        "edge_vocabulary": _vocabulary(s["num_edges"] + 1),
        "max_distance": min(s["num_spatial"], NO_PATH_ROW) - 2,
        "max_hops": s["multi_hop_max_dist"],
        "max_degree": s["num_in_degree"] - 2,
        "hop_blocks": s["num_edge_dis"],
        "task": task,
        **(multiclass if task == "multiclass" else {"num_targets": outputs}),
        "dropout": s["dropout"],
        "input_dropout": s["dropout"],
        "attention_dropout": s["attention_dropout"],
        "post_norm": not s["pre_layernorm"],
        "embedding_norm": s["encoder_normalize_before"],
    }
    quirks = ("padding_row", "empty_hops", "in_degree_twice", "final_transform")
    return GraphSliceformerConfig.from_dict(values | dict.fromkeys(quirks, True) | overrides)
