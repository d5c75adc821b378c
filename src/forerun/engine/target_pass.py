"""One pass of the target, and whose fault it is when that fails."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.cache import BlockTable, KVCache
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Span

Scores = FloatArray | Exception  # [1 + N, V], [0, V] inside a prompt, or why there are none


def score(
    model: LlamaModel, cache: KVCache, spans: Sequence[Span], tables: Sequence[BlockTable]
) -> list[Scores]:
    """The wanted logits of each span. A pass that fails is run again span by span: what a token
    gets does not depend on the others, so only the guilty one is left without."""
    try:
        rows = model.forward(Plan.build(zip(spans, tables, strict=True)), cache)
    except Exception as error:
        if len(spans) == 1:
            return [error]
        pairs = zip(spans, tables, strict=True)
        return [score(model, cache, [span], [table])[0] for span, table in pairs]
    scores: list[Scores] = []
    first = 0
    for span in spans:
        scores.append(rows[first : first + len(span.wanted)])
        first += len(span.wanted)
    return scores
