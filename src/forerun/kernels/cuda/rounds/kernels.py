"""From what a verification drew to the inputs of the next round."""

# Triton's kernels are compiled, not called: their arguments have no Python types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from typing import Final

import triton.language as tl

from forerun.kernels.cuda.compiling import kernel

# Words of 64 bits that the host sends: the number of guesses that are verified, the next rows of
# the two caches if none is accepted, the draft's temperature, key and position, and the guesses.
NUM_GUESSES: Final = tl.constexpr(0)
ROW_AT: Final = tl.constexpr(1)
TEMPERATURE: Final = tl.constexpr(3)
POSITION: Final = tl.constexpr(5)
GUESSES_AT: Final = tl.constexpr(8)
NUM_PARAMS: Final = 64
NUM_TAKEN: Final = 32
MOST_GUESSES: Final = NUM_TAKEN - 1

# What a run of tokens is: a head's known tokens and places, the tokens that a draft model has not
# seen, or a chain of tokens.
HEAD: Final = 0
CATCH_UP: Final = 1
CHAIN: Final = 2


@kernel()
def accept_guesses(PARAMS, DRAWN, TAKEN, COUNT, NUM: tl.constexpr):
    """Count the guesses up to the first that differs from what was drawn; keep what was drawn."""
    i = tl.arange(0, NUM)
    num = tl.load(PARAMS + NUM_GUESSES)
    drawn = tl.load(DRAWN + i)
    guess = tl.load(PARAMS + GUESSES_AT + i, mask=i < num, other=-2).to(tl.int32)
    tl.store(TAKEN + i, tl.maximum(drawn, 0))
    tl.store(COUNT, tl.min(tl.where(drawn == guess, NUM, i), axis=0))


@kernel(
    do_not_specialize=["dump_slot", "offset"],
    do_not_specialize_on_alignment=["PER_TOKEN", "WANTED", "KEY_SLOTS"],
)
def place_chain(
    PARAMS, TAKEN, COUNT, GUESSES, PER_TOKEN, WANTED, KEY_SLOTS, TURNS, ROTATIONS,
    dump_slot, offset, CACHE: tl.constexpr, KIND: tl.constexpr, DEPTH: tl.constexpr,
    T: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BDEPTH: tl.constexpr,
):  # fmt: skip
    """Write the inputs of one token of a run (`Inputs` describes them).

    A padding token works on the dump slot, which is the first of the key slots.
    """
    t, count = tl.program_id(0), tl.load(COUNT)
    first = tl.load(PARAMS + ROW_AT + CACHE).to(tl.int32)
    if KIND == 0:
        is_real = (t <= count) | (t > DEPTH)
        row = tl.where(t > DEPTH, first + count + t - DEPTH, first + t)
        token = tl.load(TAKEN + tl.minimum(t, count))
        start = first
        i = tl.arange(0, BDEPTH)
        tl.store(WANTED + i, tl.where(i == 0, count, i + DEPTH), mask=(i < DEPTH) & (t == 0))
    elif KIND == 1:
        is_real = (t == 1) | (count == DEPTH)
        row = first + count + t - 1
        token = tl.load(TAKEN + tl.maximum(count + t - 1, 0))
        start = first + tl.minimum(count, DEPTH - 1)
    else:
        at = offset + t
        is_real = at >= 0
        row = first + count + at
        token = tl.load(TAKEN + count)
        if at > 0:
            token = tl.load(GUESSES + at - 1)
        start = first + count + offset
    row = tl.where(is_real, row, 0)
    slot = tl.where(is_real, tl.load(KEY_SLOTS + 1 + row), dump_slot)
    num_keys = tl.where(is_real, row + 1, 1)
    tl.store(PER_TOKEN + t, token)
    tl.store(PER_TOKEN + T + t, slot)
    tl.store(PER_TOKEN + 2 * T + t, tl.where(is_real, start, 0))
    tl.store(PER_TOKEN + 3 * T + t, is_real.to(tl.int32))
    tl.store(PER_TOKEN + 4 * T + t, num_keys)
    tl.store(PER_TOKEN + 5 * T + t, 0)
    tl.store(PER_TOKEN + 6 * T + t, num_keys)
    d = tl.arange(0, BD)
    turn = tl.load(TURNS + row * D + d, mask=d < D, other=0.0)
    tl.store(ROTATIONS + t * D + d, turn, mask=d < D)


@kernel()
def give_features(
    PARAMS, COUNT, FEATURES, OUT, NOISE, DEPTH: tl.constexpr, T: tl.constexpr,
    E: tl.constexpr, BE: tl.constexpr,
):  # fmt: skip
    """Copy a verification's hidden states to a head's rows, and the noise for its guesses.

    Places have the hidden states of the last known token.
    """
    t, layer, count = tl.program_id(0), tl.program_id(1), tl.load(COUNT)
    row = tl.where(t > DEPTH, count, tl.minimum(t, count))
    e = tl.arange(0, BE)
    x = tl.load(FEATURES + (layer * (DEPTH + 1) + row) * E + e, mask=e < E, other=0.0)
    tl.store(OUT + (layer * T + t) * E + e, x, mask=e < E)
    i = tl.arange(0, 4)
    words = tl.load(PARAMS + TEMPERATURE + i, mask=i < 3, other=0)
    is_first = (t == 0) & (layer == 0)
    tl.store(NOISE + i, tl.where(i == 2, words + count, words), mask=(i < 3) & is_first)


@kernel()
def keep_picks(PICKS, GUESSES, NUM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    pick = tl.load(PICKS + i * 3, mask=i < NUM, other=0.0)
    tl.store(GUESSES + i, pick.to(tl.int32), mask=i < NUM)


@kernel()
def advance(PARAMS, COUNT, GUESSES, DEPTH: tl.constexpr, BDEPTH: tl.constexpr):
    """Update PARAMS as the host would before the next round.

    GUESSES become the verified ones, and rows and position move past what was accepted of the
    guesses before them.
    """
    i, num_new = tl.arange(0, BDEPTH), tl.load(COUNT) + 1
    tl.store(PARAMS + GUESSES_AT + i, tl.load(GUESSES + i, mask=i < DEPTH), mask=i < DEPTH)
    tl.store(PARAMS + NUM_GUESSES, DEPTH)
    for word in tl.static_range(3):
        at = PARAMS + (ROW_AT + word if word < 2 else POSITION)
        tl.store(at, tl.load(at) + num_new)


@kernel(do_not_specialize=["place"])
def keep_guess(DRAWN, GUESSES, place):
    tl.store(GUESSES + place, tl.maximum(tl.load(DRAWN), 0))


@kernel(do_not_specialize=["num"])
def move_positions(WORDS, COUNT, num, NUM_WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """Move the draws of `num` rows COUNT positions on."""
    i = tl.arange(0, BLOCK)
    at = WORDS + i * NUM_WORDS + 1
    tl.store(at, tl.load(at, mask=i < num, other=0) + tl.load(COUNT), mask=i < num)
