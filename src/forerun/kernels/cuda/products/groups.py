"""Weights as bytes, with a scale for each group of columns."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_scale(AT, TO: tl.constexpr):
    """Each thread has those of its own sums: what Triton knows as a load would go through shared
    memory, and all threads would wait for it."""
    if TO == tl.float32:  # noqa: SIM300  # also what Triton's interpreter runs
        scale = tl.load(AT)
    else:
        scale = tl.inline_asm_elementwise(
            "ld.global.f32 $0, [$1];", "=f,l", [AT], dtype=tl.float32, is_pure=True, pack=1
        )
    return scale


@triton.jit
def expand(w):
    """Bytes w as 1024 + w in float16: they are put below the exponent of 1024."""
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $2, 0x64646464, 0x4140; prmt.b32 $1, $2, 0x64646464, 0x4342;",
        "=&r,=r,r",
        [w],
        dtype=tl.float16,
        is_pure=True,
        pack=4,
    )


@triton.jit
def expand_centred(w):
    """Bytes w as w - 128 in float16."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 c;
        mov.b32 c, 0x64806480;
        prmt.b32 $0, $2, 0x64646464, 0x4140;
        prmt.b32 $1, $2, 0x64646464, 0x4342;
        sub.f16x2 $0, $0, c;
        sub.f16x2 $1, $1, c;
        }""",
        "=&r,=r,r",
        [w],
        dtype=tl.float16,
        is_pure=True,
        pack=4,
    )


@triton.jit
def expanded_zero(W):
    """1024 in float16 [1, 1, 1]. For Triton it comes from bytes, as what `expand` gives does, so
    that rows are laid out alike for products with both."""
    byte = tl.load(W + tl.zeros((1, 1, 1), tl.int32)).to(tl.int32)
    return tl.inline_asm_elementwise(
        "mov.b16 $0, 0x6400;", "=h,r", [byte], dtype=tl.float16, is_pure=True, pack=1
    )


@triton.jit
def add_group(acc, w, x, scale, zero, PRECISION: tl.constexpr):
    """acc + scale · (w - 128) · x, for bytes w of one group of columns. With a `zero` the 1152 that
    each expanded byte has too many are taken off the sum."""
    if zero is not None:
        part = tl.dot(expand(w), x, input_precision=PRECISION)
        total = tl.dot(tl.broadcast_to(zero, w.shape), x, input_precision=PRECISION)
        part = tl.fma(total, tl.full(acc.shape, -1152 / 1024, tl.float32), part)
    elif x.dtype == tl.float16:
        part = tl.dot(expand_centred(w), x, input_precision=PRECISION)
    else:
        part = tl.dot(w.to(x.dtype) - 128, x, input_precision=PRECISION)
    return tl.fma(part, tl.broadcast_to(scale[:, :, None], part.shape), acc)
