"""Logits against float64, over texts of up to 8,192 tokens."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest

from forerun.models.llama import LlamaModel
from tests.models_llama.naive import naive_logits
from tests.models_llama.runs import chain_logits
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

pytestmark = pytest.mark.gpu

LENGTHS: Final = (1, 130, 257, 1024, 4096, 8192)
CONFIG: Final = tiny_config(
    num_layers=2, num_heads=2, num_kv_heads=1, head_dim=64, hidden_size=256, intermediate_size=512,
    max_len=8192,
)  # fmt: skip
# ‖found − exact‖ / ‖exact‖ of a row; rounding the weights alone makes a third of it.
BOUNDS: Final = {
    ("bfloat16", None): 0.03,
    ("float16", None): 0.004,
    ("float32", None): 3e-5,
    ("float16", "int8"): 0.06,
}


@functools.cache
def exact() -> tuple[TinyCheckpoint, list[int], npt.NDArray[np.float64]]:
    """A model, a text, and the exact logits after the first LENGTHS tokens."""
    checkpoint = TinyCheckpoint(CONFIG)
    tokens = np.random.default_rng(7).integers(0, CONFIG.vocab_size, max(LENGTHS)).tolist()
    return checkpoint, tokens, naive_logits(checkpoint, tokens)[np.array(LENGTHS) - 1]


@pytest.mark.parametrize(("dtype", "quantization"), BOUNDS)
def test_logits_are_near_those_of_float64(dtype: str, quantization: str | None) -> None:
    from forerun.kernels.cuda import CudaKernels

    checkpoint, tokens, expected = exact()
    model = LlamaModel.load(checkpoint, CudaKernels(dtype, quantization=quantization))
    found = chain_logits(model, tokens, chunk_len=256)[np.array(LENGTHS) - 1]
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < BOUNDS[dtype, quantization], dict(zip(LENGTHS, error, strict=True))


# Hidden and inner sizes that are long enough for segments of columns but are no multiples of a
# segment, a group or 16 bytes. float32 needs none of these.
ODD: Final = ((1056, 1088), (1080, 2080), (1060, 1092), (3000, 1032), (2176, 3968))


@pytest.mark.parametrize("widths", ODD, ids=str)
def test_any_width_runs(widths: tuple[int, int]) -> None:
    """Near float64, and with the same bits one token at a time."""
    from forerun.kernels.cuda import CudaKernels

    config = tiny_config(
        num_layers=1, num_heads=34, num_kv_heads=2, head_dim=32, hidden_size=widths[0],
        intermediate_size=widths[1],
    )  # fmt: skip
    checkpoint = TinyCheckpoint(config)
    tokens = np.random.default_rng(3).integers(0, config.vocab_size, 20).tolist()
    model = LlamaModel.load(checkpoint, CudaKernels("float32"))
    found, expected = chain_logits(model, tokens), naive_logits(checkpoint, tokens)
    error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert error.max() < BOUNDS["float32", None]
    np.testing.assert_array_equal(chain_logits(model, tokens, chunk_len=1), found)
