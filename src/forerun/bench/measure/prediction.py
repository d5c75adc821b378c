"""Predicted against measured speedup: E[tokens] / (v(γ) + γc) with α, c and v of this machine.

A drafter that sometimes guesses nothing makes rounds of several depths, so both sums run over the
actual rounds: Σ E[tokens | α, γ] / Σ (v(γ) + γc). With a single depth that is the paper's formula.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from forerun.bench.measure.timed_run import Pass
from forerun.theory.closed_forms import expected_tokens
from forerun.theory.verify_cost import VerifyCost

TOLERANCE: Final = 0.10


@dataclass(frozen=True)
class Costs:
    """Costs in plain passes: c of one guess of a drafter, v of a pass over guesses."""

    draft_step: float
    verify: VerifyCost
    plain_seconds: float  # one plain pass

    def of(self, done: Pass) -> float:
        num = min(done.num_guesses, self.verify.max_depth)
        return self.verify.at(num) + done.depth * self.draft_step


@dataclass(frozen=True)
class Prediction:
    alpha: float
    draft_step: float  # c
    verify: dict[int, float]  # v at the depths that were used
    predicted: float
    measured: float
    tokens_expected: float  # per pass, from α
    tokens_counted: float
    reason: str | None  # why the prediction is off, if it is

    @property
    def error(self) -> float:
        """The error relative to the measured value."""
        return self.predicted / self.measured - 1


def observed_alpha(passes: Sequence[Pass]) -> float | None:
    """Return guesses accepted ÷ guesses tested, which are those accepted and the first miss."""
    accepted = sum(p.num_accepted for p in passes)
    missed = sum(p.num_accepted < p.depth for p in passes)
    return accepted / (accepted + missed) if accepted + missed else None


def predict(
    passes: Sequence[Pass], plain: Sequence[Pass], costs: Costs, measured: float
) -> Prediction | None:
    """Predict the speedup; None if nothing was guessed. `plain` are the passes of plain decoding on
    the same prompts."""
    alpha = observed_alpha(passes)
    if alpha is None:
        return None
    expected = sum(expected_tokens(alpha, p.depth) for p in passes) / len(passes)
    time = sum(costs.of(p) for p in passes) / len(passes)
    used = sorted({min(p.num_guesses, costs.verify.max_depth) for p in passes})
    prediction = Prediction(
        alpha=alpha,
        draft_step=costs.draft_step,
        verify={num: costs.verify.at(num) for num in used},
        predicted=expected / time,
        measured=measured,
        tokens_expected=expected,
        tokens_counted=sum(p.num_accepted + 1 for p in passes) / len(passes),
        reason=None,
    )
    if abs(prediction.error) <= TOLERANCE:
        return prediction
    return replace(prediction, reason=_reason(prediction, passes, plain, costs, time))


def _reason(
    prediction: Prediction, passes: Sequence[Pass], plain: Sequence[Pass], costs: Costs, time: float
) -> str:
    """Return the largest of three errors: in tokens, in the time of a round, of a plain pass."""
    round_ms, said_ms = _mean_ms(passes), time * costs.plain_seconds * 1000
    plain_ms, costs_ms = _mean_ms(plain), costs.plain_seconds * 1000
    expected, counted = prediction.tokens_expected, prediction.tokens_counted
    reasons = {
        f"guesses are not accepted independently: α says {expected:.2f} tokens a pass, "
        f"{counted:.2f} came": expected / counted,
        f"a round took {round_ms:.1f} ms, and v and c say {said_ms:.1f}": round_ms / said_ms,
        f"a plain pass took {plain_ms:.1f} ms, and {costs_ms:.1f} when v and c were measured": (
            plain_ms / costs_ms
        ),
    }
    return max(reasons, key=lambda reason: abs(math.log(reasons[reason])))


def _mean_ms(passes: Sequence[Pass]) -> float:
    return 1000 * sum(p.seconds for p in passes) / len(passes)
