"""Products of activations with weights, each fused with what follows it.

A tile is BN weight rows times BM activation rows. K is walked in one order, whatever BM is, so a
row's bits do not depend on how many others are in the pass (docs/gpu.md). A pass is a chain of
these kernels; with `PDL` one starts while the previous one ends, and prefetches its weights.
"""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from forerun.kernels.cuda.compiling import kernel
from forerun.kernels.cuda.products.asking import ask_for, ask_for_sectors
from forerun.kernels.cuda.products.walks import hold, walk, walk_pair


@triton.jit
def begin(
    W, SCALES, rows, N: tl.constexpr, K: tl.constexpr, SEGMENTS: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Let the next kernel start (PDL = 1), prefetch, and wait for the previous kernel.

    Scales and the first weights are prefetched into L2, weights in PIECES pieces of each row. With
    GROUP the walk waits for the previous kernel instead.
    """
    if PDL:
        if PDL == 1:
            tl.extra.cuda.gdc_launch_dependents()
        if GROUP > 0:
            NUM: tl.constexpr = K // GROUP
            LANES: tl.constexpr = 32 if NUM <= 32 else 64 if NUM <= 64 else 128
            group = tl.arange(0, LANES)
            meant = (group < NUM)[None, :] & (rows % 8 == 0)[:, None]
            ask_for_sectors(SCALES + group[None, :] * N + rows[:, None], meant)
        if PIECES > 0:
            piece = tl.arange(0, PIECES)
            columns = piece % SEGMENTS * (K // SEGMENTS) + piece // SEGMENTS * PIECE_LEN
            ITEM_LEN: tl.constexpr = W.dtype.element_ty.primitive_bitwidth // 8
            ask_for(W + rows[:, None] * K + columns[None, :], PIECE_LEN * ITEM_LEN)
        if GROUP == 0:
            tl.extra.cuda.gdc_wait()


@triton.jit
def load_squares(SQUARES, rows, live, NUM: tl.constexpr, NUM_LANES: tl.constexpr):
    """Load each row's sums of squares, one for each of NUM groups of columns [BM, NUM_LANES]."""
    lane = tl.arange(0, NUM_LANES)
    mask = live[:, None] & (lane < NUM)[None, :]
    return tl.load(SQUARES + rows[:, None] * NUM + lane[None, :], mask=mask, other=0.0)


@triton.jit
def rms_factor(squares, width, eps):
    """Return 1 / sqrt(mean(x²) + eps) of each row [BM]."""
    return tl.rsqrt(tl.sum(squares, axis=1) / width + eps)


@triton.jit
def end(PDL: tl.constexpr):
    """Let the next kernel start after the walk (PDL = 2), unless `begin` did (PDL = 1)."""
    if PDL == 2:
        tl.extra.cuda.gdc_launch_dependents()


@kernel(do_not_specialize=["num_rows"])
def plain_product(
    X, SQUARES, W, SCALES, BIAS, Y, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr,
    BY_SUM: tl.constexpr,
):  # fmt: skip
    """Y = norm(X) · Wᵀ + bias, in float32; with NUM_SQUARES = 0 there is no norm."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, w_rows = m < num_rows, tl.minimum(n, N - 1)
    held = hold(W, SCALES, w_rows, None, N, K, BK, SEGMENTS, HELD, GROUP, X.dtype.element_ty)
    begin(W, SCALES, w_rows, N, K, SEGMENTS, PDL, PIECES, PIECE_LEN, GROUP)
    if NUM_SQUARES > 0 and GROUP == 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    acc = walk(
        W, w_rows, None, SCALES, X, m, live, held, N, BN, BM, K, BK, SEGMENTS, EVEN, PRECISION,
        HELD, GROUP, BY_SUM, PDL,
    )  # fmt: skip
    end(PDL)
    if NUM_SQUARES > 0 and GROUP > 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    if NUM_SQUARES > 0:
        acc *= rms_factor(squares, K, eps)[None, :]
    if HAS_BIAS:
        acc += tl.load(BIAS + w_rows)[:, None]
    at = m.to(tl.int64)[None, :] * N + n[:, None]
    tl.store(Y + at, acc, mask=live[None, :] & (n < N)[:, None])


@triton.jit
def pair(
    X, SQUARES, W, SCALES, BIAS, left_rows, right_rows, rows, m, live, eps, N: tl.constexpr,
    K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr,
    BY_SUM: tl.constexpr,
):  # fmt: skip
    """Return norm(X) · Wᵀ + bias for two runs of weight rows, with all that is around the walk.

    `rows` alternates between both runs. It is computed without `tl.interleave`: where Triton sees
    a join, it gives operands a layout that takes twice the instructions to load.
    """
    held = hold(W, SCALES, rows, None, N, K, BK, SEGMENTS, HELD, GROUP, X.dtype.element_ty)
    begin(W, SCALES, rows, N, K, SEGMENTS, PDL, PIECES, PIECE_LEN, GROUP)
    if NUM_SQUARES > 0 and GROUP == 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    if SEGMENTS == 1 and GROUP == 0:
        left, right = walk_pair(
            W, left_rows, right_rows, X, m, live, BN, BM, K, BK, EVEN, PRECISION
        )  # fmt: skip
    else:
        both = walk(
            W, rows, None, SCALES, X, m, live, held, N, 2 * BN, BM, K, BK, SEGMENTS, EVEN,
            PRECISION, HELD, GROUP, BY_SUM, PDL,
        )  # fmt: skip
        left, right = tl.split(tl.permute(tl.reshape(both, (BN, 2, BM)), (0, 2, 1)))
    end(PDL)
    if NUM_SQUARES > 0 and GROUP > 0:
        squares = load_squares(SQUARES, m, live, NUM_SQUARES, SQUARE_LANES)
    if NUM_SQUARES > 0:
        factor = rms_factor(squares, K, eps)[None, :]
        left *= factor
        right *= factor
    if HAS_BIAS:
        left += tl.load(BIAS + left_rows)[:, None]
        right += tl.load(BIAS + right_rows)[:, None]
    return left, right


@kernel(do_not_specialize=["num_rows"])
def gated_product(
    X, SQUARES, W, SCALES, BIAS, Y, num_rows, eps,
    N: tl.constexpr, K: tl.constexpr, NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
    HAS_BIAS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr,
    BY_SUM: tl.constexpr,
):  # fmt: skip
    """Y = silu(gate) · up, where W [2N, K] is gate, then up."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, gate_rows = m < num_rows, tl.minimum(n, N - 1)
    up_rows = gate_rows + N
    lane = tl.arange(0, 2 * BN)
    rows = tl.minimum(tl.program_id(0) * BN + lane // 2, N - 1) + lane % 2 * N
    gate, up = pair(
        X, SQUARES, W, SCALES, BIAS, gate_rows, up_rows, rows, m, live, eps, 2 * N, K,
        NUM_SQUARES, SQUARE_LANES, HAS_BIAS, BN, BM, BK, SEGMENTS, EVEN, PRECISION, PDL, PIECES,
        PIECE_LEN, HELD, GROUP, BY_SUM,
    )  # fmt: skip
    y = gate / (1 + tl.exp(-gate)) * up
    at = m[None, :] * N + n[:, None]
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])


@kernel(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=["SLOTS"])
def rotary_product(
    X, SQUARES, W, SCALES, BIAS, Q, KEYS, VALUES, SLOTS, ROTATIONS, num_rows, eps,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, K: tl.constexpr,
    NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr, HAS_BIAS: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr,
    BY_SUM: tl.constexpr,
):  # fmt: skip
    """Compute q, k and v of each row, rotate q and k, and write k and v to their slots.

    A tile has BN lanes of a head's first half and the BN lanes that they are paired with.
    """
    HALF: tl.constexpr = D // 2
    TILES: tl.constexpr = (HALF + BN - 1) // BN  # per head
    head = tl.program_id(0) // TILES
    d = tl.program_id(0) % TILES * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, left_rows = m < num_rows, head * D + tl.minimum(d, HALF - 1)
    right_rows = left_rows + HALF
    lane = tl.arange(0, 2 * BN)
    rows = head * D + tl.minimum(tl.program_id(0) % TILES * BN + lane // 2, HALF - 1)
    rows += lane % 2 * HALF
    mask = live[None, :] & (d < HALF)[:, None]
    rotation_at = ROTATIONS + m[None, :] * D + d[:, None]
    cos = tl.load(rotation_at, mask=mask, other=0.0)
    sin = tl.load(rotation_at + HALF, mask=mask, other=0.0)
    slots = tl.load(SLOTS + m, mask=live, other=0).to(tl.int64)
    left, right = pair(
        X, SQUARES, W, SCALES, BIAS, left_rows, right_rows, rows, m, live, eps, (H + 2 * G) * D,
        K, NUM_SQUARES, SQUARE_LANES, HAS_BIAS, BN, BM, BK, SEGMENTS, EVEN, PRECISION, PDL, PIECES,
        PIECE_LEN, HELD, GROUP, BY_SUM,
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


@kernel(do_not_specialize=["num_rows"], do_not_specialize_on_alignment=["ROWS"])
def residual_product(
    X, W, SCALES, BIAS, ROWS, STREAM_IN, STREAM, NORM, NORMED, SQUARES, num_rows,
    N: tl.constexpr, K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ROWS: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    SEGMENTS: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
    PIECES: tl.constexpr, PIECE_LEN: tl.constexpr, HELD: tl.constexpr, GROUP: tl.constexpr,
    BY_SUM: tl.constexpr, USED: tl.constexpr, GROUPS: tl.constexpr, SHRINK: tl.constexpr,
):  # fmt: skip
    """STREAM = STREAM_IN + X · Wᵀ + bias, and the input of the norm that follows.

    With s = STREAM · SHRINK, NORMED = s · weight, and SQUARES = Σ s² over each group of USED
    columns; a tile has GROUPS such groups. ROWS chooses rows of X and STREAM_IN.
    """
    NUM_SQUARES: tl.constexpr = (N + USED - 1) // USED
    tile = tl.program_id(0)
    lane = tl.arange(0, BN)
    n = tile * (GROUPS * USED) + lane
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    live, w_rows = m < num_rows, tl.minimum(n, N - 1)
    inside = n < N
    used = None
    if GROUPS * USED < BN:
        inside = inside & (lane < GROUPS * USED)
        used = inside
    mask = live[None, :] & inside[:, None]
    weight = tl.load(NORM + w_rows)
    sources = m
    if HAS_ROWS:
        sources = tl.load(ROWS + m, mask=live, other=0)
    held = hold(W, SCALES, w_rows, used, N, K, BK, SEGMENTS, HELD, GROUP, X.dtype.element_ty)
    begin(W, SCALES, w_rows, N, K, SEGMENTS, PDL, PIECES, PIECE_LEN, GROUP)
    stream_at = STREAM_IN + sources[None, :] * N + n[:, None]
    if GROUP == 0:
        added = tl.load(stream_at, mask=mask, other=0.0)
    if HAS_BIAS:
        bias = tl.load(BIAS + w_rows)[:, None]
    acc = walk(
        W, w_rows, used, SCALES, X, sources, live, held, N, BN, BM, K, BK, SEGMENTS, EVEN,
        PRECISION, HELD, GROUP, BY_SUM, PDL,
    )  # fmt: skip
    end(PDL)
    if GROUP > 0:
        added = tl.load(stream_at, mask=mask, other=0.0)
    if HAS_BIAS:
        added += bias
    acc += added
    at = m[None, :] * N + n[:, None]
    tl.store(STREAM + at, acc, mask=mask)
    acc *= SHRINK
    tl.store(NORMED + at, (acc * weight[:, None]).to(NORMED.dtype.element_ty), mask=mask)
    # A float32 product adds up in the order of n, whatever the layout; tl.sum does not.
    acc = tl.where(inside[:, None], acc, 0.0)
    row = tl.arange(0, 16)
    ones = tl.where(lane[None, :] // USED == row[:, None], 1.0, 0.0)
    sums = tl.dot(ones, acc * acc, input_precision="ieee")
    group = tile * GROUPS + row
    there = (row < GROUPS) & (group < NUM_SQUARES)
    square_at = SQUARES + (m * NUM_SQUARES)[None, :] + group[:, None]
    tl.store(square_at, sums, mask=there[:, None] & live[None, :])
