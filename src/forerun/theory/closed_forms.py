"""What speculation is worth, in closed form (Leviathan et al. 2023, §3).

    α  the chance that a guess is accepted      γ  depth: guesses per round
    c  one draft step ÷ one plain target pass
    ĉ  arithmetic per token of the drafter ÷ of the target
    v  a pass over γ guesses and one more token ÷ a plain pass; the paper assumes v ≡ 1

All assume that guesses are accepted independently of each other. Bad input raises `InvalidOption`.
"""

from __future__ import annotations

import math
from fractions import Fraction

from forerun.theory.ranges import check_alpha, check_cost, check_depth
from forerun.theory.verify_cost import FREE, VerifyCost


def expected_tokens(alpha: float, depth: int) -> float:
    """Tokens emitted per round, 1 + α + … + α^γ (Eq. 1)."""
    alpha, depth = check_alpha(alpha), check_depth(depth)
    if alpha == 0:
        return 1.0
    if alpha == 1:
        return depth + 1.0
    # expm1 keeps every digit where 1 - α^(γ+1) would cancel, near α = 1.
    return -math.expm1((depth + 1) * math.log(alpha)) / (1 - alpha)


def expected_accepted(alpha: float, depth: int) -> float:
    """Guesses accepted per round, α(1 - α^γ)/(1 - α): one less than the tokens emitted."""
    alpha, depth = check_alpha(alpha), check_depth(depth)
    return alpha * expected_tokens(alpha, depth - 1) if depth else 0.0


def speedup(alpha: float, depth: int, cost: float, verify_cost: VerifyCost = FREE) -> float:
    """How many times faster than plain decoding: E[tokens] / (v(γ) + γc) (Thm 3.8)."""
    round_time = verify_cost.at(depth) + depth * check_cost(cost)
    return expected_tokens(alpha, depth) / round_time


def operations_factor(alpha: float, depth: int, operations_cost: float) -> float:
    """Arithmetic per emitted token against plain decoding, (γĉ + γ + 1) / E[tokens] (Thm 3.11)."""
    operations = depth * check_cost(operations_cost, "operations cost") + depth + 1
    return operations / expected_tokens(alpha, depth)


def memory_access_factor(alpha: float, depth: int) -> float:
    """Reads of the target's weights and KV per emitted token against plain decoding (§3.4)."""
    return 1 / expected_tokens(alpha, depth)


def can_help(alpha: float, cost: float) -> bool:
    """Whether some depth beats plain decoding when v ≡ 1: exactly when α > c (Cor. 3.9)."""
    return check_alpha(alpha) > check_cost(cost)


def assured_speedup(alpha: float, cost: float) -> float:
    """The least speedup of the best depth when v ≡ 1: (1 + α)/(1 + c), or 1 without guesses."""
    return (1 + alpha) / (1 + cost) if can_help(alpha, cost) else 1.0


def oracle_speedup(alpha: float, cost: float) -> float:
    """The bound on any choice of depth round by round, with v ≡ 1: 1 / (1 - α + αc).

    The oracle drafts α/(1 - α) guesses a round on average, all of which are accepted, or none at
    all if a draft step costs more than a target pass.
    """
    time_per_token = (1 - check_alpha(alpha)) + alpha * min(check_cost(cost), 1.0)
    return math.inf if time_per_token == 0 else 1 / time_per_token


def optimal_depth(alpha: float, cost: float, max_depth: int, verify_cost: VerifyCost = FREE) -> int:
    """The depth in 0 … `max_depth` with the largest speedup; ties go to the smaller depth.

    Decided in exact arithmetic: with floats, α = c may look like a gain in the last bit, and the
    speedups of large depths become equal long before they stop rising.
    """
    exact_alpha, exact_cost = Fraction(check_alpha(alpha)), Fraction(check_cost(cost))
    tokens = power = best_tokens = best_time = Fraction(1)
    best_depth = 0
    for depth in range(1, check_depth(max_depth, "max depth") + 1):
        power *= exact_alpha
        tokens += power
        time = Fraction(verify_cost.at(depth)) + depth * exact_cost
        if tokens * best_time > best_tokens * time:
            best_depth, best_tokens, best_time = depth, tokens, time
    return best_depth
