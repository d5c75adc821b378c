"""Products of activations with weights, each fused with what follows it.

A tile of BN weight rows meets BM activation rows; K is walked in one order, whatever BM is, so a
row's bits do not depend on how many others are in the pass (docs/gpu.md). A pass is a chain of
these; with `PDL` a kernel starts while the one before it ends, and asks for its weights at once.
"""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def begin(
    W, rows, OTHER_ROWS, K: tl.constexpr, SEGMENTS: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """Let the next kernel start (PDL = 1), ask for the first weights, wait for the kernel before.

    Weights come to L2, PIECES pieces of each row; nothing waits for them.
    """
    if PDL:
        if PDL == 1:
            tl.extra.cuda.gdc_launch_dependents()
        if PIECES > 0:
            prefetch(W, rows, K, SEGMENTS, PIECES, PIECE_LEN)
            if OTHER_ROWS is not None:
                prefetch(W, OTHER_ROWS, K, SEGMENTS, PIECES, PIECE_LEN)
        tl.extra.cuda.gdc_wait()


@triton.jit
def prefetch(
    W, rows, K: tl.constexpr, SEGMENTS: tl.constexpr, PIECES: tl.constexpr, PIECE_LEN: tl.constexpr
):
    """The first columns of every segment."""
    piece = tl.arange(0, PIECES)
    columns = piece % SEGMENTS * (K // SEGMENTS) + piece // SEGMENTS * PIECE_LEN
    starts = rows[:, None] * K + columns[None, :]
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [W + starts, tl.full(starts.shape, 2 * PIECE_LEN, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def load_squares(SQUARES, rows, live, NUM: tl.constexpr, NUM_LANES: tl.constexpr):
    """Sums over NUM groups of each row's columns [BM, NUM_LANES]; asked for before a walk."""
    lane = tl.arange(0, NUM_LANES)
    mask = live[:, None] & (lane < NUM)[None, :]
    return tl.load(SQUARES + rows[:, None] * NUM + lane[None, :], mask=mask, other=0.0)


@triton.jit
def rms_factor(squares, width, eps):
    """1 / sqrt(mean(x²) + eps) of each row [BM]."""
    return tl.rsqrt(tl.sum(squares, axis=1) / width + eps)


@triton.jit
def load_tile(W_AT, X_AT, at, k, last, live, EVEN: tl.constexpr):
    """A tile of weights [BN, BK] and of activations [BK, BM], from column `at` on."""
    if EVEN:
        w = tl.load(W_AT + at)
        x = tl.load(X_AT + at, mask=live[None, :], other=0.0)
    else:
        inside = at + k < last
        w = tl.load(W_AT + at, mask=inside[None, :], other=0.0)
        x = tl.load(X_AT + at, mask=inside[:, None] & live[None, :], other=0.0)
    return w, x


@triton.jit
def step(
    acc, W_AT, X_AT, at, k, last, live, EVEN: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    w, x = load_tile(W_AT, X_AT, at, k, last, live, EVEN)
    return tl.dot(w, x, acc, input_precision=PRECISION)


@triton.jit
def walk(
    W, w_rows, X, x_rows, live, BN: tl.constexpr, BM: tl.constexpr, K: tl.constexpr,
    BK: tl.constexpr, SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """W[w_rows] · X[x_rows]ᵀ [BN, BM]: K in SEGMENTS runs side by side, then folded in order.

    A sum waits for the one before it, so one long run would be slower than the memory.
    """
    RUN: tl.constexpr = K // SEGMENTS
    k = tl.arange(0, BK)
    w_at = W + w_rows[:, None] * K + k[None, :]
    x_at = X + x_rows[None, :] * K + k[:, None]
    acc = tl.zeros((BN, BM), tl.float32)
    if SEGMENTS == 1:
        for at in range(0, K, BK):
            acc = step(acc, w_at, x_at, at, k, K, live, EVEN, PRECISION)
    elif SEGMENTS == 2:
        acc1 = tl.zeros((BN, BM), tl.float32)
        for at in range(0, RUN, BK):
            acc = step(acc, w_at, x_at, at, k, K, live, EVEN, PRECISION)
            acc1 = step(acc1, w_at, x_at, at + RUN, k, K, live, EVEN, PRECISION)
        acc += acc1
    else:
        tl.static_assert(SEGMENTS == 4)
        acc1 = tl.zeros((BN, BM), tl.float32)
        acc2 = tl.zeros((BN, BM), tl.float32)
        acc3 = tl.zeros((BN, BM), tl.float32)
        for at in range(0, RUN, BK):
            acc = step(acc, w_at, x_at, at, k, K, live, EVEN, PRECISION)
            acc1 = step(acc1, w_at, x_at, at + RUN, k, K, live, EVEN, PRECISION)
            acc2 = step(acc2, w_at, x_at, at + 2 * RUN, k, K, live, EVEN, PRECISION)
            acc3 = step(acc3, w_at, x_at, at + 3 * RUN, k, K, live, EVEN, PRECISION)
        acc = acc + acc1 + acc2 + acc3
    return acc


@triton.jit
def walk_pair(
    W, left_rows, right_rows, X, x_rows, live, BN: tl.constexpr, BM: tl.constexpr,
    K: tl.constexpr, BK: tl.constexpr, SEGMENTS: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Two products of the same activations with two runs of weight rows, each as in `walk`."""
    RUN: tl.constexpr = K // SEGMENTS
    k = tl.arange(0, BK)
    left_at = W + left_rows[:, None] * K + k[None, :]
    right_at = W + right_rows[:, None] * K + k[None, :]
    x_at = X + x_rows[None, :] * K + k[:, None]
    left, right = tl.zeros((BN, BM), tl.float32), tl.zeros((BN, BM), tl.float32)
    if SEGMENTS == 1:
        for at in range(0, K, BK):
            w, x = load_tile(left_at, x_at, at, k, K, live, EVEN)
            if EVEN:
                other = tl.load(right_at + at)
            else:
                other = tl.load(right_at + at, mask=(at + k < K)[None, :], other=0.0)
            left = tl.dot(w, x, left, input_precision=PRECISION)
            right = tl.dot(other, x, right, input_precision=PRECISION)
    else:
        tl.static_assert(SEGMENTS == 2 and EVEN)
        left1, right1 = tl.zeros((BN, BM), tl.float32), tl.zeros((BN, BM), tl.float32)
        for at in range(0, RUN, BK):
            w0, x0 = load_tile(left_at, x_at, at, k, K, live, EVEN)
            other0 = tl.load(right_at + at)
            w1, x1 = load_tile(left_at, x_at, at + RUN, k, K, live, EVEN)
            other1 = tl.load(right_at + at + RUN)
            left = tl.dot(w0, x0, left, input_precision=PRECISION)
            right = tl.dot(other0, x0, right, input_precision=PRECISION)
            left1 = tl.dot(w1, x1, left1, input_precision=PRECISION)
            right1 = tl.dot(other1, x1, right1, input_precision=PRECISION)
        left += left1
        right += right1
    return left, right


@triton.jit
def end(PDL: tl.constexpr):
    """The walk is over: the next kernel may start, unless it did at the beginning."""
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit(do_not_specialize=["num_rows"])
def plain_product(
    X, SQUARES, W, BIAS, Y, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """Y = norm(X) · Wᵀ + bias, in float32; NUM_SQUARES = 0: X is taken as it is."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, w_rows = m < num_rows, tl.minimum(n, N - 1)
    begin(W, w_rows, None, K, SEGMENTS, PDL, PIECES, PIECE_LEN)
    if NUM_SQUARES > 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    acc = walk(W, w_rows, X, m, live, BN, BM, K, BK, SEGMENTS, EVEN, PRECISION)
    end(PDL)
    if NUM_SQUARES > 0:
        acc *= rms_factor(squares, K, eps)[None, :]
    if HAS_BIAS:
        acc += tl.load(BIAS + w_rows)[:, None]
    at = m.to(tl.int64)[None, :] * N + n[:, None]
    tl.store(Y + at, acc, mask=live[None, :] & (n < N)[:, None])


@triton.jit
def pair(
    X, SQUARES, W, BIAS, left_rows, right_rows, m, live, eps,
    K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """norm(X) · Wᵀ + bias for two runs of weight rows, from the beginning to the end of a walk."""
    begin(W, left_rows, right_rows, K, SEGMENTS, PDL, PIECES, PIECE_LEN)
    if NUM_SQUARES > 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    left, right = walk_pair(
        W, left_rows, right_rows, X, m, live, BN, BM, K, BK, SEGMENTS, EVEN, PRECISION
    )
    end(PDL)
    if NUM_SQUARES > 0:
        factor = rms_factor(squares, K, eps)[None, :]
        left *= factor
        right *= factor
    if HAS_BIAS:
        left += tl.load(BIAS + left_rows)[:, None]
        right += tl.load(BIAS + right_rows)[:, None]
    return left, right


@triton.jit(do_not_specialize=["num_rows"])
def gated_product(
    X, SQUARES, W, BIAS, Y, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """Y = silu(gate) · up, where W [2N, K] is gate, then up."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, gate_rows = m < num_rows, tl.minimum(n, N - 1)
    up_rows = gate_rows + N
    gate, up = pair(
        X, SQUARES, W, BIAS, gate_rows, up_rows, m, live, eps, K, NUM_SQUARES, SQUARE_LANES,
        HAS_BIAS, BN, BM, BK, SEGMENTS, EVEN, PRECISION, PDL, PIECES, PIECE_LEN,
    )  # fmt: skip
    y = gate / (1 + tl.exp(-gate)) * up
    at = m[None, :] * N + n[:, None]
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])


@triton.jit(do_not_specialize=["num_rows"])
def rotary_product(
    X, SQUARES, W, BIAS, Q, KEYS, VALUES, SLOTS, ROTATIONS, num_rows, eps,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
    NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr, HAS_BIAS: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """q, k, v of each row; q and k are rotated, k and v go to their slots in the cache.

    A tile has BN lanes of a head's first half and the BN lanes that they are paired with.
    """
    HALF: tl.constexpr = D // 2
    TILES: tl.constexpr = (HALF + BN - 1) // BN  # per head
    head = tl.program_id(0) // TILES
    d = tl.program_id(0) % TILES * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, left_rows = m < num_rows, head * D + tl.minimum(d, HALF - 1)
    right_rows = left_rows + HALF
    mask = live[None, :] & (d < HALF)[:, None]
    rotation_at = ROTATIONS + m[None, :] * D + d[:, None]
    cos = tl.load(rotation_at, mask=mask, other=0.0)
    sin = tl.load(rotation_at + HALF, mask=mask, other=0.0)
    slots = tl.load(SLOTS + m, mask=live, other=0).to(tl.int64)
    left, right = pair(
        X, SQUARES, W, BIAS, left_rows, right_rows, m, live, eps, K, NUM_SQUARES, SQUARE_LANES,
        HAS_BIAS, BN, BM, BK, SEGMENTS, EVEN, PRECISION, PDL, PIECES, PIECE_LEN,
    )  # fmt: skip
    if head < H + G:
        turned = left * cos - right * sin
        right = right * cos + left * sin
        left = turned
    if head < H:
        q_at = Q + m[None, :] * (H * D) + head * D + d[:, None]
        tl.store(q_at, left.to(Q.dtype.element_ty), mask=mask)
        tl.store(q_at + HALF, right.to(Q.dtype.element_ty), mask=mask)
    else:
        row_at = slots[None, :] * (G * D) + (head - H) % G * D + d[:, None]
        if head < H + G:
            tl.store(KEYS + row_at, left.to(KEYS.dtype.element_ty), mask=mask)
            tl.store(KEYS + row_at + HALF, right.to(KEYS.dtype.element_ty), mask=mask)
        else:
            tl.store(VALUES + row_at, left.to(VALUES.dtype.element_ty), mask=mask)
            tl.store(VALUES + row_at + HALF, right.to(VALUES.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def residual_product(
    X, W, BIAS, ROWS, STREAM_IN, STREAM, NORM, NORMED, SQUARES, num_rows,
    N: tl.constexpr, K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ROWS: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr,
):  # fmt: skip
    """STREAM = STREAM_IN + X · Wᵀ + bias, and of the norm that follows: NORMED = STREAM · weight,
    SQUARES = Σ STREAM² over each tile's columns. ROWS chooses rows of X and STREAM_IN.
    """
    NUM_SQUARES: tl.constexpr = (N + BN - 1) // BN
    tile = tl.program_id(0)
    n = tile * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, w_rows = m < num_rows, tl.minimum(n, N - 1)
    mask = live[None, :] & (n < N)[:, None]
    weight = tl.load(NORM + w_rows)
    sources = m
    if HAS_ROWS:
        sources = tl.load(ROWS + m, mask=live, other=0)
    begin(W, w_rows, None, K, SEGMENTS, PDL, PIECES, PIECE_LEN)
    added = tl.load(STREAM_IN + sources[None, :] * N + n[:, None], mask=mask, other=0.0)
    if HAS_BIAS:
        added += tl.load(BIAS + w_rows)[:, None]
    acc = walk(W, w_rows, X, sources, live, BN, BM, K, BK, SEGMENTS, EVEN, PRECISION)
    end(PDL)
    acc += added
    at = m[None, :] * N + n[:, None]
    tl.store(STREAM + at, acc, mask=mask)
    tl.store(NORMED + at, (acc * weight[:, None]).to(NORMED.dtype.element_ty), mask=mask)
    # A float32 product adds up in the order of n, in any layout; tl.sum would not.
    inside = tl.where((n < N)[:, None], acc, 0.0)
    ones = tl.full((16, BN), 1.0, tl.float32)
    sums = tl.dot(ones, inside * inside, input_precision="ieee")
    lane = tl.arange(0, 16)
    square_at = SQUARES + (m * NUM_SQUARES + tile)[None, :] + lane[:, None]
    tl.store(square_at, sums, mask=(lane == 0)[:, None] & live[None, :])
