"""One pass of the target, and which span is at fault when it fails."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.cache import BlockTable, KVCache
from forerun.kernels import Plan, Scores
from forerun.models.llama import LlamaModel, Taps
from forerun.sampling import CoupledDraws
from forerun.types import IntArray, Span


def score(
    model: LlamaModel,
    cache: KVCache,
    spans: Sequence[Span],
    tables: Sequence[BlockTable],
    draws: Sequence[CoupledDraws | None],
    taps: Sequence[Taps] = (),
    next_slots: tuple[IntArray | None, ...] | None = None,
) -> list[Scores | Exception]:
    """Return each span's scores (1 + N, none inside a prompt), or the error that left it without.

    `taps`, if any, has one entry for each span and receives the hidden states of all its rows.
    A pass that fails is run again span by span: no token's scores depend on the other spans, so
    only the span at fault is left without.
    """
    try:
        whole = None
        if taps:
            whole = taps[0] if len(spans) == 1 else Taps(taps[0].layers)
        plan = Plan.build(zip(spans, tables, strict=True), next_slots)
        rows = model.draw(plan, cache, draws, whole)
    except Exception as error:
        if len(spans) == 1:
            return [error]
        return [
            score(model, cache, [span], [table], [draw], taps[idx : idx + 1])[0]
            for idx, (span, table, draw) in enumerate(zip(spans, tables, draws, strict=True))
        ]
    if len(spans) == 1:
        return [rows]
    if whole is not None:
        _hand_out(whole, spans, taps)
    scores: list[Scores | Exception] = []
    first = 0
    for span in spans:
        scores.append(rows[first : first + len(span.wanted)])
        first += len(span.wanted)
    return scores


def _hand_out(whole: Taps, spans: Sequence[Span], taps: Sequence[Taps]) -> None:
    """Give each span's taps its own rows of the pass."""
    first = 0
    for span, own in zip(spans, taps, strict=True):
        last = first + len(span)
        own.found, own.num_tokens = [rows[first:last] for rows in whole.found], len(span)
        first = last
