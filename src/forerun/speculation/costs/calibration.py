"""Timing the target's passes on this machine, before the first request."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Final

from forerun.cache import next_slots
from forerun.cache.cache_size import CacheSize
from forerun.interrupts import safe_point
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.sampling import CoupledDraws
from forerun.speculation.costs.pass_cost import PassCost
from forerun.types import Span

_SIZES: Final = (1, 2, 4, 8)
_LARGEST: Final = 16
_QUICK: Final = 0.03  # seconds of a pass over the last of `_SIZES`
_NUM_REPEATS: Final = 2
_MAX_REPEATS: Final = 8  # on a noisy machine
# The time that a context adds has to stand out from that of the pass and its noise.
_CONTEXT: Final = 512  # tokens
_NUM_ROWS: Final = 8
_NUM_TURNS: Final = 3
# Plain passes to time in a row if each may begin the next: on a GPU, and on a processor.
_IN_A_ROW: Final = 6
_FEW_IN_A_ROW: Final = 3  # if passes are quick


def calibrate(model: LlamaModel, largest: int) -> PassCost:
    """Time passes of a few sizes, and of one more size if passes are quick and may be that large.

    The costs of other sizes are learnt from passes that have them. What a context adds is timed
    with two numbers of rows.
    """
    measure = pass_timer(model, _LARGEST)
    measure(_SIZES[-1])  # the very first pass also moves weights to where they are needed
    is_quick = min(measure(_SIZES[-1]) for _ in range(2)) <= _QUICK
    num_in_a_row = _FEW_IN_A_ROW if is_quick and model.kernels.begins_plain else 1
    measure = pass_timer(model, _LARGEST, num_in_a_row=num_in_a_row)
    sizes = (*_SIZES, _LARGEST) if is_quick and largest >= _LARGEST else _SIZES
    found = PassCost.calibrate(measure, sizes, _NUM_REPEATS, _MAX_REPEATS)
    found.per_key = _per_key(model, measure, num_in_a_row)
    return found


def _per_key(
    model: LlamaModel, measure: Callable[[int], float], num_in_a_row: int
) -> tuple[float, float]:
    """Return the seconds that a token of context adds to the first row, and to each further row."""
    context_len = max(1, min(_CONTEXT, model.config.max_len - _NUM_ROWS))
    max_tokens = context_len + _NUM_ROWS
    behind = pass_timer(model, max_tokens, context_len, num_in_a_row=num_in_a_row)

    def per_token(num_rows: int) -> float:
        """Compare the fastest of several passes with context and without, timed in turns: a pass
        may be slow by accident, but never fast."""
        pairs = [(behind(num_rows), measure(num_rows)) for _ in range(_NUM_TURNS)]
        added = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
        return max(0.0, added) / context_len

    one, several = per_token(1), per_token(_NUM_ROWS)
    return one, max(0.0, several - one) / (_NUM_ROWS - 1)


def pass_timer(
    model: LlamaModel, max_tokens: int, context_len: int = 0, *, num_in_a_row: int = 1
) -> Callable[[int], float]:
    """Return a function that times one pass over a number of tokens after `context_len` others.

    `num_in_a_row` plain passes are run in a row if each may begin the next, and the first is not
    counted, as it finds the caches as another pass left them. On a GPU `_IN_A_ROW` are run.
    """
    if model.kernels.begins_early:
        num_in_a_row = _IN_A_ROW
    size = CacheSize.for_requests(1, max_tokens + num_in_a_row)
    cache = model.new_cache(size.num_pages, size.page_size)
    table = cache.new_table()
    table.reserve(max_tokens + 1)
    table.keep(0, range(1, max_tokens + 1))  # writes: memory that was never written reads faster
    table.free()

    def measure(num_tokens: int) -> float:
        safe_point()
        table = cache.new_table()
        table.reserve(context_len)
        draws = CoupledDraws.greedy(num_tokens)
        tokens, seconds = (0,) * num_tokens, list[float]()
        for left in range(num_in_a_row if num_tokens == 1 else 1, 0, -1):
            span = Span.all_wanted(table.reserve(num_tokens), tokens)
            following = next_slots([(table, 1)]) if left > 1 else None
            began = time.perf_counter()
            scores = model.draw(Plan.build([(span, table)], following), cache, [draws])
            seconds.append(time.perf_counter() - began + model.kernels.head_start)
            tokens = (scores.token(0) or 0,) * num_tokens
        table.free()
        return median(seconds[1:] or seconds)

    return measure
