"""Integer dot products on each instruction set: in every lane, four bytes times four bytes are
added to an int32.

Weights are unsigned and digits signed; on ARM both are signed. All of them are exact, so the bits
do not depend on which one is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from forerun.kernels.cpu.codegen.lanes import I16, I32, Emitter, Value, constant, vector
from forerun.kernels.cpu.products.integer_weights import nibbles

Dot = Callable[[Emitter, Value, Value, Value], Value]  # sums, weights, digits


def sdot(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    return e.intrinsic("aarch64.neon.sdot.v4i32.v16i8", sums.type, [sums, weights, digits])


def smmla(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """Multiply eight bytes of two outputs with eight of two rows: sums are [output, row]."""
    return e.intrinsic("aarch64.neon.smmla.v4i32.v16i8", sums.type, [sums, weights, digits])


def smull(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """Add pairs of products in 16 bits, which wrap: weights must be below 128."""
    low, high = _products(e, weights, digits)
    return e.builder.add(sums, _wider_pairs(e, _pairs(e, low, high)))


def smull_of_bytes(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """As `smull` for weights of 8 bits: products are added in 32 bits."""
    low, high = (_wider_pairs(e, half) for half in _products(e, weights, digits))
    return e.builder.add(sums, _pairs(e, low, high))


def _products(e: Emitter, weights: Value, digits: Value) -> list[Value]:
    """Return the products of the first eight bytes and those of the last, in 16 bits."""
    b, products = e.builder, []
    for at in (0, 8):
        half = [e.shuffle(x, x, list(range(at, at + 8))) for x in (weights, digits)]
        products.append(b.mul(*(b.sext(x, vector(I16, 8)) for x in half)))
    return products


def _pairs(e: Emitter, low: Value, high: Value) -> Value:
    """Add neighbouring elements."""
    count = 2 * low.type.count
    evens, odds = (e.shuffle(low, high, list(range(first, count, 2))) for first in (0, 1))
    return e.builder.add(evens, odds)


def _wider_pairs(e: Emitter, shorts: Value) -> Value:
    return e.intrinsic("aarch64.neon.saddlp.v4i32.v8i16", vector(I32, 4), [shorts])


def vpdpbusd(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    b, bits = e.builder, 32 * sums.type.count
    packed = [b.bitcast(value, sums.type) for value in (weights, digits)]
    return e.intrinsic(f"x86.avx512.vpdpbusd.{bits}", sums.type, [sums, *packed])


def maddubs(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """Add pairs of products in 16 bits, which saturate: weights must be below 128."""
    return _scaled_maddubs(e, sums, weights, digits, 1)


def maddubs_of_bytes(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """As `maddubs` for weights of 8 bits, which are multiplied nibble by nibble."""
    low, high = nibbles(e, weights)
    sums = _scaled_maddubs(e, sums, high, digits, 16)
    return _scaled_maddubs(e, sums, low, digits, 1)


def _scaled_maddubs(e: Emitter, sums: Value, weights: Value, digits: Value, factor: int) -> Value:
    half = vector(I16, 2 * sums.type.count)
    to_pairs, to_fours = {
        16: ("x86.avx512.pmaddubs.w.512", "x86.avx512.pmaddw.d.512"),
        8: ("x86.avx2.pmadd.ub.sw", "x86.avx2.pmadd.wd"),
    }[sums.type.count]
    pairs = e.intrinsic(to_pairs, half, [weights, digits])
    factors = constant(I16, [factor] * half.count)
    return e.builder.add(sums, e.intrinsic(to_fours, sums.type, [pairs, factors]))


def portable(e: Emitter, sums: Value, weights: Value, digits: Value) -> Value:
    """The dot product in plain IR, for processors without an instruction for it."""
    b, count = e.builder, sums.type.count
    wide = vector(I32, 4 * count)
    products = b.mul(b.zext(weights, wide), b.sext(digits, wide))
    for first in range(4):
        picked = e.shuffle(products, products, list(range(first, 4 * count, 4)))
        sums = b.add(sums, picked)
    return sums


DOTS: Final[dict[str, Dot]] = {
    "vnni": vpdpbusd,
    "avxvnni": vpdpbusd,
    "avx512": maddubs,
    "avx2": maddubs,
    "dotprod": sdot,
    "i8mm": sdot,
    "neon": smull,
    "sse": portable,
}
DOTS_OF_BYTES: Final = DOTS | {
    "avx512": maddubs_of_bytes,
    "avx2": maddubs_of_bytes,
    "neon": smull_of_bytes,
}
