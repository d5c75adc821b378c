"""Dequantisers against the gguf library's, bit for bit."""

from __future__ import annotations

import gguf.quants
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from forerun.errors import UnsupportedModel
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.formats import FORMATS

OURS = [
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K",
]  # fmt: skip
LIBRARY = ["IQ2_XXS", "Q2_K", "Q3_K", "IQ4_XS"]


def _random_blocks(name: str, num_rows: int, blocks_per_row: int) -> np.ndarray:
    """Random bytes: every quant, scale and bit pattern, but no NaN, which equals nothing."""
    rng = np.random.default_rng(len(name) * 1000 + num_rows)
    row_bytes = FORMATS[name].block_bytes * blocks_per_row
    return rng.integers(0, 256, (num_rows, row_bytes), np.uint8)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", OURS + LIBRARY)
def test_every_block_expands_to_the_librarys_bits(name: str) -> None:
    data = _random_blocks(name, num_rows=37, blocks_per_row=3)
    expected = gguf.quants.dequantize(data, GGMLQuantizationType[name])
    ours = dequantize(data, name)
    assert ours.dtype == np.float32
    assert ours.shape == (37, 3 * FORMATS[name].block_len)
    both_nan = np.isnan(ours) & np.isnan(expected)
    same = ours.view(np.uint32) == expected.view(np.uint32)
    assert np.all(same | both_nan)
    assert same.mean() > 0.9


def test_rows_beyond_one_slice_agree_with_single_rows() -> None:
    data = _random_blocks("Q8_0", num_rows=300, blocks_per_row=40)
    data[:, 1::34] = 0x3C  # scales near 1, so that no NaN hides a difference
    whole = dequantize(data, "Q8_0")
    rows = np.concatenate([dequantize(row[None], "Q8_0") for row in data])
    assert np.array_equal(whole, rows)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_block_sizes_are_ggufs(name: str) -> None:
    kind = GGMLQuantizationType[name]
    assert FORMATS[name].gguf_id == kind
    assert (FORMATS[name].block_len, FORMATS[name].block_bytes) == GGML_QUANT_SIZES[kind]


def test_a_format_without_dequantiser_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("gguf.quants.dequantize", missing)
    with pytest.raises(UnsupportedModel, match="IQ1_M"):
        dequantize(np.zeros((1, 56), np.uint8), "IQ1_M")
