"""Tokens drawn where the logits are: the argmax, or argmax(logit + Gumbel noise) of kept tokens.

`sampling` defines what a draw is. Logarithms and sums of weights differ from its own by rounding,
so a row that comes nearer to an edge than `margin` is left to the host: its TOKENS is -1.
"""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from forerun.kernels.cuda.compiling import kernel

BLOCK: Final = 1024  # tokens of a program
NUM_WORDS: Final = 16  # int32 of a row's options
# A truncated row's tokens within DEPTH nats of the best are gathered, at most MOST of them.
DEPTH: Final = 9.0
MOST: Final = 4096


@triton.jit
def is_changed(WORDS, r, NUM_WORDS: tl.constexpr):
    return (tl.load(WORDS + r * NUM_WORDS + 6) > 0) | (tl.load(WORDS + r * NUM_WORDS + 7) > 0)


@kernel()
def best_of_blocks(
    LOGITS, WORDS, TOPS, IDS, V: tl.constexpr, BLOCK: tl.constexpr, CHANGED: tl.constexpr,
    NUM_WORDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Find the largest of each run of BLOCK logits and the lowest token with it; NaN stays NaN.

    CHANGED: only in rows whose logits are changed.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    block, r = tl.program_id(0), tl.program_id(1)
    asked = True
    if CHANGED:
        asked = is_changed(WORDS, r, NUM_WORDS)
    if asked:
        v = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(LOGITS + r.to(tl.int64) * V + v, mask=v < V, other=float("-inf"))
        top = tl.max(x, axis=0)
        token = tl.min(tl.where(x == top, v, V), axis=0)
        num_broken = tl.sum((x != x).to(tl.int32), axis=0)
        at = r * tl.num_programs(0) + block
        tl.store(TOPS + at, tl.where(num_broken > 0, float("nan"), top))
        tl.store(IDS + at, token)


@kernel()
def best_of_rows(
    BLOCK_TOPS, IDS, WORDS, TOKENS, TOPS, COUNTS, V: tl.constexpr, NUM_BLOCKS: tl.constexpr,
    LANES: tl.constexpr, CHANGED: tl.constexpr, NUM_WORDS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Find the argmax of each row, or -1 if the row has a NaN or its largest logit is infinite."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    r, lane = tl.program_id(0), tl.arange(0, LANES)
    asked = True
    if CHANGED:
        asked = is_changed(WORDS, r, NUM_WORDS)
    if asked:
        inside = lane < NUM_BLOCKS
        tops = tl.load(BLOCK_TOPS + r * NUM_BLOCKS + lane, mask=inside, other=float("-inf"))
        ids = tl.load(IDS + r * NUM_BLOCKS + lane, mask=inside, other=V)
        top = tl.max(tops, axis=0)
        token = tl.min(tl.where(tops == top, ids, V), axis=0)
        num_broken = tl.sum((tops != tops).to(tl.int32), axis=0)
        good = (num_broken == 0) & (top > float("-inf")) & (top < float("inf"))
        if CHANGED:
            good = good & (tl.load(TOKENS + r) >= 0)
        tl.store(TOKENS + r, tl.where(good, token, -1))
        tl.store(TOPS + r, top)
        tl.store(COUNTS + r, 0)


@kernel()
def widen_rows(
    LOGITS, WORDS, MASKS, WIDE, V: tl.constexpr, BLOCK: tl.constexpr, NUM_WORDS: tl.constexpr
):
    """Write rows whose logits are changed as float64, with -inf where their mask forbids."""
    block, r = tl.program_id(0), tl.program_id(1)
    if is_changed(WORDS, r, NUM_WORDS):
        v = block * BLOCK + tl.arange(0, BLOCK)
        at, inside = r.to(tl.int64) * V + v, v < V
        x = tl.load(LOGITS + at, mask=inside, other=0.0).to(tl.float64)
        mask = tl.load(WORDS + r * NUM_WORDS + 7)
        if mask > 0:
            bits = tl.load(MASKS + (mask - 1) * ((V + 31) // 32) + v // 32, mask=inside, other=0)
            x = tl.where((bits >> (v % 32)) & 1 == 1, x, float("-inf"))
        tl.store(WIDE + at, x, mask=inside)


@kernel()
def change_rows(
    WIDE, WORDS, IDS, CHANGES, V: tl.constexpr, BLOCK: tl.constexpr, NUM_WORDS: tl.constexpr
):
    """Change single logits: bias or -inf, repetition penalty, presence and frequency penalties.

    Must be launched without fused multiply-add, so that every step rounds as numpy's does.
    """
    r = tl.program_id(0)
    first, num = tl.load(WORDS + r * NUM_WORDS + 5), tl.load(WORDS + r * NUM_WORDS + 6)
    start = 0
    while start < num:
        idx = start + tl.arange(0, BLOCK)
        inside = idx < num
        token = tl.load(IDS + first + idx, mask=inside, other=0)
        at = WIDE + r.to(tl.int64) * V + token
        change = CHANGES + (first + idx) * 3
        x = tl.load(at, mask=inside, other=0.0) + tl.load(change, mask=inside, other=0.0)
        factor = tl.load(change + 1, mask=inside, other=1.0)
        x = tl.where(x > 0, x / factor, x * factor) - tl.load(change + 2, mask=inside, other=0.0)
        tl.store(at, x, mask=inside)
        start += BLOCK


@triton.jit
def gumbel(key, position, tokens):
    """Return `Noise.gumbel`, up to the last bits of its logarithms."""
    zero = tokens.to(tl.uint32) * 0
    high, low, _, _ = tl.philox(
        key, zero + position.to(tl.uint32), tokens.to(tl.uint32), zero, zero
    )
    u = high.to(tl.float64) * 2.0**-32 + (low.to(tl.float64) + 0.5) * 2.0**-64
    u = tl.minimum(u, tl.full((), 0.9999999999999999, tl.float64))  # 1 - 2^-53
    left = 1.0 - u
    # -log(1 - u), corrected for the rounding of 1 - u.
    exponential = -(tl.log(left) + (-u - (left - 1.0)) / left)
    return -tl.log(exponential)


@kernel()
def noisy_blocks(
    LOGITS, TOPS, WIDE, WIDE_TOPS, WORDS, DOUBLES, BESTS, SECONDS, IDS, WEIGHTS, COUNTS, KEPT,
    NOISY, KEPT_IDS, HAS_WIDE: tl.constexpr, V: tl.constexpr, BLOCK: tl.constexpr,
    DEPTH: tl.constexpr, MOST: tl.constexpr, NUM_WORDS: tl.constexpr,
):  # fmt: skip
    """Find the best two sums of logit and noise in each run of BLOCK tokens.

    A truncated row's tokens within DEPTH nats of the best go to a list, in any order, and the
    best two are found among the others.
    """
    block, r = tl.program_id(0), tl.program_id(1)
    words = WORDS + r * NUM_WORDS
    kind = tl.load(words)
    if kind > 0:
        position, low, high = tl.load(words + 1), tl.load(words + 2), tl.load(words + 3)
        key = (high.to(tl.uint32).to(tl.uint64) << 32) | low.to(tl.uint32).to(tl.uint64)
        temperature = tl.load(DOUBLES + r * (NUM_WORDS // 2) + 4)
        top = tl.load(TOPS + r).to(tl.float64)
        v = block * BLOCK + tl.arange(0, BLOCK)
        at = r.to(tl.int64) * V + v
        x = tl.load(LOGITS + at, mask=v < V, other=float("-inf")).to(tl.float64)
        if HAS_WIDE:  # noqa: SIM102  # decided at compile time
            if is_changed(WORDS, r, NUM_WORDS):
                x = tl.load(WIDE + at, mask=v < V, other=float("-inf"))
                top = tl.load(WIDE_TOPS + r)
        served = (x - top) / temperature
        noisy = served + gumbel(key, position, v)
        if kind > 1:
            near = served >= -DEPTH
            num_near = tl.sum(near.to(tl.int32), axis=0)
            first = tl.atomic_add(COUNTS + r, num_near)
            place = first + tl.cumsum(near.to(tl.int32), axis=0) - 1
            fits = near & (place < MOST)
            tl.store(KEPT + r * MOST + place, served, mask=fits)
            tl.store(NOISY + r * MOST + place, noisy, mask=fits)
            tl.store(KEPT_IDS + r * MOST + place, v, mask=fits)
            noisy = tl.where(near, float("-inf"), noisy)
        at = r * tl.num_programs(0) + block
        best = tl.max(noisy, axis=0)
        token = tl.min(tl.where(noisy == best, v, V), axis=0)
        tl.store(BESTS + at, best)
        tl.store(SECONDS + at, tl.max(tl.where(v == token, float("-inf"), noisy), axis=0))
        tl.store(IDS + at, token)
        tl.store(WEIGHTS + at, tl.sum(tl.exp(served), axis=0))


@kernel()
def noisy_rows(
    WORDS, DOUBLES, BESTS, SECONDS, IDS, WEIGHTS, COUNTS, KEPT, NOISY, KEPT_IDS, TOKENS, margin,
    V: tl.constexpr, NUM_BLOCKS: tl.constexpr, LANES: tl.constexpr, DEPTH: tl.constexpr,
    MOST: tl.constexpr, NUM_WORDS: tl.constexpr,
):  # fmt: skip
    """Draw each row that has noise; a row that cannot be served keeps its -1."""
    r, lane = tl.program_id(0), tl.arange(0, LANES)
    words, doubles = WORDS + r * NUM_WORDS, DOUBLES + r * (NUM_WORDS // 2)
    kind = tl.load(words)
    if (kind > 0) & (tl.load(TOKENS + r) >= 0):
        inside, at = lane < NUM_BLOCKS, r * NUM_BLOCKS + lane
        bests = tl.load(BESTS + at, mask=inside, other=float("-inf"))
        best = tl.max(bests, axis=0)
        if kind == 1:
            ids = tl.load(IDS + at, mask=inside, other=V)
            token = tl.min(tl.where(bests == best, ids, V), axis=0)
            seconds = tl.load(SECONDS + at, mask=inside, other=float("-inf"))
            second = tl.max(tl.where(ids == token, seconds, bests), axis=0)
            tl.store(TOKENS + r, tl.where(best - second > margin, token, -1))
        else:
            weights = tl.load(WEIGHTS + at, mask=inside, other=0.0)
            token = truncated_token(
                words, doubles, best, tl.sum(weights, axis=0), tl.load(COUNTS + r),
                KEPT + r * MOST, NOISY + r * MOST, KEPT_IDS + r * MOST, margin, V, DEPTH, MOST,
            )  # fmt: skip
            tl.store(TOKENS + r, token)


@triton.jit
def truncated_token(
    words, doubles, best_beyond, total, num, KEPT, NOISY, IDS, margin,
    V: tl.constexpr, DEPTH: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Return the token with the best sum of those that top-k, top-p and min-p keep, or -1.

    Each of the three keeps a run of the most probable tokens. So the token with the best sum is
    tested: if it is kept, it is drawn; if not, it is ruled out with all less probable tokens, and
    the next best sum is tested.
    """
    k, top_p, least = tl.load(words + 4), tl.load(doubles + 5), tl.load(doubles + 6)
    lane = tl.arange(0, MOST)
    gathered = lane < num
    served = tl.load(KEPT + lane, mask=gathered, other=float("-inf"))
    noisy = tl.load(NOISY + lane, mask=gathered, other=float("-inf"))
    ids = tl.load(IDS + lane, mask=gathered, other=V)
    weights = tl.exp(served)
    least_total, most_total = total, total
    decided = num <= MOST
    if (k > 0) & (top_p < 1):  # top-p applies to what top-k keeps
        if num > k:
            edge, found = kth_largest(served, gathered, k)
            decided = decided & found
            least_total = tl.sum(tl.where(served >= edge, weights, 0.0), axis=0)
            most_total = least_total
        else:
            least_total = tl.sum(weights, axis=0)
            beyond = (k - num).to(tl.float64) * tl.exp(-DEPTH + tl.zeros((1,), tl.float64))
            most_total = tl.minimum(total, least_total + tl.sum(beyond, axis=0))
    slack = tl.full((), 1.0, tl.float64) + margin  # a float32 1 + margin would be 1
    reached = tl.sum(weights, axis=0)
    # Whether only gathered tokens can be kept.
    closed = ((k > 0) & (num >= k)) | (least >= -DEPTH)
    closed = closed | (reached >= top_p * most_total * slack)
    token = tl.full((), -1, tl.int32)
    alive = gathered
    searching = decided & (num > 0)
    while searching:
        best = tl.max(tl.where(alive, noisy, float("-inf")), axis=0)
        chosen = tl.min(tl.where(alive & (noisy == best), ids, V), axis=0)
        second = tl.max(tl.where(alive & (ids != chosen), noisy, float("-inf")), axis=0)
        level = tl.max(tl.where(ids == chosen, served, float("-inf")), axis=0)
        before = gathered & ((served > level) | ((served == level) & (ids < chosen)))
        num_before = tl.sum(before.to(tl.int32), axis=0)
        weight = tl.sum(tl.where(before, weights, 0.0), axis=0)
        is_out = ((k > 0) & (num_before >= k)) | (level < least)
        is_out = is_out | ((top_p < 1) & (weight * 1.0 >= top_p * most_total * slack))
        is_in = (top_p >= 1) | (num_before == 0) | (weight * slack < top_p * least_total)
        if is_out:
            alive = alive & before
        else:
            wins = is_in & (best - second > margin)
            wins = wins & (closed | (best - best_beyond > margin))
            token = tl.where(wins, chosen, -1)
            searching = False
    return token


@triton.jit
def kth_largest(served, gathered, k):
    """Return a number that exactly k values reach, and whether one exists (ties may forbid it)."""
    low = tl.min(tl.where(gathered, served, 0.0), axis=0)  # more than k reach it
    high = tl.full((), 0.0, tl.float64) + 1.0  # none reaches it
    edge = low
    found = k < 0
    for _ in range(64):
        if not found:
            middle = 0.5 * (low + high)
            count = tl.sum((gathered & (served >= middle)).to(tl.int32), axis=0)
            edge = middle
            found = count == k
            low = tl.where(count > k, middle, low)
            high = tl.where(count > k, high, middle)
    return edge, found
