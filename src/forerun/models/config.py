"""The shape of a Llama-family model, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass

# Families that models/llama.py runs; they differ only in the switches below.
SUPPORTED_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched past the trained context.

    `kind` is "linear" (positions divided by `factor`) or "llama3" (only low frequencies are
    stretched, with a smooth ramp between the two wavelength bounds).
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and switches; names follow Hugging Face where one exists."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_len: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    tie_embeddings: bool = False
    attention_bias: bool = False  # q, k, v carry biases (Qwen2)
    qk_norm: bool = False  # q and k are normalised per head before rope (Qwen3)
