"""The tensors that a Llama-family model must have, and their shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.config import ModelConfig

Shape = tuple[int, ...]

_MAX_LEN: Final = 1 << 24
_SIZES: Final = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_layers"),
    *("num_heads", "num_kv_heads", "head_dim", "max_len"),
)

# Llama 3's rope scaling in GGUF files: the divisor of each frequency.
ROPE_FACTORS: Final = "rope_freqs.weight"


def required_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Yield names and shapes, layer by layer, so that a check can stop at the first mismatch."""
    yield "model.embed_tokens.weight", (config.vocab_size, config.hidden_size)
    yield "model.norm.weight", (config.hidden_size,)
    if not config.tie_embeddings:
        yield "lm_head.weight", (config.vocab_size, config.hidden_size)
    for layer in range(config.num_layers):
        for name, shape in _layer_shapes(config):
            yield f"model.layers.{layer}.{name}", shape


def _layer_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    q_len = config.num_heads * config.head_dim
    kv_len = config.num_kv_heads * config.head_dim
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    for name, rows in (("q", q_len), ("k", kv_len), ("v", kv_len)):
        yield f"self_attn.{name}_proj.weight", (rows, hidden)
        if config.attention_bias:
            yield f"self_attn.{name}_proj.bias", (rows,)
    yield "self_attn.o_proj.weight", (hidden, q_len)
    if config.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)
    yield "mlp.gate_proj.weight", (inner, hidden)
    yield "mlp.up_proj.weight", (inner, hidden)
    yield "mlp.down_proj.weight", (hidden, inner)


def _known_shapes(config: ModelConfig, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Shape]]:
    yield from required_shapes(config)
    if ROPE_FACTORS in shapes:
        yield ROPE_FACTORS, (config.head_dim // 2,)
    for layer in range(config.num_layers):
        for name, size in _optional_biases(config, shapes):
            yield f"model.layers.{layer}.{name}", (size,)


def _optional_biases(config: ModelConfig, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, int]]:
    """Yield the biases besides q, k and v: every layer must have those that layer 0 has."""
    hidden, inner = config.hidden_size, config.intermediate_size
    o, down = "self_attn.o_proj.bias", "mlp.down_proj.bias"
    gate, up = "mlp.gate_proj.bias", "mlp.up_proj.bias"
    for kind in ({o: hidden}, {gate: inner, up: inner}, {down: hidden}):
        if any(f"model.layers.0.{name}" in shapes for name in kind):
            yield from kind.items()


def check_config(config: ModelConfig, where: object) -> None:
    """Raise `InvalidWeights` for sizes that no model can have, before they size anything."""
    for name in _SIZES:
        size = getattr(config, name)
        if not 1 <= size <= _MAX_LEN:
            raise InvalidWeights(f"{where}: {name} is {size}; give a file with a sound config.")
    if config.num_heads % config.num_kv_heads:
        pair = f"{config.num_heads} heads and {config.num_kv_heads} key/value heads"
        raise InvalidWeights(f"{where}: {pair} do not divide; give a file with a sound config.")
    if config.head_dim % 2:
        raise InvalidWeights(f"{where}: head_dim {config.head_dim} is odd; rotary needs pairs.")
    if not (0 < config.rms_norm_eps < 1 and 0 < config.rope_theta < float("inf")):
        pair = f"rms_norm_eps {config.rms_norm_eps} or rope_theta {config.rope_theta}"
        raise InvalidWeights(f"{where}: {pair} is out of range; give a file with a sound config.")
    rope = config.rope_scaling
    if rope and not (rope.factor > 0 and rope.high_freq_factor > rope.low_freq_factor > 0):
        raise InvalidWeights(f"{where}: {rope} is out of range; give a file with a sound config.")


def check_tensors(config: ModelConfig, shapes: Mapping[str, Shape], where: object) -> None:
    """Raise unless `shapes` has every tensor of the model in its shape, and no other."""
    extra = set(shapes)
    for name, shape in _known_shapes(config, shapes):
        if name not in shapes:
            raise InvalidWeights(f"{where}: tensor {name!r} is missing; download the model again.")
        if shapes[name] != shape:
            found = list(shapes[name])
            raise InvalidWeights(
                f"{where}: tensor {name!r} has shape {found} where the config says {list(shape)}; "
                "download the model again."
            )
        extra.discard(name)
    if extra:
        raise UnsupportedModel(
            f"{where}: tensor {min(extra)!r} has no place in a {config.architecture} model; "
            "use a plain checkpoint of that family, without adapters or extra heads."
        )
