"""One pass of the target, and whose fault it is when that fails."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.cache import BlockTable, KVCache
from forerun.kernels import Plan, Scores
from forerun.models.llama import LlamaModel
from forerun.sampling import CoupledDraws
from forerun.types import Span


def score(
    model: LlamaModel,
    cache: KVCache,
    spans: Sequence[Span],
    tables: Sequence[BlockTable],
    draws: Sequence[CoupledDraws | None],
) -> list[Scores | Exception]:
    """The scores of each span (1 + N, none inside a prompt), or why there are none. A pass that
    fails is run again span by span: what a token gets does not depend on the others, so only the
    guilty one is left without."""
    try:
        rows = model.draw(Plan.build(zip(spans, tables, strict=True)), cache, draws)
    except Exception as error:
        if len(spans) == 1:
            return [error]
        alone = zip(spans, tables, draws, strict=True)
        return [score(model, cache, [span], [table], [draw])[0] for span, table, draw in alone]
    scores: list[Scores | Exception] = []
    first = 0
    for span in spans:
        scores.append(rows[first : first + len(span.wanted)])
        first += len(span.wanted)
    return scores
