"""Weight formats: elements and bytes per block, by GGUF's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Format:
    """A block of `block_len` consecutive elements of a row takes `block_bytes` bytes."""

    name: str
    gguf_id: int
    block_len: int
    block_bytes: int

    def row_bytes(self, row_len: int) -> int:
        """Return the bytes of one row; `row_len` must be a multiple of `block_len`."""
        assert row_len % self.block_len == 0, (self.name, row_len)
        return row_len // self.block_len * self.block_bytes


_FORMATS: Final = (
    Format("F32", 0, 1, 4),
    Format("F16", 1, 1, 2),
    Format("Q4_0", 2, 32, 18),
    Format("Q4_1", 3, 32, 20),
    Format("Q5_0", 6, 32, 22),
    Format("Q5_1", 7, 32, 24),
    Format("Q8_0", 8, 32, 34),
    Format("Q2_K", 10, 256, 84),
    Format("Q3_K", 11, 256, 110),
    Format("Q4_K", 12, 256, 144),
    Format("Q5_K", 13, 256, 176),
    Format("Q6_K", 14, 256, 210),
    Format("IQ2_XXS", 16, 256, 66),
    Format("IQ2_XS", 17, 256, 74),
    Format("IQ3_XXS", 18, 256, 98),
    Format("IQ1_S", 19, 256, 50),
    Format("IQ4_NL", 20, 32, 18),
    Format("IQ3_S", 21, 256, 110),
    Format("IQ2_S", 22, 256, 82),
    Format("IQ4_XS", 23, 256, 136),
    Format("IQ1_M", 29, 256, 56),
    Format("BF16", 30, 1, 2),
    Format("TQ1_0", 34, 256, 54),
    Format("TQ2_0", 35, 256, 66),
    Format("MXFP4", 39, 32, 17),
)

FORMATS: Final = {f.name: f for f in _FORMATS}
FORMATS_BY_GGUF_ID: Final = {f.gguf_id: f for f in _FORMATS}
