"""From raw logits to the served distribution.

    bias and masks → repetition, presence, frequency penalties → temperature
                   → top-k → top-p → min-p

The result is kept as *served logits*: float64, the largest is 0, an excluded token is −inf, and
their softmax is p. Coupled acceptance adds noise to them; rejection takes the softmax. Ties, also
at the edge of top-k and top-p, go to the lowest id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidDistribution, InvalidOption
from forerun.types import FloatArray, IntArray, SamplingParams

# Sorting takes time, so top-p looks at the likeliest tokens first: these nearly always are enough.
_LEAST_PROBS: Final = (1e-3, 1e-5, 0.0)

Logits = npt.NDArray[np.float64]
Probs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Context:
    """The tokens before a position, split as penalties need them.

    A guess's own ancestors count as output, and so do generated tokens that are fed again after a
    recompute.
    """

    prompt: Sequence[int] = ()
    output: Sequence[int] = ()

    def extended(self, tokens: Sequence[int]) -> Context:
        return Context(self.prompt, (*self.output, *tokens)) if tokens else self


def served_logits(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
) -> Logits:
    """The served distribution [V] as logits. `eos_token_ids` end the request: see `min_tokens`."""
    logits = _checked(raw_logits)
    logits = _mask(logits, params, context, eos_token_ids)
    with np.errstate(over="ignore", invalid="ignore"):  # `_max` refuses what overflowed
        logits = _penalise(logits, params, context)
    logits -= _max(logits)
    if params.temperature == 0:
        return _only(logits, int(np.argmax(logits)))
    if params.temperature != 1:
        logits /= params.temperature
    for keep in _truncations(params):
        logits[~keep(logits)] = -np.inf
    return logits


def ranked_logits(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
) -> FloatArray:
    """Logits [V] of which the largest is what temperature 0 serves: the raw ones, not even
    copied, where the options leave them alone."""
    if params.changes_logits or len(context.output) < params.min_tokens:
        return served_logits(raw_logits, params.before_argmax, context, eos_token_ids)
    _check(raw_logits)
    return raw_logits


def served_probs(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
) -> Probs:
    """The served distribution [V] as probabilities: p of the papers."""
    return softmax(served_logits(raw_logits, params, context, eos_token_ids))


def softmax(logits: Logits) -> Probs:
    weights = np.exp(logits - logits.max())
    probs: Probs = weights / weights.sum()
    return probs


def log_probs(raw_logits: FloatArray) -> Logits:
    """What users see as log-probabilities: the target's own, before any transform."""
    logits = _checked(raw_logits)
    shifted = logits - logits.max()
    normalised: Logits = shifted - np.log(np.exp(shifted).sum())
    return normalised


# ------------------------------------------------------------------------ masks and penalties


def _checked(raw_logits: FloatArray) -> Logits:
    _check(raw_logits)
    return raw_logits.astype(np.float64)


def _check(raw_logits: FloatArray) -> None:
    if raw_logits.ndim != 1 or raw_logits.size == 0:
        raise InvalidDistribution(f"logits have shape {raw_logits.shape}; give one row [V].")
    top = float(raw_logits.max())  # NaN propagates
    if not math.isfinite(top):
        raise InvalidDistribution(
            f"the largest logit is {top}; the model's output is broken, check its weights."
        )


def _max(logits: Logits) -> float:
    top = float(logits.max())
    if top == -np.inf:
        raise InvalidDistribution("every token is masked out; allow at least one.")
    if not np.isfinite(top):  # inf, or NaN from inf − inf
        raise InvalidOption("bias and penalties are so large that logits overflow; lower them.")
    return top


def _mask(
    logits: Logits, params: SamplingParams, context: Context, eos_token_ids: Sequence[int]
) -> Logits:
    for token, bias in params.logit_bias.items():
        _check_token(token, logits, "logit_bias")
        logits[token] += bias
    if params.allowed_token_ids is not None:
        for token in params.allowed_token_ids:
            _check_token(token, logits, "allowed_token_ids")
        allowed = np.array(params.allowed_token_ids)
        masked = np.full_like(logits, -np.inf)
        masked[allowed] = logits[allowed]
        logits = masked
    if len(context.output) < params.min_tokens:
        ends = (*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids))
        logits[[token for token in ends if token < len(logits)]] = -np.inf
    return logits


def _check_token(token: int, logits: Logits, option: str) -> None:
    if token >= len(logits):
        raise InvalidOption(
            f"{option} names token {token}; the vocabulary ends at {len(logits) - 1}."
        )


def _penalise(logits: Logits, params: SamplingParams, context: Context) -> Logits:
    if params.repetition_penalty != 1:
        seen = _tokens((*context.prompt, *context.output))
        kept = logits[seen]
        penalty = params.repetition_penalty
        logits[seen] = np.where(kept > 0, kept / penalty, kept * penalty)
    if params.presence_penalty or params.frequency_penalty:
        tokens, counts = np.unique(_tokens(context.output), return_counts=True)
        logits[tokens] -= params.presence_penalty + params.frequency_penalty * counts
    return logits


def _tokens(tokens: Sequence[int]) -> IntArray:
    return np.array(tokens, dtype=np.int64)


# -------------------------------------------------------------------------------- truncations


def _truncations(params: SamplingParams) -> list[Callable[[Logits], npt.NDArray[np.bool_]]]:
    """The steps that are switched on, in order; each says which tokens stay."""
    steps: list[Callable[[Logits], npt.NDArray[np.bool_]]] = []
    if params.top_k:
        steps.append(lambda logits: _top_k(logits, params.top_k))
    if params.top_p < 1:
        steps.append(lambda logits: _top_p(logits, params.top_p))
    if params.min_p > 0:
        steps.append(lambda logits: logits >= np.log(params.min_p))  # the largest logit is 0
    return steps


def _top_k(logits: Logits, k: int) -> npt.NDArray[np.bool_]:
    if k >= len(logits):
        return np.ones(len(logits), np.bool_)
    edge = np.partition(logits, -k)[-k]
    keep: npt.NDArray[np.bool_] = logits > edge
    ties = np.flatnonzero(logits == edge)
    keep[ties[: k - int(keep.sum())]] = True
    return keep


def _top_p(logits: Logits, top_p: float) -> npt.NDArray[np.bool_]:
    """The shortest run of most probable tokens whose probabilities reach `top_p`."""
    alive = np.flatnonzero(logits > -np.inf)
    logits_alive = logits[alive]
    probs = softmax(logits_alive)
    keep = np.zeros(len(logits), np.bool_)
    for least in _LEAST_PROBS:
        likely = np.flatnonzero(probs >= least)
        order = likely[np.argsort(-logits_alive[likely], kind="stable")]  # ties: lowest id first
        reached = np.cumsum(probs[order])
        num_kept = int(np.searchsorted(reached, top_p, side="left")) + 1
        if num_kept <= len(order) or len(order) == len(alive):
            keep[alive[order[:num_kept]]] = True
            break
    return keep


def _only(logits: Logits, token: int) -> Logits:
    chosen = np.full_like(logits, -np.inf)
    chosen[token] = 0.0
    return chosen
