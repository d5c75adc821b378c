"""Vector IR, written out: what a loop computes is fixed here and not left to an optimiser.

A product of two rows of K numbers is kept in `num_lanes` partial sums: element k goes to lane
k mod num_lanes, in ascending order of k, by one fused multiply-add each; the lanes are then folded
in halves. This holds in every tile shape, so a tile may have as many rows as it likes.
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
    """The next multiple of 16: rows are laid out so, with zeros at their end."""
    return -(-length // GROUP_LEN) * GROUP_LEN


@cache
def power_of_two(num: int) -> int:
    """The next that is not less."""
    return 1 << max(num - 1, 0).bit_length()


def vector(element: Any, length: int) -> Any:
    return ir.VectorType(element, length)


def i64(value: int) -> Value:
    return ir.Constant(I64, value)


def constant(element: Any, values: list[int] | list[float]) -> Value:
    return ir.Constant(vector(element, len(values)), values)


@dataclass(frozen=True)
class Emitter:
    """Emits vector code for one machine at the builder's place."""

    builder: Any
    machine: Machine

    @property
    def lanes(self) -> Any:
        return vector(F32, self.machine.num_lanes)

    def pointer(self, address: Value, element: Any) -> Value:
        return self.builder.inttoptr(address, element.as_pointer())

    def load(self, address: Value, kind: Any) -> Value:
        """A value of type `kind` at an address that need not be aligned."""
        value = self.builder.load(self.pointer(address, kind))
        value.align = 1
        return value

    def store(self, value: Value, address: Value) -> None:
        self.builder.store(value, self.pointer(address, value.type)).align = 1

    def prefetch(self, address: Value, *, to_write: bool = False) -> None:
        """Ask for memory that will soon be read or written; an address outside of it does no
        harm."""
        use, to_keep, data = I32(int(to_write)), I32(3), I32(1)
        args = [self.pointer(address, I8), use, to_keep, data]
        self.intrinsic("prefetch.p0", ir.VoidType(), args)

    def offset(self, address: Value, num_bytes: int) -> Value:
        return self.builder.add(address, i64(num_bytes)) if num_bytes else address

    def call(self, name: str, kind: Any, args: list[Value]) -> Value:
        """An LLVM intrinsic such as fma, overloaded by `kind`."""
        return self.intrinsic(f"{name}.{_suffix(kind)}", kind, args)

    def intrinsic(self, name: str, result: Any, args: list[Value]) -> Value:
        """An LLVM intrinsic by its whole name."""
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
        """A group of floats as vectors of `num_lanes`."""
        width = self.machine.num_lanes
        return [self.part(group, first, width) for first in range(0, group.type.count, width)]

    def fold(self, value: Value) -> Value:
        """The sum of all lanes: halves are added until one is left."""
        half = value.type.count // 2
        while half:
            low, high = self.part(value, 0, half), self.part(value, half, half)
            value, half = self.builder.fadd(low, high), half // 2
        return self.builder.extract_element(value, I32(0))

    def fold_each(self, values: list[Value], add: Callable[..., Value] | None = None) -> Value:
        """What `fold` makes of each of some vectors, no more than have lanes, as one vector.

        `add` stands for another addition, of integers, or for what is not one at all.
        """
        add, width = add or self.builder.fadd, values[0].type.count  # lanes left of each
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
        """Integers of up to 32 bits, extended already or not negative, as floats."""
        b, length = self.builder, integers.type.count
        wide = integers if integers.type.element == I32 else b.zext(integers, vector(I32, length))
        return b.sitofp(wide, vector(F32, length))

    def from_fixed(self, integers: Value, num_bits: int) -> Value:
        """Integers without a sign, divided by 2 to the power of 1 … 32, on ARM."""
        name = "aarch64.neon.vcvtfxu2fp.v4f32.v4i32"
        return self.intrinsic(name, vector(F32, 4), [integers, I32(num_bits)])

    def spread(self, value: Value) -> Value:
        """The one element of a vector in all places of a group."""
        return self.shuffle(value, value, [0] * GROUP_LEN)


def _suffix(kind: Any) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    return "f32" if kind == F32 else f"i{kind.width}"
