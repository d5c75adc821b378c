"""Kernels of trained heads: rows side by side, and a guess made where its logits are."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from forerun.kernels.cuda.draws import gumbel


@triton.jit
def place_rows(
    X, SQUARES, OUT, first, out_width, eps, E: tl.constexpr, BE: tl.constexpr,
    NUM_SQUARES: tl.constexpr, SQUARE_LANES: tl.constexpr,
):  # fmt: skip
    """Rows into some columns of others, as float32; with `SQUARES` they are normed on the way."""
    t, e = tl.program_id(0), tl.arange(0, BE)
    x = tl.load(X + t * E + e, mask=e < E, other=0.0).to(tl.float32)
    if NUM_SQUARES:
        group = tl.arange(0, SQUARE_LANES)
        squares = tl.load(SQUARES + t * NUM_SQUARES + group, mask=group < NUM_SQUARES, other=0.0)
        x *= tl.rsqrt(tl.sum(squares, axis=0) / E + eps)
    tl.store(OUT + t * out_width + first + e, x, mask=e < E)


@triton.jit
def pick_token(
    LOGITS, IDS, NOISE, DOUBLES, PICKED, TOKENS, place, token_at, num_tokens,
    V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The id of the best logit, under noise at a temperature above 0, and its probability."""
    best = tl.full((), float("-inf"), tl.float64)
    top = tl.full((), float("-inf"), tl.float32)
    chosen = tl.full((), 0, tl.int32)
    level = tl.full((), 0.0, tl.float32)
    temperature, key = tl.load(DOUBLES), tl.load(NOISE + 1).to(tl.uint64)
    position = (tl.load(NOISE + 2) + place).to(tl.int32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(LOGITS + v, mask=v < V, other=float("-inf"))
        ids = tl.load(IDS + v, mask=v < V, other=0)
        value = x.to(tl.float64)
        if temperature > 0:
            value = value / temperature + gumbel(key, position, ids)
        most = tl.max(value, axis=0)
        if most > best:
            at = tl.min(tl.where(value == most, v, V), axis=0)
            chosen = tl.load(IDS + at)
            level = tl.load(LOGITS + at)
            best = most
        top = tl.maximum(top, tl.max(x, axis=0))
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(LOGITS + v, mask=v < V, other=float("-inf"))
        total += tl.sum(tl.exp(x - top), axis=0)
    tl.store(PICKED + 2 * place, chosen.to(tl.float32))
    tl.store(PICKED + 2 * place + 1, tl.exp(level - top) / total)
    if token_at < num_tokens:
        tl.store(TOKENS + token_at, chosen)
