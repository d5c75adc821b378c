"""What passes cost here and now, timed before the first request."""

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
_QUICK: Final = 0.03  # seconds of a pass of the last of `_SIZES`
_NUM_REPEATS: Final = 2
_MAX_REPEATS: Final = 8  # on a restless machine
# What a context adds must show beside what a pass takes: the less of both, the more it wavers.
_CONTEXT: Final = 512  # tokens
_NUM_ROWS: Final = 8
_NUM_TURNS: Final = 3
_IN_A_ROW: Final = 6  # plain passes, where each may begin the next


def calibrate(model: LlamaModel, largest: int) -> PassCost:
    """A few sizes always, and one more where that is quick and passes may be so large: others are
    learnt from the passes that have them. What a context adds is timed at two sizes."""
    measure = pass_timer(model, _LARGEST)
    measure(_SIZES[-1])  # the first pass of all puts weights in their places
    is_quick = min(measure(_SIZES[-1]) for _ in range(2)) <= _QUICK
    sizes = (*_SIZES, _LARGEST) if is_quick and largest >= _LARGEST else _SIZES
    found = PassCost.calibrate(measure, sizes, _NUM_REPEATS, _MAX_REPEATS)
    found.per_key = _per_key(model, measure)
    return found


def _per_key(model: LlamaModel, measure: Callable[[int], float]) -> tuple[float, float]:
    """Seconds that each token of the context adds to the first row, and to each row behind it."""
    context_len = max(1, min(_CONTEXT, model.config.max_len - _NUM_ROWS))
    behind = pass_timer(model, context_len + _NUM_ROWS, context_len)

    def per_token(num_rows: int) -> float:
        """In turns, and of both the fastest: one may be slow for reasons of its own, never fast."""
        pairs = [(behind(num_rows), measure(num_rows)) for _ in range(_NUM_TURNS)]
        added = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
        return max(0.0, added) / context_len

    one, several = per_token(1), per_token(_NUM_ROWS)
    return one, max(0.0, several - one) / (_NUM_ROWS - 1)


def pass_timer(model: LlamaModel, max_tokens: int, context_len: int = 0) -> Callable[[int], float]:
    """Seconds that one pass over some tokens takes here and now, behind so many others."""
    size = CacheSize.for_requests(1, max_tokens + _IN_A_ROW)
    cache = model.new_cache(size.num_pages, size.page_size)
    table = cache.new_table()
    table.reserve(max_tokens + 1)
    table.keep(0, range(1, max_tokens + 1))  # memory that was never written reads faster
    table.free()

    def measure(num_tokens: int) -> float:
        safe_point()
        table = cache.new_table()
        table.reserve(context_len)
        draws = CoupledDraws.greedy(num_tokens)
        is_early = num_tokens == 1 and model.kernels.begins_early
        tokens, seconds = (0,) * num_tokens, list[float]()
        for left in range(_IN_A_ROW if is_early else 1, 0, -1):
            span = Span.all_wanted(table.reserve(num_tokens), tokens)
            following = next_slots([(table, 1)]) if left > 1 else None
            began = time.perf_counter()
            scores = model.draw(Plan.build([(span, table)], following), cache, [draws])
            seconds.append(time.perf_counter() - began)
            tokens = (scores.token(0) or 0,) * num_tokens
        table.free()
        return median(seconds[1:]) if is_early else seconds[0]

    return measure
