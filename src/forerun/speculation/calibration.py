"""What passes cost here and now, timed before the first request."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from forerun.cache.cache_size import CacheSize
from forerun.interrupts import safe_point
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.sampling import CoupledDraws
from forerun.speculation.pass_cost import PassCost
from forerun.types import Span

_SIZES: Final = (1, 2, 4, 8)
_SECONDS: Final = 0.15  # for one pass of every size
_NUM_REPEATS: Final = 2
_MAX_REPEATS: Final = 8  # on a restless machine


def calibrate(model: LlamaModel, largest: int) -> PassCost:
    """A few sizes always, and larger ones up to `largest` where that is quick: other sizes are
    learnt from the passes that have them."""
    measure = pass_timer(model, max(*_SIZES, largest))
    sizes = list(_SIZES)
    seconds = sum(map(measure, sizes))
    while 2 * sizes[-1] <= largest and 2 * seconds <= _SECONDS:
        sizes.append(2 * sizes[-1])
        seconds += measure(sizes[-1])
    return PassCost.calibrate(measure, sizes, _NUM_REPEATS, _MAX_REPEATS)


def pass_timer(model: LlamaModel, max_tokens: int) -> Callable[[int], float]:
    """Seconds that one pass over some tokens takes here and now, on an empty context."""
    size = CacheSize.for_requests(1, max_tokens)
    cache = model.new_cache(size.num_pages, size.page_size)

    def measure(num_tokens: int) -> float:
        safe_point()
        table = cache.new_table()
        span = Span.all_wanted(table.reserve(num_tokens), (0,) * num_tokens)
        draws = CoupledDraws.greedy(num_tokens)
        began = time.perf_counter()
        model.draw(Plan.build([(span, table)]), cache, [draws])
        seconds = time.perf_counter() - began
        table.free()
        return seconds

    return measure
