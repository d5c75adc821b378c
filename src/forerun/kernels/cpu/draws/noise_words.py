"""Random words of neighbouring tokens at once: `sampling.philox` itself, run on IR values.

The specification asks of its words only `*`, `>>`, `&`, `^` and `+`, so what it does to numbers it
also writes down as code, and no constant is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir
from numba import int64, uint32, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import I32, I64, Emitter, Value, constant, i64, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.sampling.noise import Stream
from forerun.sampling.philox import philox

RUN_LEN: Final = 512  # tokens whose words are written at once: 2 kB, in the nearest cache
_NUM_LANES: Final = 16
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class _Word:
    """32 bits, alone or in lanes."""

    builder: Any
    value: Value

    def __mul__(self, factor: int) -> _Wide:
        wide = _like(I64, self.value)
        product = self.builder.mul(self.builder.zext(self.value, wide), _splat(wide, factor))
        return _Wide(self.builder, product)

    def __xor__(self, other: _Word | int) -> _Word:
        left, right = self.value, self._lane_value(other)
        if left.type != right.type:
            lanes = Emitter(self.builder, Machine.host())
            left, right = (
                lanes.splat(value, _NUM_LANES) if value.type == I32 else value
                for value in (left, right)
            )
        return _Word(self.builder, self.builder.xor(left, right))

    __rxor__ = __xor__

    def __add__(self, addend: int) -> _Word:
        return _Word(self.builder, self.builder.add(self.value, self._lane_value(addend)))

    def __and__(self, mask: int) -> _Word:
        assert mask == _MASK, mask
        return self

    def _lane_value(self, other: _Word | int) -> Value:
        return other.value if isinstance(other, _Word) else _splat(self.value.type, other)


@dataclass(frozen=True)
class _Wide:
    """64 bits, alone or in lanes; only its halves are of use."""

    builder: Any
    value: Value

    def __rshift__(self, num_bits: int) -> _Word:
        assert num_bits == 32, num_bits
        return self._half(1)

    def __and__(self, mask: int) -> _Word:
        assert mask == _MASK, mask
        return self._half(0)

    def _half(self, which: int) -> _Word:
        """Halves are picked as lanes: after a shift and a cut, LLVM multiplies twice."""
        b, count = self.builder, getattr(self.value.type, "count", 1)
        halves = b.bitcast(self.value, vector(I32, 2 * count))
        if count == 1:
            return _Word(b, b.extract_element(halves, I32(which)))
        lanes = Emitter(b, Machine.host())
        return _Word(b, lanes.shuffle(halves, halves, list(range(which, 2 * count, 2))))


@emitted(void, int64, int64, int64, int64)
def write_words(b: Any, key: Value, position: Value, first: Value, out: Value) -> None:
    """The first words of RUN_LEN tokens from `first` on, as uint32."""
    e = Emitter(b, Machine.host())

    def body(idx: Value, _carried: list[Value]) -> list[Value]:
        start = b.mul(idx, i64(_NUM_LANES))
        words = group_words(b, key, position, b.add(first, start))
        e.store(words, b.add(out, b.mul(start, i64(4))))
        return []

    loop(b, i64(RUN_LEN // _NUM_LANES), [], body)


def group_words(b: Any, key: Value, position: Value, first: Value) -> Value:
    """The first words of 16 tokens from `first` on, in lanes."""
    start = Emitter(b, Machine.host()).splat(b.trunc(first, I32), _NUM_LANES)
    tokens = b.add(start, constant(I32, list(range(_NUM_LANES))))
    return _words(b, key, position, tokens)[0].value


@emitted(uint32, int64, int64, int64)
def first_word(b: Any, key: Value, position: Value, token: Value) -> Value:
    return _words(b, key, position, b.trunc(token, I32))[0].value


@emitted(uint32, int64, int64, int64)
def second_word(b: Any, key: Value, position: Value, token: Value) -> Value:
    return _words(b, key, position, b.trunc(token, I32))[1].value


@emitted(uint32, int64, int64)
def word_at(b: Any, address: Value, idx: Value) -> Value:
    """The idx-th uint32 at an address."""
    return b.load(b.gep(b.inttoptr(address, I32.as_pointer()), [idx]))


def _words(b: Any, key: Value, position: Value, tokens: Value) -> tuple[_Word, ...]:
    """The words of `Noise.gumbel`; those that nobody reads cost nothing."""
    counter = (_Wide(b, position) & _MASK, _Word(b, tokens), Stream.TARGET, 0)
    return philox(_Wide(b, key), counter)  # type: ignore[arg-type]


def _like(element: Any, value: Value) -> Any:
    """The type of `element` in as many lanes as a value."""
    kind = value.type
    return vector(element, kind.count) if isinstance(kind, ir.VectorType) else element


def _splat(kind: Any, number: int) -> Value:
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)
