"""Every format of weights that is read as it is: how a block is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Format:
    """A block is walked in `num_chunks` chunks by a loop, to keep code short. It is float16 scales,
    and words of four bytes from `words_at` on."""

    block_len: int
    block_bytes: int
    num_chunks: int = 1
    scales_at: tuple[int, ...] = ()
    words_at: int = 0


# These have no blocks; rows are padded to a multiple of 16.
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
# Of one output in a tile, where the processor multiplies signed bytes: to put weights of six bits
# together takes longer than to read them as bytes.
SIGNED_TILES: Final = PACKED | {"Q6_K": Format(256, 274, 2, (272,))}
