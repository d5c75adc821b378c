"""EAGLE-3 heads in other layouts: of vLLM's speculators, and of EAGLE, SGLang and SpecForge.

Both layouts have our weights under nearly our names (`midlayer` is `layers.0` in speculators; vLLM
accepts either), and `t2d`, which follows from `d2t`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.drafters.heads.config import ADVICE, HeadConfig
from forerun.drafters.heads.layouts.layer_ids import LAYER_IDS, read_layer_ids
from forerun.errors import InvalidOption, InvalidWeights, UnsupportedModel
from forerun.models.fields import Fields

LAYOUTS: Final = ("speculators", "eagle")
T2D: Final = "t2d"
_OURS, _THEIRS = "midlayer.", "layers.0."
_LAYER: Final = "transformer_layer_config"
_NORM_FIRST: Final = "norm_before_residual"
# Switches of vLLM (llama_eagle3.py, speculators/algos.py), SGLang (llama_eagle3.py) and ModelOpt
# (`eagle_config`) that change what a head computes, with the only values that are supported.
_IN_LAYER: Final[Mapping[str, Any]] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "qkv_bias": False,
    "mlp_bias": False,
    "bias": False,
    "logit_scale": 1,
}
_IN_HEAD: Final[Mapping[str, Any]] = {
    "quantization_config": {},
    "norm_before_fc": False,
    "fc_norm": False,
    "use_aux_norm": False,
    "norm_output": False,
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
}


def eagle3_names(stored: Iterable[str]) -> dict[str, str]:
    """Return the file's name of each of our weights; `t2d` is left out."""
    return {
        _OURS + name.removeprefix(_THEIRS) if name.startswith(_THEIRS) else name: name
        for name in stored
        if name != T2D
    }


def read_eagle3(layout: str, values: Mapping[str, Any], path: Path) -> HeadConfig:
    """Return a config of another layout as ours; fields that it does not have are 0 or empty."""
    outer = Fields(values, path, advice=ADVICE)
    is_flat = layout == "eagle"
    shape = outer if is_flat else outer.inner(_LAYER)
    named = outer.inner("eagle_config") if is_flat else outer
    layers = read_layer_ids(layout, named, outer)
    _refuse_variants(shape, _IN_LAYER)
    _refuse_variants(outer, _IN_HEAD)
    _refuse_variants(named, _IN_HEAD)
    size, vocab_size = shape.size("hidden_size"), shape.size("vocab_size")
    num_layers, target_size = (
        shape.size("num_hidden_layers"),
        outer.size("target_hidden_size", size),
    )
    if (num_layers, target_size) != (1, size):
        raise UnsupportedModel(
            f"{path}: only heads of one layer as wide as the target are run, and with "
            f"'num_hidden_layers' {num_layers}, 'hidden_size' {size} and 'target_hidden_size' "
            f"{target_size} this is none; use another head."
        )
    num_heads = shape.size("num_attention_heads")
    return HeadConfig(
        kind="eagle3",
        layers=layers,
        target_hidden_size=size,
        target_vocab_size=vocab_size,
        target_num_layers=0,
        tokenizer_hash="",
        draft_vocab_size=_at_most(outer, "draft_vocab_size", vocab_size),
        rms_norm_eps=shape.positive("rms_norm_eps", 1e-6),
        intermediate_size=shape.size("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=shape.size("num_key_value_heads", num_heads),
        head_dim=shape.size("head_dim", size // num_heads),
        rope_theta=_theta(shape),
        max_len=shape.size("max_position_embeddings"),
        norm_before_residual=_norms_first(layout, outer),
    )


def _refuse_variants(fields: Fields, switches: Mapping[str, Any]) -> None:
    for name, due in switches.items():
        found = fields.get(name, due)
        if found != due or isinstance(found, bool) != isinstance(due, bool):
            raise UnsupportedModel(
                f"{fields.source}: {name!r} is {str(found)[:40]!r}, and only {due!r} is supported; "
                "use another head."
            )


def _at_most(fields: Fields, name: str, most: int) -> int:
    value = fields.size(name, most)
    return int(fields.checked(name, value, value <= most, f"at most {most}, the vocabulary's size"))


def _theta(shape: Fields) -> float:
    """Return the rotary base; raises `UnsupportedModel` for stretched or partial frequencies."""
    for name in ("rope_parameters", "rope_scaling"):
        for key, value in shape.inner(name).values.items():
            is_plain = key == "rope_theta" or (key in ("rope_type", "type") and value == "default")
            if not is_plain and value is not None:
                raise UnsupportedModel(
                    f"{shape.source}: {name!r} with {key}={str(value)[:40]!r} is not supported; "
                    "use a head with plain rotary frequencies."
                )
    theta = shape.positive("rope_theta", 10000.0)
    for name in ("rope_scaling", "rope_parameters"):
        theta = shape.inner(name).positive("rope_theta", theta)
    return theta


def _norms_first(layout: str, outer: Fields) -> bool:
    if layout == "speculators" and outer.get(_NORM_FIRST) is None:
        raise InvalidWeights(
            f"{outer.source}: {_NORM_FIRST!r} is missing; vLLM takes true for it and speculators "
            "false, so write in which of them it was trained with."
        )
    norms_first = outer.flag(_NORM_FIRST, False)
    if layout == "eagle" and norms_first:
        raise UnsupportedModel(
            f"{outer.source}: {_NORM_FIRST!r} is not known to this layout; write the config as "
            "speculators has it."
        )
    return norms_first


def written_config(layout: str, config: HeadConfig, target: str) -> dict[str, Any]:
    """Return the config that the layout's own loaders read."""
    if config.kind != "eagle3":
        raise InvalidOption(
            f'a head of kind "{config.kind}" has no place in other engines\' layouts; give '
            "--format packed, or train one with --kind eagle3 --exportable."
        )
    if config.fc_norm or config.norm_output:
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
    is_theirs = layout == "speculators"
    names = {name: name.replace(_OURS, _THEIRS) if is_theirs else name for name in weights}
    return {**{names[name]: weight for name, weight in weights.items()}, T2D: known}
