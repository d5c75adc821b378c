"""The formats of weights that kernels read without repacking, and the layout of their blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Format:
    """A block consists of float16 scales and, from `words_at` on, words of four bytes. A loop goes
    through it in `num_chunks` chunks, to keep the code short."""

    block_len: int
    block_bytes: int
    num_chunks: int = 1
    scales_at: tuple[int, ...] = ()
    words_at: int = 0


# Floats have no blocks in the file: 16 of them count as one, to which rows are padded.
FLOATS: Final = {"F32": Format(16, 64), "F16": Format(16, 32), "BF16": Format(16, 32)}
PACKED: Final = {
    "Q8_0": Format(32, 34, scales_at=(0,), words_at=2),
    "Q4_0": Format(32, 18, scales_at=(0,), words_at=2),
    "Q4_1": Format(32, 20, scales_at=(0, 2), words_at=4),
    "Q4_K": Format(256, 144, 4, (0, 2), 4),
    "Q5_K": Format(256, 176, 4, (0, 2), 4),
    "Q6_K": Format(256, 210, 2, (208,)),
}
FORMATS: Final = FLOATS | PACKED
# In tiles, where the processor multiplies signed bytes (ARM), per output: assembling weights of six
# bits in every product takes longer than reading them as bytes.
SIGNED_TILES: Final = PACKED | {"Q6_K": Format(256, 274, 2, (272,))}
