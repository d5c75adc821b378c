"""From raw logits to the served distribution.

    bias and masks → repetition, presence, frequency penalties → temperature
                   → top-k → top-p → min-p

The result is kept as *served logits*: float64, the largest is 0, an excluded token is −inf, and
their softmax is p. Coupled acceptance adds noise to them; rejection takes the softmax. Ties, also
at the edge of top-k and top-p, go to the lowest id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.errors import InvalidDistribution, InvalidOption, NothingAllowed
from forerun.sampling.softmax import Logits, Probs, WeightSum, softmax, weight_sum
from forerun.sampling.truncation import truncated
from forerun.types import FloatArray, Grammar, IntArray, SamplingParams

# [256, 8]: for each byte its bits, the lowest first: 0 for a set bit, −inf for an unset one.
_BITS: Final = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little") > 0,
    np.float32(0),
    np.float32(-np.inf),
)


@dataclass(frozen=True)
class Context:
    """The tokens before a position, split into prompt and output as penalties need them.

    The ancestors of a guess count as output, and so do generated tokens that are computed again
    after a preemption. `grammar` says what may follow the output, if not everything may.
    """

    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    grammar: Grammar | None = None

    def changes_logits(self, params: SamplingParams) -> bool:
        """Whether bias, masks or penalties change the logits of the next token."""
        if params.changes_logits or len(self.output) < params.min_tokens:
            return True
        return self.grammar is not None and self.grammar.binds(self.output)

    def extended(self, tokens: Sequence[int]) -> Context:
        return replace(self, output=(*self.output, *tokens)) if tokens else self


def served_logits(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
    weight_sum: WeightSum = weight_sum,
) -> Logits:
    """Return the served distribution [V] as logits.

    `eos_token_ids` are masked out by `min_tokens`. `weight_sum` is that of `sampling`, or a kernel
    set's.
    """
    logits, top = raw_logits, _check(raw_logits)
    if context.changes_logits(params):
        logits = _changed(logits, params, context, eos_token_ids)
        top = _max(logits)
    if logits.dtype != np.float32:
        logits = logits.astype(np.float64, copy=False)
    if params.temperature == 0:
        return _only(logits, int(np.argmax(logits)))
    if params.truncates:
        return truncated(logits, top, params, weight_sum)
    served: Logits = logits.astype(np.float64, copy=logits is raw_logits)
    served -= top
    if params.temperature != 1:
        with np.errstate(over="ignore"):  # an overflow gives −inf, as it should
            served /= params.temperature
    return served


def ranked_logits(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
) -> FloatArray:
    """Return logits [V] whose argmax is what temperature 0 serves.

    If the options change nothing these are the raw logits, neither copied nor checked:
    `checked_argmax` rejects broken ones.
    """
    if context.changes_logits(params):
        _check(raw_logits)
        logits = _changed(raw_logits, params, context, eos_token_ids)
        _max(logits)
        return logits
    return raw_logits


def checked_argmax(logits: FloatArray) -> int:
    """Return the argmax of [V], the lowest id of equals. Raise if the largest logit is not finite;
    this finds NaN, too, since argmax takes NaN for the largest."""
    _check_shape(logits)
    best = int(logits.argmax())
    _check_top(float(logits[best]))
    return best


def served_probs(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int] = (),
    weight_sum: WeightSum = weight_sum,
) -> Probs:
    """Return the served distribution [V] as probabilities: the p of the papers."""
    return softmax(served_logits(raw_logits, params, context, eos_token_ids, weight_sum))


def log_probs(raw_logits: FloatArray) -> Logits:
    """Return the log-probabilities that users see: the target's own, before any transform."""
    shifted = raw_logits.astype(np.float64) - _check(raw_logits)
    normalised: Logits = shifted - np.log(np.exp(shifted).sum())
    return normalised


# ------------------------------------------------------------------------ masks and penalties


def _check(raw_logits: FloatArray) -> float:
    """Return the largest logit of a row [V]; raise if the row is not fit to be served."""
    _check_shape(raw_logits)
    top = float(raw_logits.max())  # NaN propagates
    _check_top(top)
    return top


def _check_shape(raw_logits: FloatArray) -> None:
    if raw_logits.ndim != 1 or raw_logits.size == 0:
        raise InvalidDistribution(f"logits have shape {raw_logits.shape}; give one row [V].")


def _check_top(top: float) -> None:
    if not math.isfinite(top):
        raise InvalidDistribution(
            f"the largest logit is {top}; the model's output is broken, check its weights."
        )


def _max(logits: FloatArray) -> float:
    top = float(logits.max())
    if top == -np.inf:
        raise NothingAllowed("every token is masked out; allow at least one.")
    if not np.isfinite(top):  # inf, or NaN from inf − inf
        raise InvalidOption("bias and penalties are so large that logits overflow; lower them.")
    return top


def _changed(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int],
) -> FloatArray:
    """Return a copy of the logits with bias, masks and penalties applied.

    The dtype stays the same if tokens are only masked out. After the end of a grammar's text the
    logits stay as they are, since whatever follows is cut off.
    """
    if context.grammar is not None and context.grammar.is_over(context.output):
        return raw_logits.copy()
    logits = _masked(raw_logits, params, context, eos_token_ids)
    if not params.moves_logits:
        return logits
    moved: Logits = logits.astype(np.float64)
    for token, bias in params.logit_bias.items():
        _check_token(token, logits, "logit_bias")
        moved[token] += bias
    with np.errstate(over="ignore", invalid="ignore"):  # `_max` refuses what overflowed
        return _penalised(moved, params, context)


def _masked(
    raw_logits: FloatArray,
    params: SamplingParams,
    context: Context,
    eos_token_ids: Sequence[int],
) -> FloatArray:
    logits = raw_logits.copy()
    if params.allowed_token_ids is not None:
        allowed = params.allowed_array
        _check_token(int(allowed.max()), logits, "allowed_token_ids")
        logits.fill(-np.inf)
        logits[allowed] = raw_logits[allowed]
    if context.grammar is not None and context.grammar.binds(context.output):
        logits += _left_out(context.grammar.allowed_bits(context.output), len(logits))
    if len(context.output) < params.min_tokens:
        ends = (*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids))
        logits[[token for token in ends if token < len(logits)]] = -np.inf
    return logits


def _left_out(allowed: bytes, num: int) -> FloatArray:
    """Return a mask [num] to add to logits: 0 for tokens whose bit is set, −inf for others."""
    found = _BITS.take(np.frombuffer(allowed.ljust(-(-num // 8), b"\0"), np.uint8), axis=0)
    return found.ravel()[:num]


def _check_token(token: int, logits: FloatArray, option: str) -> None:
    if token >= len(logits):
        raise InvalidOption(
            f"{option} names token {token}; the vocabulary ends at {len(logits) - 1}."
        )


def _penalised(logits: Logits, params: SamplingParams, context: Context) -> Logits:
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


def _only(logits: FloatArray, token: int) -> Logits:
    chosen = np.full(len(logits), -np.inf)
    chosen[token] = 0.0
    return chosen
