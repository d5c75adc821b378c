"""Weights expanded to float32: floats by numpy, blocks by the gguf library."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from forerun.errors import UnsupportedModel
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.formats import FORMATS

PACKED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "Q2_K", "Q3_K"]


def _random_blocks(name: str, num_rows: int, blocks_per_row: int) -> np.ndarray:
    rng = np.random.default_rng(len(name) * 1000 + num_rows)
    row_bytes = FORMATS[name].block_bytes * blocks_per_row
    return rng.integers(0, 256, (num_rows, row_bytes), np.uint8)


@pytest.mark.parametrize(("name", "dtype"), [("F32", np.float32), ("F16", np.float16)])
def test_floats_are_read_as_numpy_reads_them(name: str, dtype: type) -> None:
    values: np.ndarray = np.random.default_rng(1).standard_normal((5, 64)).astype(dtype)
    found = dequantize(values.view(np.uint8), name)
    assert found.dtype == np.float32
    assert np.array_equal(found, values.astype(np.float32))
    assert found.flags.writeable
    assert not np.shares_memory(found, values)


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    values = np.random.default_rng(2).standard_normal((5, 64)).astype(np.float32)
    upper = values.view(np.uint32) >> 16
    found = dequantize(upper.astype(np.uint16).view(np.uint8), "BF16")
    assert np.array_equal(found.view(np.uint32), upper << 16)


def test_q4_1_is_scale_times_nibble_plus_minimum() -> None:
    data = _random_blocks("Q4_1", num_rows=3, blocks_per_row=2)
    data[:, 1::20], data[:, 3::20] = 0x3C, 0xB8  # scales near 1, minima near -0.5
    expected = []
    for block in data.reshape(-1, 20):
        scale, minimum = block[:4].view(np.float16).astype(np.float32)
        nibbles = [*(block[4:] & 15), *(block[4:] >> 4)]
        expected.append([scale * np.float32(q) + minimum for q in nibbles])
    assert np.array_equal(dequantize(data, "Q4_1").reshape(-1, 32), np.array(expected))


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", PACKED)
def test_rows_expand_alone_and_from_a_view_as_they_do_together(name: str) -> None:
    data = _random_blocks(name, num_rows=40, blocks_per_row=3)
    whole = dequantize(data, name)
    assert whole.shape == (40, 3 * FORMATS[name].block_len)
    alone = np.concatenate([dequantize(row[None], name) for row in data])
    assert np.array_equal(whole.view(np.uint32), alone.view(np.uint32))
    every_other = dequantize(data[::2], name)
    assert np.array_equal(whole[::2].view(np.uint32), every_other.view(np.uint32))


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
