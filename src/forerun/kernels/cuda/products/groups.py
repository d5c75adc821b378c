"""int8 weights: bytes, with a scale for each group of columns."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_scale(AT, TO: tl.constexpr):
    """Load the scales of each thread's own sums by an instruction that Triton does not recognise.

    A load that Triton recognises would go through shared memory, and all threads would wait.
    """
    if TO == tl.float32:  # noqa: SIM300  # also what Triton's interpreter runs
        scale = tl.load(AT)
    else:
        scale = tl.inline_asm_elementwise(
            "ld.global.f32 $0, [$1];", "=f,l", [AT], dtype=tl.float32, is_pure=True, pack=1
        )
    return scale


@triton.jit
def expand(w):
    """Expand bytes w to 1024 + w in float16: a byte becomes the low bits of 1024's mantissa."""
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
    """Expand bytes w to w - 128 in float16."""
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
    """Return 1024 in float16 [1, 1, 1].

    It is computed from a loaded byte, as `expand`'s result is, so that Triton gives the
    activations the same layout in products with either.
    """
    byte = tl.load(W + tl.zeros((1, 1, 1), tl.int32)).to(tl.int32)
    return tl.inline_asm_elementwise(
        "mov.b16 $0, 0x6400;", "=h,r", [byte], dtype=tl.float16, is_pure=True, pack=1
    )


@triton.jit
def add_group(acc, w, x, scale, zero, PRECISION: tl.constexpr):
    """Return acc + scale · (w - 128) · x, for bytes w of one group of columns.

    With a `zero` each byte is expanded to 1152 too many, which is subtracted from the sum.
    """
    if zero is not None:
        part = tl.dot(expand(w), x, input_precision=PRECISION)
        total = tl.dot(tl.broadcast_to(zero, w.shape), x, input_precision=PRECISION)
        part = tl.fma(total, tl.full(acc.shape, -1152 / 1024, tl.float32), part)
    elif x.dtype == tl.float16:
        part = tl.dot(expand_centred(w), x, input_precision=PRECISION)
    else:
        part = tl.dot(w.to(x.dtype) - 128, x, input_precision=PRECISION)
    return tl.fma(part, tl.broadcast_to(scale[:, :, None], part.shape), acc)
