"""The choice for a single request whose drafters have given their guesses and their chances.

It finds in one loop what `Allocator` finds for any batch, because weighing with the allocator takes
a tenth of the time of a small model's token.
"""

from __future__ import annotations

from collections.abc import Sequence

from forerun.speculation.choice import Choice, Reason
from forerun.speculation.costs import Costs
from forerun.types import Proposal

_LONG, _SURE = 8, 0.8  # tokens, and the least chance of each, given those before it


def is_sure(pick: Proposal, depth: int) -> bool:
    """Whether `pick` is sure of the next eight tokens, or of all that may be guessed. Then it is
    not worth asking other drafters, which takes one or two hundredths of a small model's round."""
    length = min(_LONG, depth)
    return len(pick.chances) >= length and min(pick.chances[:length]) >= _SURE


def best_alone(
    costs: Costs, picks: Sequence[tuple[str, Proposal]], *, is_plain_due: bool
) -> Choice:
    """Return the best choice among `picks`, each a drafter and its chain with chances."""
    least = costs.least_price(1, 0)
    seconds = costs.round_seconds(1, 0, max(len(pick) for _, pick in picks))
    plain, best, best_rate = seconds[0], None, 1 / seconds[0]
    for name, pick in picks:
        tokens = gain = 1.0
        for depth, chance in enumerate(pick.chances, start=1):
            gain *= chance
            if gain <= least:
                break
            tokens += gain
            rate = tokens / seconds[depth]
            if rate > best_rate:
                best, best_rate = (name, pick, depth, tokens), rate
    if best is None or is_plain_due:
        reason = Reason.NOTHING_PAYS if best is None else Reason.BASELINE
        return Choice(reason, expected_tokens=1.0, expected_seconds=plain)
    name, pick, depth, tokens = best
    gain = tokens - seconds[depth] / plain
    pick = pick.pruned(depth, 1)
    return Choice(Reason.PAYS, name, depth, 1, 1, pick, tokens, seconds[depth], gain, least)
