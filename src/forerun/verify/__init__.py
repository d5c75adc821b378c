"""Which guesses are accepted: pure functions of (p, proposal, noise), without request or cache."""

from forerun.verify.coupled import coupled
from forerun.verify.greedy import greedy
from forerun.verify.lenient import bound, lenient, lenient_greedy
from forerun.verify.matching import match, match_drawn
from forerun.verify.rejection import rejection, residual

__all__ = [
    "bound",
    "coupled",
    "greedy",
    "lenient",
    "lenient_greedy",
    "match",
    "match_drawn",
    "rejection",
    "residual",
]
