"""Kernels of trained heads: rows are concatenated, and guesses picked where their logits are."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton.language as tl

from forerun.kernels.cuda.compiling import kernel
from forerun.kernels.cuda.draws import gumbel


@kernel(do_not_specialize=["first", "out_width"])
def place_rows(
    X, SQUARES, OUT, first, out_width, eps, E: tl.constexpr, BE: tl.constexpr,
    NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
):  # fmt: skip
    """Copy rows into columns of wider rows, as float32; with `SQUARES` they are normed as well."""
    t, e = tl.program_id(0), tl.arange(0, BE)
    x = tl.load(X + t * E + e, mask=e < E, other=0.0).to(tl.float32)
    if NUM_SQUARES:
        group = tl.arange(0, SQUARE_LANES)
        squares = tl.load(SQUARES + t * NUM_SQUARES + group, mask=group < NUM_SQUARES, other=0.0)
        x *= tl.rsqrt(tl.sum(squares, axis=0) / E + eps)
    tl.store(OUT + t * out_width + first + e, x, mask=e < E)


@kernel(do_not_specialize=["row", "place", "token_at"], do_not_specialize_on_alignment=["TOKENS"])
def pick_token(
    LOGITS, DELTA, IDS, NOISE, DOUBLES, PICKED, TOKENS, row, place, token_at,
    V: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, HAS_DELTA: tl.constexpr,
):  # fmt: skip
    """Pick the best logit of a row, with noise at a temperature above 0.

    Stores its id, its share of softmax(logits) and its index in IDS. Compiled once for all places.
    """
    LOGITS += row * V
    PICKED += place * 3
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    chosen = tl.full((), 0, tl.int32)
    for start in range(0, V, WIDE):  # wide: the only program waits for memory
        v = start + tl.arange(0, WIDE)
        x = tl.load(LOGITS + v, mask=v < V, other=float("-inf"))
        if HAS_DELTA:
            x += tl.load(DELTA + v, mask=v < V, other=0.0)
        wide_most = tl.max(x, axis=0)
        if wide_most > top:
            chosen = tl.min(tl.where(x == wide_most, v, V), axis=0).to(tl.int32)
        new_top = tl.maximum(top, wide_most)
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)
        top = new_top
    temperature, key = tl.load(DOUBLES), tl.load(NOISE + 1).to(tl.uint64)
    if temperature > 0:
        best = tl.full((), float("-inf"), tl.float64)
        position = (tl.load(NOISE + 2) + place).to(tl.int32)
        for start in range(0, V, BLOCK):
            v = start + tl.arange(0, BLOCK)
            x = tl.load(LOGITS + v, mask=v < V, other=float("-inf"))
            if HAS_DELTA:
                x += tl.load(DELTA + v, mask=v < V, other=0.0)
            ids = tl.load(IDS + v, mask=v < V, other=0)
            value = x.to(tl.float64) / temperature + gumbel(key, position, ids)
            most = tl.max(value, axis=0)
            if most > best:
                chosen = tl.min(tl.where(value == most, v, V), axis=0).to(tl.int32)
                best = most
    level = tl.load(LOGITS + chosen)
    if HAS_DELTA:
        level += tl.load(DELTA + chosen)
    token = tl.load(IDS + chosen)
    tl.store(PICKED, token.to(tl.float32))
    tl.store(PICKED + 1, tl.exp(level - top) / total)
    tl.store(PICKED + 2, chosen.to(tl.float32))
    if token_at >= 0:
        tl.store(TOKENS + token_at, token)


@kernel(do_not_specialize=["row", "place"])
def gate_row(TABLE, GATES, PICKED, OUT, row, place, E: tl.constexpr, BE: tl.constexpr):
    """Write (1 + gates[row]) · the table's row for guess number `place`."""
    e = tl.arange(0, BE)
    guess = tl.load(PICKED + place * 3 + 2).to(tl.int64)
    x = tl.load(TABLE + guess * E + e, mask=e < E, other=0.0)
    gate = tl.load(GATES + row * E + e, mask=e < E, other=0.0)
    tl.store(OUT + e, (1 + gate) * x, mask=e < E)
