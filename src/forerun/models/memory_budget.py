"""Memory of a target and its draft model: weights, and KV caches when every sequence is full."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from forerun.errors import InvalidOption
from forerun.models.config import ModelConfig
from forerun.models.weights.layout import required_shapes
from forerun.option_checks import require_known
from forerun.theory.ranges import check_count

BLOCK_LEN: Final = 32  # weights that share a scale in the quantised formats (GGUF)

# Bytes per weight, scales included.
PLAIN_DTYPES: Final[Mapping[str, Fraction]] = {
    "float32": Fraction(4),
    "bfloat16": Fraction(2),
    "float16": Fraction(2),
    "float8": Fraction(1),
}
QUANTISED_DTYPES: Final[Mapping[str, Fraction]] = {
    "q8_0": Fraction(34, BLOCK_LEN),
    "q4_1": Fraction(20, BLOCK_LEN),
    "q4_0": Fraction(18, BLOCK_LEN),
}
WEIGHT_DTYPES: Final[Mapping[str, Fraction]] = {**PLAIN_DTYPES, **QUANTISED_DTYPES}


@dataclass(frozen=True)
class ModelMemory:
    """The memory of one model, in bytes."""

    num_params: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_per_sequence: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """The memory of both models, without activations."""

    target: ModelMemory
    draft: ModelMemory

    @property
    def total_bytes(self) -> int:
        return self.target.total_bytes + self.draft.total_bytes


def num_params(shape: ModelConfig) -> tuple[int, int]:
    """Return the number of weights in matrices, and in vectors (norms and biases)."""
    sizes = [size for _, size in required_shapes(shape)]
    matrices, vectors = (sum(math.prod(s) for s in sizes if len(s) == rank) for rank in (2, 1))
    return matrices, vectors


def weight_bytes(shape: ModelConfig, dtype: str) -> int:
    """Return the bytes of all weights in `dtype`; quantised files have vectors in float32."""
    require_known("dtype", WEIGHT_DTYPES, dtype)
    vector_dtype = "float32" if dtype in QUANTISED_DTYPES else dtype
    if dtype in QUANTISED_DTYPES:
        _check_blocks(shape, dtype)
    num_in_matrices, num_in_vectors = num_params(shape)
    matrices = num_in_matrices * WEIGHT_DTYPES[dtype]
    return int(matrices + num_in_vectors * PLAIN_DTYPES[vector_dtype])


def _check_blocks(shape: ModelConfig, dtype: str) -> None:
    widths = (shape.hidden_size, shape.intermediate_size, shape.num_heads * shape.head_dim)
    if any(width % BLOCK_LEN for width in widths):
        raise InvalidOption(
            f"{dtype} packs rows in blocks of {BLOCK_LEN}, but this model's rows are "
            f"{' and '.join(map(str, sorted(set(widths))))} wide; choose a plain dtype."
        )


def kv_bytes_per_token(shape: ModelConfig, dtype: str) -> int:
    """Return the bytes of a token's K and V, over all layers and KV heads."""
    require_known("KV dtype", PLAIN_DTYPES, dtype)
    num_values = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim
    return int(num_values * PLAIN_DTYPES[dtype])


def model_memory(
    shape: ModelConfig, *, dtype: str, kv_dtype: str, num_sequences: int, max_len: int
) -> ModelMemory:
    """Return the memory of one model that serves `num_sequences` texts of `max_len` tokens."""
    per_token = kv_bytes_per_token(shape, kv_dtype)
    per_sequence = per_token * check_count(max_len, "max_len")
    return ModelMemory(
        num_params=sum(num_params(shape)),
        weight_bytes=weight_bytes(shape, dtype),
        kv_bytes_per_token=per_token,
        kv_bytes_per_sequence=per_sequence,
        kv_bytes=per_sequence * check_count(num_sequences, "the number of sequences"),
    )
