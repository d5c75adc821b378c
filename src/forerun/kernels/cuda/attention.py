"""Paged attention of one token and one key/value head, over keys in logical order.

Key j is the token at position j. It is in lane j mod S of split j // S, wherever its slot is and
whatever else is in the pass. Splits are folded in ascending order; keys that a token does not see
are never loaded.
"""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

import triton.language as tl

from forerun.kernels.cuda.compiling import kernel

# Lanes of a split, by bytes of the dtype. float32 products are unrolled over lanes: fewer of them.
SPLIT_LENS: Final = {2: 256, 4: 64}


@kernel(
    do_not_specialize_on_alignment=[
        "STARTS",
        "FIRSTS",
        "LENGTHS",
        "OWN_FIRSTS",
        "NUM_KEYS",
        "KEY_SLOTS",
    ]
)
def attend_split(
    Q, KEYS, VALUES, STARTS, FIRSTS, LENGTHS, OWN_FIRSTS, NUM_KEYS, KEY_SLOTS,
    OUT, MIXED, SUMS, TOPS, scale,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr,
    BG: tl.constexpr, BD: tl.constexpr, SPLIT: tl.constexpr,
    ONLY: tl.constexpr, EARLY: tl.constexpr, PRECISION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend to one split of one token's keys, for all query heads of one key/value head.

    A token's first LENGTHS keys have their slots at KEY_SLOTS[FIRSTS …], the others, its own
    branch, at KEY_SLOTS[OWN_FIRSTS …]. Keys before STARTS are from earlier passes: with EARLY they
    are loaded before the kernel that writes this pass's own keys has ended, which takes twice the
    registers. `scale` is log2(e) / sqrt(D).
    ONLY: there is one split, and OUT is written; else MIXED, SUMS and TOPS go to `fold_splits`.
    """
    t, g, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = H // G
    r, d, lane = tl.arange(0, BG), tl.arange(0, BD), tl.arange(0, SPLIT)
    num_keys, start = tl.load(NUM_KEYS + t), tl.load(STARTS + t)
    first, length, own_first = tl.load(FIRSTS + t), tl.load(LENGTHS + t), tl.load(OWN_FIRSTS + t)
    seen_first = 0
    if WINDOW > 0:
        seen_first = tl.maximum(num_keys - WINDOW, 0)
    j = split * SPLIT + lane
    seen = (j < num_keys) & (j >= seen_first)
    where = tl.where(j < length, first + j, own_first + j - length)
    slot = tl.load(KEY_SLOTS + where, mask=seen, other=0).to(tl.int64)
    at = (slot * (G * D) + g * D)[:, None] + d[None, :]
    there = seen[:, None] & (d < D)[None, :]
    own = there & (j >= start)[:, None]
    if EARLY:
        old_k = tl.load(KEYS + at, mask=there & ~own, other=0.0)
        old_v = tl.load(VALUES + at, mask=there & ~own, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    if (split * SPLIT < num_keys) & ((split + 1) * SPLIT > seen_first):
        head = g * GROUP + r
        q_mask = (r < GROUP)[:, None] & (d < D)[None, :]
        q = tl.load(Q + t * (H * D) + head[:, None] * D + d[None, :], mask=q_mask, other=0.0)
        if EARLY:
            k = tl.where(own, tl.load(KEYS + at, mask=own, other=0.0), old_k)
            v = tl.where(own, tl.load(VALUES + at, mask=own, other=0.0), old_v)
        else:
            k = tl.load(KEYS + at, mask=there, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        score = tl.where(seen[None, :], score, float("-inf"))
        top = tl.max(score, axis=1)
        weight = tl.exp2(score - top[:, None])
        total = tl.sum(weight, axis=1)
        if not EARLY:
            v = tl.load(VALUES + at, mask=there, other=0.0)
        mixed = tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        if ONLY:
            out_at = OUT + t * (H * D) + head[:, None] * D + d[None, :]
            tl.store(out_at, (mixed / total[:, None]).to(OUT.dtype.element_ty), mask=q_mask)
        else:
            part = (t * tl.num_programs(2) + split) * H + head
            tl.store(MIXED + part[:, None] * D + d[None, :], mixed, mask=q_mask)
            tl.store(SUMS + part, total, mask=r < GROUP)
            tl.store(TOPS + part, top, mask=r < GROUP)


@kernel(do_not_specialize=["num_splits"], do_not_specialize_on_alignment=["NUM_KEYS"])
def fold_splits(
    MIXED, SUMS, TOPS, NUM_KEYS, OUT, num_splits,
    H: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, BD: tl.constexpr,
    SPLIT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Fold the splits of one token and one query head, in ascending order."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    t, head = tl.program_id(0), tl.program_id(1)
    num_keys = tl.load(NUM_KEYS + t)
    lowest = 0
    if WINDOW > 0:
        lowest = tl.maximum(num_keys - WINDOW, 0) // SPLIT
    d = tl.arange(0, BD)
    base = t * num_splits * H + head
    part = base + lowest * H
    mixed = tl.load(MIXED + part * D + d, mask=d < D, other=0.0)
    total, top = tl.load(SUMS + part), tl.load(TOPS + part)
    for split in range(lowest + 1, (num_keys + SPLIT - 1) // SPLIT):
        part = base + split * H
        next_top = tl.load(TOPS + part)
        new_top = tl.maximum(top, next_top)
        old, new = tl.exp2(top - new_top), tl.exp2(next_top - new_top)
        total = tl.fma(total, old, tl.load(SUMS + part) * new)
        mixed = tl.fma(mixed, old, tl.load(MIXED + part * D + d, mask=d < D, other=0.0) * new)
        top = new_top
    out_at = OUT + t * (H * D) + head * D + d
    tl.store(out_at, (mixed / total).to(OUT.dtype.element_ty), mask=d < D)
