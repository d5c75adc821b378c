"""Random words of 16 tokens at a time: `sampling.philox` itself, called with IR values.

`philox` uses only `*`, `>>`, `&`, `^` and `+` of its words. So with words that emit IR it generates
code for what it otherwise computes, and no constant is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from numba import int64, uint32, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import I32, I64, Emitter, Value, constant, i64, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.sampling.noise import Stream
from forerun.sampling.philox import philox

RUN_LEN: Final = 512  # tokens whose words are written together: 2 kB, which stay in the L1 cache
_NUM_LANES: Final = 16
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class _Word:
    """A word of 32 bits: a scalar, or in lanes of 64 bits, ready to multiply, whose upper halves
    are arbitrary."""

    builder: Any
    value: Value

    def __mul__(self, factor: int) -> _Wide:
        b, value = self.builder, self.value
        if value.type == I32:
            return _Wide(b, b.mul(b.zext(value, I64), i64(factor)))
        return _Wide(b, b.mul(b.and_(value, _splat(_MASK)), _splat(factor)))

    def __xor__(self, other: _Word | int) -> _Word:
        b, left = self.builder, self.value
        right = other.value if isinstance(other, _Word) else I32(other)
        if left.type != right.type:
            left, right = (_in_lanes(b, value) for value in (left, right))
        return _Word(b, b.xor(left, right))

    __rxor__ = __xor__

    def __add__(self, addend: int) -> _Word:
        return _Word(self.builder, self.builder.add(self.value, I32(addend)))

    def __and__(self, mask: int) -> _Word:
        assert mask == _MASK, mask
        return self


@dataclass(frozen=True)
class _Wide:
    """A product of 64 bits, a scalar or in lanes, of which only the halves are used."""

    builder: Any
    value: Value

    def __rshift__(self, num_bits: int) -> _Word:
        assert num_bits == 32, num_bits
        if self.value.type == I64:
            return self._half(1)
        return _Word(self.builder, self.builder.lshr(self.value, _splat(32)))

    def __and__(self, mask: int) -> _Word:
        assert mask == _MASK, mask
        return self._half(0) if self.value.type == I64 else _Word(self.builder, self.value)

    def _half(self, which: int) -> _Word:
        b = self.builder
        return _Word(b, b.extract_element(b.bitcast(self.value, vector(I32, 2)), I32(which)))


@emitted(void, int64, int64, int64, int64)
def write_words(b: Any, key: Value, position: Value, first: Value, out: Value) -> None:
    """Write the first words of RUN_LEN tokens from `first` on, as uint32."""
    e = Emitter(b, Machine.host())

    def body(idx: Value, _carried: list[Value]) -> list[Value]:
        start = b.mul(idx, i64(_NUM_LANES))
        words = group_words(b, key, position, b.add(first, start))
        e.store(words, b.add(out, b.mul(start, i64(4))))
        return []

    loop(b, i64(RUN_LEN // _NUM_LANES), [], body)


def group_words(b: Any, key: Value, position: Value, first: Value) -> Value:
    """Return the first words of 16 tokens from `first` on, in lanes."""
    start = Emitter(b, Machine.host()).splat(first, _NUM_LANES)
    tokens = b.add(start, constant(I64, list(range(_NUM_LANES))))
    return b.trunc(_words(b, key, position, tokens)[0].value, vector(I32, _NUM_LANES))


@emitted(uint32, int64, int64, int64)
def first_word(b: Any, key: Value, position: Value, token: Value) -> Value:
    return _words(b, key, position, b.trunc(token, I32))[0].value


@emitted(uint32, int64, int64, int64)
def second_word(b: Any, key: Value, position: Value, token: Value) -> Value:
    return _words(b, key, position, b.trunc(token, I32))[1].value


@emitted(uint32, int64, int64)
def word_at(b: Any, address: Value, idx: Value) -> Value:
    """Load the idx-th uint32 at an address."""
    return b.load(b.gep(b.inttoptr(address, I32.as_pointer()), [idx]))


def _words(b: Any, key: Value, position: Value, tokens: Value) -> tuple[_Word, ...]:
    """Return the words of `Noise.gumbel`; LLVM drops the code of words that are not used."""
    counter = (_Wide(b, position) & _MASK, _Word(b, tokens), Stream.TARGET, 0)
    return philox(_Wide(b, key), counter)  # type: ignore[arg-type]


def _in_lanes(b: Any, value: Value) -> Value:
    if value.type != I32:
        return value
    return Emitter(b, Machine.host()).splat(b.zext(value, I64), _NUM_LANES)


def _splat(number: int) -> Value:
    return constant(I64, [number] * _NUM_LANES)
