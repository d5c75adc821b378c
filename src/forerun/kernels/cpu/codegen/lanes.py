"""Vector IR, written explicitly, so that the order of arithmetic does not depend on an optimizer.

A product of two rows of K numbers has `num_lanes` partial sums: element k goes to lane k mod
num_lanes, in ascending order of k, by one fused multiply-add each; then the lanes are folded in
halves. This is so in every tile shape, so a tile may have any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from llvmlite import ir

from forerun.kernels.cpu.codegen.machine import Machine

Value = Any  # an llvmlite value; the library is untyped

F16: Final = ir.HalfType()
F32: Final = ir.FloatType()
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
GROUP_LEN: Final = 16  # weights are decoded in groups of this many


def padded(length: int) -> int:
    """Round up to a multiple of 16, the length of rows in memory; zeros follow the values."""
    return -(-length // GROUP_LEN) * GROUP_LEN


@cache
def power_of_two(num: int) -> int:
    """Return the least power of two that is not less than `num`."""
    return 1 << max(num - 1, 0).bit_length()


def vector(element: Any, length: int) -> Any:
    return ir.VectorType(element, length)


def i64(value: int) -> Value:
    return ir.Constant(I64, value)


def constant(element: Any, values: list[int] | list[float]) -> Value:
    return ir.Constant(vector(element, len(values)), values)


@dataclass(frozen=True)
class Emitter:
    """Emits vector code for one machine, at the builder's position."""

    builder: Any
    machine: Machine

    @property
    def lanes(self) -> Any:
        return vector(F32, self.machine.num_lanes)

    def pointer(self, address: Value, element: Any) -> Value:
        return self.builder.inttoptr(address, element.as_pointer())

    def load(self, address: Value, kind: Any) -> Value:
        """Load a value of type `kind` from an address that need not be aligned."""
        value = self.builder.load(self.pointer(address, kind))
        value.align = 1
        return value

    def store(self, value: Value, address: Value) -> None:
        self.builder.store(value, self.pointer(address, value.type)).align = 1

    def prefetch(self, address: Value, *, to_write: bool = False) -> None:
        """Prefetch memory that will soon be read or written; an invalid address does no harm."""
        use, to_keep, data = I32(int(to_write)), I32(3), I32(1)
        args = [self.pointer(address, I8), use, to_keep, data]
        self.intrinsic("prefetch.p0", ir.VoidType(), args)

    def offset(self, address: Value, num_bytes: int) -> Value:
        return self.builder.add(address, i64(num_bytes)) if num_bytes else address

    def call(self, name: str, kind: Any, args: list[Value]) -> Value:
        """Call an LLVM intrinsic such as fma, overloaded by `kind`."""
        return self.intrinsic(f"{name}.{_suffix(kind)}", kind, args)

    def intrinsic(self, name: str, result: Any, args: list[Value]) -> Value:
        """Call an LLVM intrinsic by its full name."""
        module, full = self.builder.module, f"llvm.{name}"
        signature = ir.FunctionType(result, [arg.type for arg in args])
        function = module.globals.get(full) or ir.Function(module, signature, full)
        return self.builder.call(function, args)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.call("fma", a.type, [a, b, c])

    def splat(self, scalar: Value, length: int) -> Value:
        kind = vector(scalar.type, length)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.shuffle(first, first, [0] * length)

    def shuffle(self, left: Value, right: Value, order: list[int]) -> Value:
        return self.builder.shuffle_vector(left, right, constant(I32, order))

    def part(self, value: Value, first: int, length: int) -> Value:
        if length == value.type.count:
            return value
        return self.shuffle(value, value, list(range(first, first + length)))

    def split(self, group: Value) -> list[Value]:
        """Split a group of floats into vectors of `num_lanes`."""
        width = self.machine.num_lanes
        return [self.part(group, first, width) for first in range(0, group.type.count, width)]

    def fold(self, value: Value) -> Value:
        """Return the sum of all lanes: halves are added until one lane is left."""
        half = value.type.count // 2
        while half:
            low, high = self.part(value, 0, half), self.part(value, half, half)
            value, half = self.builder.fadd(low, high), half // 2
        return self.builder.extract_element(value, I32(0))

    def fold_each(self, values: list[Value], add: Callable[..., Value] | None = None) -> Value:
        """Fold each of several vectors, no more than they have lanes; return the results as one.

        `add` replaces the addition of floats, by that of integers or another operation.
        """
        add, width = add or self.builder.fadd, values[0].type.count  # lanes left per vector
        while width > 1:
            if len(values) > 1:
                values = [*values, values[-1]] if len(values) % 2 else values
                pairs = list(zip(values[::2], values[1::2], strict=True))
            else:
                pairs = [(values[0], values[0].type(None))]
            width //= 2
            starts = range(0, (1 + (len(values) > 1)) * values[0].type.count, 2 * width)
            low = [start + lane for start in starts for lane in range(width)]
            high = [lane + width for lane in low]
            values = [add(self.shuffle(*pair, low), self.shuffle(*pair, high)) for pair in pairs]
        return values[0]

    def times(self, factor: float, values: Value) -> Value:
        return self.builder.fmul(constant(F32, [factor] * values.type.count), values)

    def from_integers(self, integers: Value) -> Value:
        """Convert integers to floats: int32, or shorter ones that are not negative."""
        b, length = self.builder, integers.type.count
        wide = integers if integers.type.element == I32 else b.zext(integers, vector(I32, length))
        return b.sitofp(wide, vector(F32, length))

    def from_fixed(self, integers: Value, num_bits: int) -> Value:
        """Convert unsigned integers to floats, divided by 2^num_bits (1 … 32 bits), on ARM."""
        name = "aarch64.neon.vcvtfxu2fp.v4f32.v4i32"
        return self.intrinsic(name, vector(F32, 4), [integers, I32(num_bits)])

    def spread(self, value: Value) -> Value:
        """Copy the element of a vector of one to all lanes of a group."""
        return self.shuffle(value, value, [0] * GROUP_LEN)


def _suffix(kind: Any) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return "f32" if kind == F32 else f"i{kind.width}"
