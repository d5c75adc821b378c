"""Kernels over single rows, for operations that are not fused into a product."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

import triton.language as tl

from forerun.kernels.cuda.compiling import kernel

READ_LEN: Final = 8192


@kernel(do_not_specialize_on_alignment=["TOKENS"])
def embed_rows(
    TABLE, SCALES, TOKENS, DRAWN, STREAM, V: tl.constexpr, E: tl.constexpr, BE: tl.constexpr,
    GROUP: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Look up embeddings; a token of -1 - r is the one that the last pass drew for its row r.

    Waits before it lets the next kernel start: that one reads slots before its own wait, and in
    rounds that begin early a kernel before this one writes them.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    t, e = tl.program_id(0), tl.arange(0, BE)
    token = tl.load(TOKENS + t)
    if token < 0:
        token = tl.maximum(tl.load(DRAWN + (-1 - token)), 0)  # -1: left to the host
    token = token.to(tl.int64)
    x = tl.load(TABLE + token * E + e, mask=e < E, other=0.0).to(tl.float32)
    if GROUP > 0:
        scale_at = SCALES + (e // GROUP).to(tl.int64) * V + token
        x = (x - 128) * tl.load(scale_at, mask=e < E, other=0.0)
    tl.store(STREAM + t * E + e, x, mask=e < E)


@kernel(do_not_specialize_on_alignment=["ROWS"])
def norm_rows(
    STREAM_IN, DELTA, ROWS, STREAM, NORM, NORMED, SQUARES,
    E: tl.constexpr, BE: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_DELTA: tl.constexpr, HAS_ROWS: tl.constexpr, SHRINK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write what `residual_product` writes, for a DELTA that is already computed, or none.

    The first group has the row's whole sum of squares, the others are zero.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    t, e = tl.program_id(0), tl.arange(0, BE)
    source = t
    if HAS_ROWS:
        source = tl.load(ROWS + t)
    x = tl.load(STREAM_IN + source * E + e, mask=e < E, other=0.0)
    if HAS_DELTA:
        x += tl.load(DELTA + source * E + e, mask=e < E, other=0.0)
    tl.store(STREAM + t * E + e, x, mask=e < E)
    x *= SHRINK
    weight = tl.load(NORM + e, mask=e < E, other=0.0)
    tl.store(NORMED + t * E + e, (x * weight).to(NORMED.dtype.element_ty), mask=e < E)
    group = tl.arange(0, SQUARE_LANES)
    squares = tl.where(group == 0, tl.sum(x * x, axis=0), 0.0)
    tl.store(SQUARES + t * NUM_SQUARES + group, squares, mask=group < NUM_SQUARES)


@kernel(do_not_specialize_on_alignment=["SLOTS"])
def rope_rows(
    QKV, Q_NORM, K_NORM, ROTATIONS, SLOTS, Q, KEYS, VALUES, q_eps, k_eps,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BHALF: tl.constexpr,
    HAS_Q_NORM: tl.constexpr, HAS_K_NORM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm and rotate one head of one row; write q to Q, and k or v to its slot in the cache."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    HALF: tl.constexpr = D // 2
    t, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BHALF)
    mask = d < HALF
    at = QKV + t * ((H + 2 * G) * D) + head * D + d
    left = tl.load(at, mask=mask, other=0.0)
    right = tl.load(at + HALF, mask=mask, other=0.0)
    squares = tl.sum(left * left + right * right, axis=0) / D
    if head < H:
        if HAS_Q_NORM:
            factor = tl.rsqrt(squares + q_eps)
            left *= factor * tl.load(Q_NORM + d, mask=mask, other=0.0)
            right *= factor * tl.load(Q_NORM + HALF + d, mask=mask, other=0.0)
    elif head < H + G:  # noqa: SIM102  # the next is decided at compile time
        if HAS_K_NORM:
            factor = tl.rsqrt(squares + k_eps)
            left *= factor * tl.load(K_NORM + d, mask=mask, other=0.0)
            right *= factor * tl.load(K_NORM + HALF + d, mask=mask, other=0.0)
    if head < H + G:
        cos = tl.load(ROTATIONS + t * D + d, mask=mask, other=0.0)
        sin = tl.load(ROTATIONS + t * D + HALF + d, mask=mask, other=0.0)
        turned = left * cos - right * sin
        right = right * cos + left * sin
        left = turned
    if head < H:
        out = Q + t * (H * D) + head * D + d
        tl.store(out, left.to(Q.dtype.element_ty), mask=mask)
        tl.store(out + HALF, right.to(Q.dtype.element_ty), mask=mask)
    else:
        slot = tl.load(SLOTS + t).to(tl.int64)
        place = slot * (G * D) + (head - H) % G * D + d
        if head < H + G:
            tl.store(KEYS + place, left.to(KEYS.dtype.element_ty), mask=mask)
            tl.store(KEYS + place + HALF, right.to(KEYS.dtype.element_ty), mask=mask)
        else:
            tl.store(VALUES + place, left.to(VALUES.dtype.element_ty), mask=mask)
            tl.store(VALUES + place + HALF, right.to(VALUES.dtype.element_ty), mask=mask)


@kernel()
def silu_rows(GATE_UP, Y, F: tl.constexpr, BF: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    t, f = tl.program_id(0), tl.program_id(1) * BF + tl.arange(0, BF)
    gate = tl.load(GATE_UP + t * (2 * F) + f, mask=f < F, other=0.0)
    up = tl.load(GATE_UP + t * (2 * F) + F + f, mask=f < F, other=0.0)
    y = gate / (1 + tl.exp(-gate)) * up
    tl.store(Y + t * F + f, y.to(Y.dtype.element_ty), mask=f < F)


@kernel()
def read_words(DATA, SUMS, LEN: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    at = tl.program_id(0).to(tl.int64) * LEN + tl.arange(0, LEN)
    tl.store(SUMS + tl.program_id(0), tl.sum(tl.load(DATA + at), axis=0))
