"""EAGLE-3 heads as others keep them: vLLM's speculators, and EAGLE's own with SGLang and SpecForge.

Both have our weights under nearly our names (`layers.0` is `midlayer` in speculators), and `t2d`,
which follows from `d2t`. Neither says how many layers the target has, or which tokenizer.

    ours            after so many layers                    2, 15, 27
    speculators     what goes into this layer: the same     2, 15, 27
    eagle           what comes out of this layer            1, 14, 26
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.drafters.heads.config import HeadConfig
from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel

LAYOUTS: Final = ("speculators", "eagle")
T2D: Final = "t2d"
LAYER_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_OURS, _THEIRS = "midlayer.", "layers.0."  # in speculators
_UNUSED: Final = ("rope_scaling", "attention_bias", "mlp_bias", "norm_before_fc", "fc_norm")


def layout_of(values: Mapping[str, Any]) -> str | None:
    """Whose config this is; None if nobody's that we know."""
    if values.get("speculators_model_type") == "eagle3":
        return "speculators"
    names = values.get("architectures")
    return "eagle" if isinstance(names, list) and "LlamaForCausalLMEagle3" in names else None


def their_name(layout: str | None, name: str) -> str:
    """What the layout calls a weight of ours."""
    return name.replace(_OURS, _THEIRS) if layout == "speculators" else name


def our_name(layout: str | None, name: str) -> str:
    return name.replace(_THEIRS, _OURS) if layout == "speculators" else name


def read_layout(layout: str, values: Mapping[str, Any], path: Path) -> HeadConfig:
    """The config of another layout in our words; what it does not say is 0 or empty."""
    is_ours = layout == "speculators"
    shape = values.get("transformer_layer_config") if is_ours else values
    named = values if is_ours else values.get("eagle_config")
    ids = named.get(LAYER_IDS) if isinstance(named, dict) else None
    if not isinstance(shape, dict):
        raise InvalidWeights(f"{path}: 'transformer_layer_config' is missing; download it again.")
    if not isinstance(ids, list) or not all(type(layer) is int for layer in ids) or not ids:
        raise InvalidWeights(
            f"{path}: {LAYER_IDS!r} is missing, and a wrong guess of the layers would ruin every "
            "guess of the head; write in those that it was trained on."
        )
    for name in _UNUSED:
        if values.get(name) or shape.get(name):
            raise UnsupportedModel(f"{path}: {name!r} is not supported; use a head without it.")
    size = _size(shape, "hidden_size", path)
    if values.get("target_hidden_size") not in (None, size) or shape.get("num_hidden_layers") != 1:
        raise UnsupportedModel(f"{path}: only heads of one layer as wide as the target are run.")
    num_heads, vocab_size = (
        _size(shape, "num_attention_heads", path),
        _size(shape, "vocab_size", path),
    )
    return HeadConfig(
        kind="eagle3",
        layers=tuple(layer if is_ours else layer + 1 for layer in ids),
        target_hidden_size=size,
        target_vocab_size=vocab_size,
        target_num_layers=0,
        tokenizer_hash="",
        draft_vocab_size=values.get("draft_vocab_size") or vocab_size,
        rms_norm_eps=shape.get("rms_norm_eps") or 1e-6,
        intermediate_size=_size(shape, "intermediate_size", path),
        num_heads=num_heads,
        num_kv_heads=shape.get("num_key_value_heads") or num_heads,
        head_dim=shape.get("head_dim") or size // num_heads,
        rope_theta=_theta(shape),
        max_len=_size(shape, "max_position_embeddings", path),
        norm_before_residual=is_ours and values.get("norm_before_residual") is True,
    )


def written_layout(layout: str, config: HeadConfig, target: str) -> dict[str, Any]:
    """The config that the layout's own loaders read."""
    if config.kind != "eagle3" or config.fc_norm or config.norm_output:
        raise InvalidOption(
            "only EAGLE-3 without the norms of 3.1 has such a layout; train with --exportable."
        )
    if layout == "eagle" and (min(config.layers) < 1 or config.norm_before_residual):
        raise InvalidOption(
            "the layout eagle has no place for the embedding or norm_before_residual; "
            "export as speculators."
        )
    shape = {
        "model_type": "llama",
        "hidden_size": config.target_hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "vocab_size": config.target_vocab_size,
    }
    if layout == "eagle":
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            **shape,
            "draft_vocab_size": config.draft_vocab_size,
            "target_hidden_size": config.target_hidden_size,
            "eagle_config": {
                LAYER_IDS: [layer - 1 for layer in config.layers],
                "use_aux_hidden_state": True,
            },
        }
    proposal = {"proposal_type": "greedy", "speculative_tokens": 5}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "norm_before_residual": config.norm_before_residual,
        LAYER_IDS: list(config.layers),
        "transformer_layer_config": shape,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{**proposal, "verifier_accept_k": 1, "accept_tolerance": 0.0}],
            "verifier": {"name_or_path": target, "architectures": ["LlamaForCausalLM"]},
        },
    }


def written_weights(
    layout: str, weights: Mapping[str, Any], tokens: Any, vocab_size: int
) -> dict[str, Any]:
    known = np.zeros(vocab_size, np.bool_)
    known[tokens] = True
    return {**{their_name(layout, name): w for name, w in weights.items()}, T2D: known}


def config_text(values: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(values, indent=2)}\n".encode()


def _size(shape: Mapping[str, Any], name: str, path: Path) -> int:
    value = shape.get(name)
    if type(value) is not int or value < 1:
        raise InvalidWeights(f"{path}: {name!r} is {str(value)[:40]!r}; download it again.")
    return value


def _theta(shape: Mapping[str, Any]) -> float:
    nested = shape.get("rope_parameters")
    inner = nested.get("rope_theta") if isinstance(nested, dict) else None
    return float(shape.get("rope_theta") or inner or 10000.0)
