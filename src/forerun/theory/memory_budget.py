"""What a target and its draft model occupy: weights, and KV caches when every row is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from forerun.errors import InvalidOption
from forerun.option_checks import require_known
from forerun.theory.model_shape import ModelShape
from forerun.theory.ranges import check_count

BLOCK_LEN: Final = 32  # numbers that share a scale in the quantised formats (GGUF)

# Bytes per number, scales included.
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
    """One model's share, in bytes."""

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
    """Both models side by side; activations come on top."""

    target: ModelMemory
    draft: ModelMemory

    @property
    def total_bytes(self) -> int:
        return self.target.total_bytes + self.draft.total_bytes


def weight_bytes(shape: ModelShape, dtype: str) -> int:
    """All parameters in `dtype`; quantised files keep norms and biases in float32."""
    require_known("dtype", WEIGHT_DTYPES, dtype)
    vector_dtype = "float32" if dtype in QUANTISED_DTYPES else dtype
    if dtype in QUANTISED_DTYPES:
        _check_blocks(shape, dtype)
    matrices = shape.num_matrix_params * WEIGHT_DTYPES[dtype]
    return int(matrices + shape.num_vector_params * PLAIN_DTYPES[vector_dtype])


def _check_blocks(shape: ModelShape, dtype: str) -> None:
    widths = (shape.hidden_size, shape.intermediate_size, shape.num_heads * shape.head_dim)
    if any(width % BLOCK_LEN for width in widths):
        raise InvalidOption(
            f"{dtype} packs rows in blocks of {BLOCK_LEN}, but this model's rows are "
            f"{' and '.join(map(str, sorted(set(widths))))} wide; choose a plain dtype."
        )


def kv_bytes_per_token(shape: ModelShape, dtype: str) -> int:
    require_known("KV dtype", PLAIN_DTYPES, dtype)
    return int(shape.kv_values_per_token * PLAIN_DTYPES[dtype])


def model_memory(
    shape: ModelShape, *, dtype: str, kv_dtype: str, num_sequences: int, max_len: int
) -> ModelMemory:
    """The memory of one model serving `num_sequences` rows of `max_len` tokens."""
    per_token = kv_bytes_per_token(shape, kv_dtype)
    per_sequence = per_token * check_count(max_len, "max_len")
    return ModelMemory(
        num_params=shape.num_params,
        weight_bytes=weight_bytes(shape, dtype),
        kv_bytes_per_token=per_token,
        kv_bytes_per_sequence=per_sequence,
        kv_bytes=per_sequence * check_count(num_sequences, "the number of sequences"),
    )
