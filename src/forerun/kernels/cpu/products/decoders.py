"""How a block of packed weights becomes floats, as vector IR.

A block yields groups of 16 weights in ascending order, each as (t, d, c): the weight is t·d + c.
Each is 16 floats. Formats without a scale have d None, those whose c would be 0 have c None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from forerun.kernels.cpu.codegen.lanes import (
    F16,
    F32,
    GROUP_LEN,
    I8,
    I16,
    I32,
    Emitter,
    Value,
    constant,
    vector,
)

BYTES16: Final = vector(I8, 16)


@dataclass(frozen=True)
class Group:
    t: Value
    d: Value | None = None
    c: Value | None = None

    def weights(self, e: Emitter) -> Value:
        """16 floats: t·d + c."""
        if self.d is None:
            return self.t
        if self.c is None:
            return e.builder.fmul(self.t, self.d)
        return e.fma(self.t, self.d, self.c)


class Decoder(Protocol):
    """One format. A block is walked in `num_chunks` chunks by a loop, to keep code short."""

    @property
    def block_len(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def num_chunks(self) -> int: ...

    def chunk(self, e: Emitter, block: Value, idx: Value, /) -> list[Group]:
        """The groups of chunk `idx` of the block at address `block`."""


@dataclass(frozen=True)
class Floats:
    """F32, F16, BF16: no blocks; rows are padded to a multiple of 16."""

    kind: Any
    block_bytes: int
    block_len: int = GROUP_LEN
    num_chunks: int = 1

    def chunk(self, e: Emitter, block: Value, _idx: Value) -> list[Group]:
        raw = e.load(block, vector(self.kind, GROUP_LEN))
        if self.kind == F32:
            return [Group(raw)]
        if self.kind == F16:
            return [Group(e.builder.fpext(raw, vector(F32, GROUP_LEN)))]
        wide = e.builder.zext(raw, vector(I32, GROUP_LEN))  # bfloat16: the upper half of a float
        shifted = e.builder.shl(wide, constant(I32, [16] * GROUP_LEN))
        return [Group(e.builder.bitcast(shifted, vector(F32, GROUP_LEN)))]


@dataclass(frozen=True)
class Q8_0:  # noqa: N801 - the format's own name
    block_len: int = 32
    block_bytes: int = 34
    num_chunks: int = 1

    def chunk(self, e: Emitter, block: Value, _idx: Value) -> list[Group]:
        d = e.spread(e.halves(block), 0)
        packed = [e.load(e.offset(block, at), BYTES16) for at in (2, 18)]
        signed = [e.builder.sext(quants, vector(I32, GROUP_LEN)) for quants in packed]
        return [Group(e.from_integers(quants), d) for quants in signed]


def nibbles(e: Emitter, packed: Value) -> tuple[Value, Value]:
    """The low and the high nibbles of bytes."""
    count = packed.type.count
    low = e.builder.and_(packed, constant(I8, [0x0F] * count))
    return low, e.builder.lshr(packed, constant(I8, [4] * count))


def wide_nibbles(e: Emitter, packed: Value) -> tuple[Value, Value]:
    """`nibbles` as int32: widened first, which x86 does once for both and while it loads."""
    b, wide = e.builder, vector(I32, GROUP_LEN)
    widened = b.zext(packed, wide)
    return b.and_(widened, constant(I32, [0x0F] * 16)), b.lshr(widened, constant(I32, [4] * 16))


@dataclass(frozen=True)
class Q4:
    """Q4_0 (w = d·(q − 8)) and Q4_1 (w = d·q + m)."""

    block_bytes: int
    stores_min: bool
    block_len: int = 32
    num_chunks: int = 1

    def chunk(self, e: Emitter, block: Value, _idx: Value) -> list[Group]:
        scales = e.halves(block)
        d = e.spread(scales, 0)
        c = e.spread(scales, 1) if self.stores_min else e.times(-8.0, d)
        packed = e.load(e.offset(block, self.block_bytes - 16), BYTES16)
        return [Group(e.from_integers(part), d, c) for part in wide_nibbles(e, packed)]


FLOAT_DECODERS: Final[dict[str, Decoder]] = {
    "F32": Floats(F32, 64),
    "F16": Floats(F16, 32),
    "BF16": Floats(I16, 32),
}
BLOCK_DECODERS: Final[dict[str, Decoder]] = {
    "Q8_0": Q8_0(),
    "Q4_0": Q4(18, stores_min=False),
    "Q4_1": Q4(20, stores_min=True),
}
