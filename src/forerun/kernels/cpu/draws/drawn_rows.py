"""The last steps of a pass: draw the token of every wanted row.

    best_piece   the largest allowed logit of each piece of a row
    best_row     the largest of all pieces                      at temperature 0 this is all
    noisy_piece  the best of logit + noise in each piece        row by row, while guesses are right
    noisy_row    the best of all pieces

Noise is evaluated only for tokens that can win. A token's noise is −log(−log(1 − u)) ≤ −log(u), so
its sum reaches the best one so far only if u ≤ e^(value − best), and u ≥ word / 2^32. All others
stay below it by 5e-4. A row is `LEFT` to `sampling` if its best two sums are closer than the
libraries' rounding, if a logit is not finite, if no token is allowed, or if it needs more than
noise and masks: so every token is that of `sampling`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import float32, float64, int64, njit

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    F32,
    GROUP_LEN,
    I16,
    I32,
    I64,
    Emitter,
    Value,
    constant,
    i64,
)
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import doubles, floats, int_at, ints
from forerun.kernels.cpu.codegen.scalar import emit_exp
from forerun.kernels.cpu.codegen.step import arg
from forerun.kernels.cpu.draws.gumbel import SLACK, gumbel_noise
from forerun.kernels.cpu.draws.masks import group_bits, group_lanes
from forerun.kernels.cpu.draws.noise_words import group_words
from forerun.kernels.cpu.runtime.drawn import (
    BEFORE,
    BY_HOST,
    GUESS,
    KEY,
    LEFT,
    MASK,
    NOISE_FIELDS,
    NOT_ASKED,
    NUM_GROUPS,
    POSITION,
)

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_PIECE_LEN: Final = 8192  # logits
PIECE_FIELDS: Final = 8  # a piece's results: a cache line
_PIECE_BYTES: Final = 8 * PIECE_FIELDS
_TOP, _TOP_ID, _NOISY, _NOISY_ID, _SECOND = range(5)
_NOISE_BYTES: Final = 8 * NOISE_FIELDS
_GROUP_BYTES: Final = 4 * GROUP_LEN
_LARGE = 1e30  # the largest 1 / temperature: every token but the best one stays far below
_NONE: Final = 2**31 - 1  # larger than all ids


def num_pieces(num_tokens: int) -> int:
    return -(-num_tokens // _PIECE_LEN)


@emitted(int64, int64, int64)
def _best_of(b: Any, address: Value, num: Value) -> Value:
    """Return the index of the first largest of `num` floats of a padded row; −1 if one of them is
    not finite."""
    return _emit_best(b, address, num, lambda _, is_there: is_there)


@emitted(int64, int64, int64, int64, int64, int64)
def _best_allowed(
    b: Any, address: Value, num: Value, mask: Value, num_groups: Value, first_group: Value
) -> Value:
    """As `_best_of`, of the tokens that a mask allows; the floats' bits begin with `first_group`.
    Return _NONE if no token is allowed and all floats are finite."""

    def may_come(idx: Value, is_there: Value) -> Value:
        return b.and_(is_there, group_lanes(b, mask, num_groups, b.add(first_group, idx)))

    return _emit_best(b, address, num, may_come)


def _emit_best(
    b: Any, address: Value, num: Value, may_come: Callable[[Value, Value], Value]
) -> Value:
    """Emit the search; `may_come` returns the allowed lanes of a group, given its number and the
    lanes that have a float."""
    e, lanes = Emitter(b, Machine.host()), constant(I32, list(range(GROUP_LEN)))
    lowest = constant(F32, [-np.inf] * GROUP_LEN)
    zeros, last = constant(F32, [0.0] * GROUP_LEN), constant(I32, [_NONE] * GROUP_LEN)
    num_groups = b.sdiv(b.add(num, i64(GROUP_LEN - 1)), i64(GROUP_LEN))
    end = e.splat(b.trunc(num, I32), GROUP_LEN)

    def compare(idx: Value, carried: list[Value]) -> list[Value]:
        most, where, total = carried
        first = e.splat(b.trunc(b.mul(idx, i64(GROUP_LEN)), I32), GROUP_LEN)
        ids = b.add(first, lanes)
        found = e.load(b.add(address, b.mul(idx, i64(_GROUP_BYTES))), lowest.type)
        is_there = b.icmp_signed("<", ids, end)
        total = e.fma(b.select(is_there, found, zeros), zeros, total)  # x · 0: NaN if not finite
        is_more = b.and_(may_come(idx, is_there), b.fcmp_ordered(">", found, most))
        return [b.select(is_more, found, most), b.select(is_more, ids, where), total]

    def larger(left: Value, right: Value) -> Value:
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def lower(left: Value, right: Value) -> Value:
        return b.select(b.icmp_signed("<", left, right), left, right)

    most, where, total = loop(b, num_groups, [lowest, last, zeros], compare)
    top = e.splat(b.extract_element(e.fold_each([most], larger), I32(0)), GROUP_LEN)
    where = b.select(b.fcmp_ordered("==", most, top), where, last)
    first = b.extract_element(e.fold_each([where], lower), I32(0))
    is_finite = b.fcmp_ordered("ord", e.fold(total), F32(0.0))
    return b.select(is_finite, b.sext(first, I64), i64(LEFT))


@emitted(int64, int64, int64, int64, int64, float32, float32, float32)
def _may_win(
    b: Any,
    logits: Value,
    first: Value,
    key: Value,
    position: Value,
    top: Value,
    factor: Value,
    best: Value,
) -> Value:
    """Return as bits which of the 16 tokens from `first` on have a sum that may reach `best`."""
    e = Emitter(b, Machine.host())
    found = e.load(logits, constant(F32, [0.0] * GROUP_LEN).type)
    tops, factors, bests = (e.splat(each, GROUP_LEN) for each in (top, factor, best))
    value = b.fmul(b.fsub(found, tops), factors)
    bound = emit_exp(e, b.fsub(value, bests))
    more, one = (constant(F32, [each] * GROUP_LEN) for each in (1.001 * 2.0**32, 1.0))
    words = b.uitofp(group_words(b, key, position, first), found.type)
    wins = b.fcmp_ordered("<=", words, e.fma(bound, more, one))
    return b.zext(b.bitcast(wins, I16), I64)


@njit(inline="always")
def _best_of_row(pieces, num):
    """Return (id, logit) of the best of all pieces; LEFT if a piece is, or no token is allowed."""
    token, top = int_at(pieces, _TOP_ID), doubles(pieces)[_TOP]
    for idx in range(1, num):
        piece = pieces + _PIECE_BYTES * idx
        if token < 0 or int_at(piece, _TOP_ID) < 0:
            token = int64(LEFT)
        elif doubles(piece)[_TOP] > top:
            token, top = int_at(piece, _TOP_ID), doubles(piece)[_TOP]
    return int64(LEFT) if token == _NONE else token, top


def best_piece(step, chunk, _scratch):
    """Find the largest logit of one piece of a row, and its id. Chunks go through all rows' first
    pieces, then their second …: so a thread mostly reads what it has written itself."""
    num_tokens, num, num_rows = arg(step, 2), arg(step, 4), int_at(step, 1) // arg(step, 4)
    row, idx = chunk % num_rows, chunk // num_rows
    first = idx * _PIECE_LEN
    logits = arg(step, 0) + row * arg(step, 1) + 4 * first
    piece = arg(step, 3) + _PIECE_BYTES * (row * num + idx)
    best, noise, mask = int64(0), arg(step, 6), int64(0)
    if noise != 0:
        noise += _NOISE_BYTES * row
        mask = int_at(noise, MASK)
        if int_at(noise, BEFORE) == BY_HOST:
            return
    count = min(_PIECE_LEN, num_tokens - first)
    if mask == 0:
        best = _best_of(logits, count)
    else:
        num_groups = int_at(noise, NUM_GROUPS)
        best = _best_allowed(logits, count, mask, num_groups, first // GROUP_LEN)
    is_found = 0 <= best < _NONE
    ints(piece)[_TOP_ID] = best + first if is_found else best
    doubles(piece)[_TOP] = float64(floats(logits)[best]) if is_found else -np.inf


def best_row(step, row, _scratch):
    """Write the token of a row at temperature 0."""
    num = arg(step, 4)
    token, _ = _best_of_row(arg(step, 3) + _PIECE_BYTES * row * num, num)
    ints(arg(step, 5))[row] = token


@njit(inline="always")
def _is_asked(noise, tokens):
    """Whether a row's token may be needed: the row before it drew the guess, or is left to the
    host, or there is no row before it."""
    before = int_at(noise, BEFORE)
    if before < 0:
        return before != BY_HOST
    token = int_at(tokens, before)
    return token == LEFT or token == int_at(noise, GUESS)


def noisy_piece(step, chunk, _scratch):
    """Find the best and second best of (logit − top) / temperature + noise in one piece of a row,
    without the token of the largest logit."""
    num_tokens, num, row = arg(step, 2), arg(step, 4), arg(step, 7)
    noise, pieces = arg(step, 6) + _NOISE_BYTES * row, arg(step, 3) + _PIECE_BYTES * row * num
    temperature, key, position = doubles(noise)[0], int_at(noise, KEY), int_at(noise, POSITION)
    top_id, top = _best_of_row(pieces, num)
    if temperature == 0 or top_id < 0 or not _is_asked(noise, arg(step, 5)):
        return
    first = chunk * _PIECE_LEN
    count = min(_PIECE_LEN, num_tokens - first)
    logits = arg(step, 0) + row * arg(step, 1) + 4 * first
    factor, best = float32(min(1 / temperature, _LARGE)), gumbel_noise(key, position, top_id)
    token, most, second = int64(LEFT), -np.inf, -np.inf
    for start in range(0, count, GROUP_LEN):
        idx, place = start, first + start
        bits = group_bits(noise, place // GROUP_LEN)
        if bits != 0:
            group, least = logits + 4 * start, float32(best)
            bits &= _may_win(group, place, key, position, float32(top), factor, least)
        while bits != 0 and idx < count:
            if bits & 1 and first + idx != top_id:
                value = (float64(floats(logits)[idx]) - top) / temperature
                value += gumbel_noise(key, position, first + idx)
                best, second = max(best, value), max(second, min(most, value))
                if value > most:
                    token, most = first + idx, value
            bits, idx = bits >> 1, idx + 1
    piece = pieces + _PIECE_BYTES * chunk
    ints(piece)[_NOISY_ID] = token
    doubles(piece)[_NOISY], doubles(piece)[_SECOND] = most, second


def noisy_row(step, _chunk, _scratch):
    """Write the token of a row, or LEFT, or NOT_ASKED."""
    num, row = arg(step, 4), arg(step, 7)
    noise, pieces = arg(step, 6) + _NOISE_BYTES * row, arg(step, 3) + _PIECE_BYTES * row * num
    temperature, key, position = doubles(noise)[0], int_at(noise, KEY), int_at(noise, POSITION)
    token, _ = _best_of_row(pieces, num)
    if int_at(noise, BEFORE) == BY_HOST:
        token = int64(LEFT)
    elif not _is_asked(noise, arg(step, 5)):
        token = int64(NOT_ASKED)
    elif temperature != 0 and token >= 0:
        most, second = gumbel_noise(key, position, token), -np.inf
        for idx in range(num):
            piece = pieces + _PIECE_BYTES * idx
            value = doubles(piece)[_NOISY]
            second = max(second, min(most, value), doubles(piece)[_SECOND])
            if value > most:
                token, most = int_at(piece, _NOISY_ID), value
        if most - second < 4 * SLACK:
            token = int64(LEFT)
    ints(arg(step, 5))[row] = token
