"""How a product walks over its columns: weights [BN, K] times activations [BM, K], K in order."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, assignment"

from __future__ import annotations

import triton
import triton.language as tl

from forerun.kernels.cuda.products.groups import add_group, expanded_zero, load_scale


@triton.jit
def load_tile(W_AT, X_AT, at, k, last, live, EVEN: tl.constexpr):
    """Load a tile of weights [BN, BK] and one of activations [BK, BM], from column `at` on."""
    if EVEN:
        w = tl.load(W_AT + at)
        x = tl.load(X_AT + at, mask=live[None, :], other=0.0)
    else:
        inside = at + k < last
        w = tl.load(W_AT + at, mask=inside[None, :], other=0.0)
        x = tl.load(X_AT + at, mask=inside[:, None] & live[None, :], other=0.0)
    return w, x


@triton.jit
def hold(
    W, SCALES, rows, used, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr, TO: tl.constexpr,
):  # fmt: skip
    """Load the last HELD tiles of every segment, and their scales, before rows may be read.

    Returns one tuple: the tiles, then the scales.
    """
    tiles, scales = (), ()
    RUN: tl.constexpr = K // SEGMENTS
    if HELD > 0:
        at = segment_columns(BK, K, SEGMENTS) + rows[None, :, None] * K
        for i in tl.static_range(HELD):
            tile = load_weights(W + at + (RUN - (HELD - i) * BK), used)
            tiles = tiles + (tile,)  # noqa: RUF005  # Triton knows no other way
            if GROUP > 0:
                scale_at = scale_rows(SCALES, rows, N, RUN, SEGMENTS, GROUP)
                scale = load_scale(scale_at + (RUN - (HELD - i) * BK) // GROUP * N, TO)
                scales = scales + (scale,)  # noqa: RUF005
    return tiles + scales


@triton.jit
def scale_rows(
    SCALES, rows, N: tl.constexpr, RUN: tl.constexpr, SEGMENTS: tl.constexpr, GROUP: tl.constexpr
):
    """Return the addresses of every segment's first scales [SEGMENTS, BN]."""
    return SCALES + (tl.arange(0, SEGMENTS) * (RUN // GROUP))[:, None] * N + rows[None, :]


@triton.jit
def load_weights(AT, used):
    """Load weights [SEGMENTS, BN, BK]; without `used`, all rows of the tile."""
    if used is None:
        return tl.load(AT)
    else:  # noqa: RET505  # only one is compiled
        return tl.load(AT, mask=used[None, :, None], other=0)


@triton.jit
def after_wait(at, PDL: tl.constexpr):
    """Wait for the previous kernel, and return column `at` unchanged.

    Rows are addressed by the result, so they are loaded after the wait: ptxas moves no load over
    it. Weights are not, so Triton loads those of the first step before it.
    """
    if PDL:
        none = tl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.u32 $0, 0;", "=r,r", [at], tl.int32, is_pure=True, pack=1
        )
        at += tl.multiple_of(none, 128)
    return at


@triton.jit
def segment_columns(BK: tl.constexpr, K: tl.constexpr, SEGMENTS: tl.constexpr):
    """Return the first columns of every segment [SEGMENTS, 1, BK]."""
    segment = tl.arange(0, SEGMENTS) * (K // SEGMENTS)
    return segment[:, None, None] + tl.arange(0, BK)[None, None, :]


@triton.jit
def walk_run(
    W, w_rows, X, x_rows, live, BN: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
    BK: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return W[w_rows] · X[x_rows]ᵀ [BN, BM], in one run over K."""
    k = tl.arange(0, BK)
    w_at = W + w_rows[:, None] * K + k[None, :]
    x_at = X + x_rows[None, :] * K + k[:, None]
    acc = tl.zeros((BN, BM), tl.float32)
    for at in range(0, K, BK):
        w, x = load_tile(w_at, x_at, at, k, K, live, EVEN)
        acc = tl.dot(w, x, acc, input_precision=PRECISION)
    return acc


@triton.jit
def walk_segments(
    W, w_rows, used, SCALES, X, x_rows, live, held,
    N: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
    BK: tl.constexpr, SEGMENTS: tl.constexpr, PRECISION: tl.constexpr, HELD: tl.constexpr,
    GROUP: tl.constexpr, BY_SUM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """As `walk_run`, with K in SEGMENTS runs, one for each warp, added up at the end.

    With GROUP, weights are bytes in units of SCALES [K / GROUP, N], and the walk itself waits for
    the previous kernel.
    """
    RUN: tl.constexpr = K // SEGMENTS
    columns = segment_columns(BK, K, SEGMENTS)
    w_at = W + columns + w_rows[None, :, None] * K
    x_at = X + tl.permute(columns, (0, 2, 1)) + x_rows[None, None, :] * K
    mask = live[None, None, :]
    acc = tl.zeros((SEGMENTS, BN, BM), tl.float32)
    if GROUP > 0:
        scale_at = scale_rows(SCALES, w_rows, N, RUN, SEGMENTS, GROUP)
        zero = None
        if BY_SUM and X.dtype.element_ty == tl.float16:
            zero = expanded_zero(W)
        scale = load_scale(scale_at, X.dtype.element_ty)
        for at in range(0, RUN - HELD * BK, BK):
            next_at = scale_at + tl.minimum(at + BK, RUN - BK) // GROUP * N
            next_scale = load_scale(next_at, X.dtype.element_ty)
            w = load_weights(w_at + at, used)
            x = tl.load(x_at + after_wait(at, PDL), mask=mask, other=0.0)
            acc = add_group(acc, w, x, scale, zero, PRECISION)
            scale = next_scale
        if PDL:
            tl.extra.cuda.gdc_wait()
        xs = ()
        for i in tl.static_range(HELD):
            x = tl.load(x_at + (RUN - (HELD - i) * BK), mask=mask, other=0.0)
            xs = xs + (x,)  # noqa: RUF005
        for i in tl.static_range(HELD):
            acc = add_group(acc, held[i], xs[i], held[HELD + i], zero, PRECISION)
    else:
        for at in range(0, RUN - HELD * BK, BK):
            w = load_weights(w_at + at, used)
            x = tl.load(x_at + at, mask=mask, other=0.0)
            acc = tl.dot(w, x, acc, input_precision=PRECISION)
        for i in tl.static_range(HELD):
            x = tl.load(x_at + (RUN - (HELD - i) * BK), mask=mask, other=0.0)
            acc = tl.dot(held[i], x, acc, input_precision=PRECISION)
    return tl.sum(acc, axis=0)


@triton.jit
def walk(
    W, w_rows, used, SCALES, X, x_rows, live, held,
    N: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
    BK: tl.constexpr, SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
    HELD: tl.constexpr, GROUP: tl.constexpr, BY_SUM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if SEGMENTS == 1 and GROUP == 0:
        acc = walk_run(W, w_rows, X, x_rows, live, BN, BM, K, BK, EVEN, PRECISION)
    else:
        acc = walk_segments(
            W, w_rows, used, SCALES, X, x_rows, live, held, N, BN, BM, K, BK, SEGMENTS, PRECISION,
            HELD, GROUP, BY_SUM, PDL,
        )  # fmt: skip
    return acc


@triton.jit
def walk_pair(
    W, left_rows, right_rows, X, x_rows, live, BN: tl.constexpr, BM: tl.constexpr,
    K: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the products of the same activations with two runs of weight rows, as `walk_run`."""
    k = tl.arange(0, BK)
    left_at = W + left_rows[:, None] * K + k[None, :]
    right_at = W + right_rows[:, None] * K + k[None, :]
    x_at = X + x_rows[None, :] * K + k[:, None]
    left, right = tl.zeros((BN, BM), tl.float32), tl.zeros((BN, BM), tl.float32)
    for at in range(0, K, BK):
        w, x = load_tile(left_at, x_at, at, k, K, live, EVEN)
        if EVEN:
            other = tl.load(right_at + at)
        else:
            other = tl.load(right_at + at, mask=(at + k < K)[None, :], other=0.0)
        left = tl.dot(w, x, left, input_precision=PRECISION)
        right = tl.dot(other, x, right, input_precision=PRECISION)
    return left, right
