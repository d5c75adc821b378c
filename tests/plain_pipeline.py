"""The served distribution written a second time, in plain Python, straight from its definition.

Slow and obvious: lists, sorting, no numpy tricks. It shares no code with `forerun.sampling`, so
the two agree only if both are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from forerun.types import SamplingParams


def plain_probs(
    raw: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos: Sequence[int] = (),
) -> list[float]:
    logits = list(map(float, raw))
    tokens = range(len(logits))
    for token, bias in params.logit_bias.items():
        logits[token] += bias
    banned: set[int] = set()
    if params.allowed_token_ids is not None:
        banned |= set(tokens) - set(params.allowed_token_ids)
    if len(output) < params.min_tokens:
        banned |= set(eos) | set(params.stop_token_ids)
    for token in tokens:
        if token in prompt or token in output:
            factor = params.repetition_penalty
            logits[token] *= factor if logits[token] <= 0 else 1 / factor
        times = list(output).count(token)
        logits[token] -= params.frequency_penalty * times
        logits[token] -= params.presence_penalty * (times > 0)
    ranked = sorted((t for t in tokens if t not in banned), key=lambda t: (-logits[t], t))
    if params.temperature == 0:
        return [float(t == ranked[0]) for t in tokens]
    kept = ranked[: params.top_k] if params.top_k else ranked
    kept = _nucleus(kept, _softmax(logits, kept, params.temperature), params.top_p)
    probs = _softmax(logits, kept, params.temperature)
    best = max(probs.values())
    kept = [t for t in kept if probs[t] >= params.min_p * best]
    final = _softmax(logits, kept, params.temperature)
    return [final.get(t, 0.0) for t in tokens]


def _softmax(logits: list[float], kept: Sequence[int], temperature: float) -> dict[int, float]:
    top = max(logits[t] for t in kept)
    weights = {t: math.exp((logits[t] - top) / temperature) for t in kept}
    total = math.fsum(weights.values())
    return {t: weight / total for t, weight in weights.items()}


def _nucleus(ranked: list[int], probs: dict[int, float], top_p: float) -> list[int]:
    if top_p == 1:
        return ranked
    kept: list[int] = []
    for token in ranked:
        kept.append(token)
        if sum(probs[t] for t in kept) >= top_p:
            break
    return kept
