"""What callers get back; shaped like vLLM's outputs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forerun.engine.request import Request
from forerun.engine.step import Round
from forerun.types import Origin


@dataclass(frozen=True)
class CompletionOutput:
    """One answer. `seed` (with the same `n`) reproduces it, with speculation or without."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None
    seed: int
    origins: tuple[Origin, ...]
    logprobs: tuple[dict[int, float], ...] | None
    stats: dict[str, Any]

    @classmethod
    def of(cls, request: Request) -> CompletionOutput:
        assert request.finish_reason is not None, "the request still runs"
        wanted = request.params.logprobs is not None
        return cls(
            index=request.choice,
            text=request.text.text,
            token_ids=tuple(request.output),
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
            seed=request.seed,
            origins=tuple(request.origins),
            logprobs=tuple(request.logprobs) if wanted else None,
            stats=request.stats.as_dict(),
        )


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its answers, one for each of `n`."""

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: Sequence[CompletionOutput]


@dataclass(frozen=True)
class StreamEvent:
    """What one round added to a streamed answer.

    `pieces` are (text, how its token came about); they are certain: no later token takes them
    back. `round` shows what was guessed and what held. `output` comes with the last event.
    """

    pieces: tuple[tuple[str, Origin], ...]
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    round: Round
    output: CompletionOutput | None

    @property
    def text(self) -> str:
        return "".join(piece for piece, _ in self.pieces)


def pieces_between(request: Request, start: int, end: int) -> tuple[tuple[str, Origin], ...]:
    """The text from character `start` to `end`, split by token."""
    pieces = []
    text = request.text.text
    for idx in range(bisect_right(request.text_ends, start), len(request.text_ends)):
        stop = min(request.text_ends[idx], end)
        if stop > start:
            pieces.append((text[start:stop], request.origins[idx]))
            start = stop
    if end > start:  # an incomplete character at the end belongs to the last token
        pieces.append((text[start:end], request.origins[-1]))
    return tuple(pieces)
