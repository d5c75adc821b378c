"""What came to one answer since the last time: the one form that all endpoints show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from forerun.engine.api.async_engine import Answer
from forerun.engine.api.outputs import CompletionOutput
from forerun.engine.step import Round
from forerun.server.answers.logprobs import TokenLogprob


@dataclass(frozen=True)
class Delta:
    """`text` is certain and in whole characters; `output` comes with the last one.

    `num_before` tokens came before. `logprobs` are empty where nobody asked for them.
    """

    index: int
    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    rounds: tuple[Round, ...]
    num_before: int
    output: CompletionOutput | None

    @classmethod
    def joined(cls, deltas: Sequence[Delta]) -> Delta:
        """All of one answer as one, in their order."""
        first, last = deltas[0], deltas[-1]
        return replace(
            first,
            text="".join([one.text for one in deltas]),
            tokens=tuple(chain.from_iterable(one.tokens for one in deltas)),
            logprobs=tuple(chain.from_iterable(one.logprobs for one in deltas)),
            rounds=tuple(chain.from_iterable(one.rounds for one in deltas)),
            output=last.output,
        )

    def without_output(self) -> Delta:
        """Of an answer that had to have a token, although none was asked for."""
        ended = self.output and replace(self.output, finish_reason="length", stop_reason=None)
        return replace(self, text="", tokens=(), logprobs=(), rounds=(), output=ended)

    @property
    def finish_reason(self) -> str | None:
        return None if self.output is None else self.output.finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return None if self.output is None else self.output.stop_reason


class Telling:
    """Turns the events of one answer into deltas."""

    def __init__(self, index: int, answer: Answer) -> None:
        self.index = index
        self.answer = answer
        self.has_ended = False
        self._num_told = 0  # tokens

    def read(self) -> Delta | None:
        """What came since the last time."""
        event = self.answer.read()
        if event is None:
            return None
        start = self._num_told
        self._num_told += len(event.tokens)
        self.has_ended = event.output is not None
        return Delta(
            self.index,
            event.text,
            event.tokens,
            self._logprobs(start, event.tokens),
            event.rounds,
            start,
            event.output,
        )

    def _logprobs(self, start: int, tokens: Sequence[int]) -> tuple[TokenLogprob, ...]:
        """The engine's thread only appends to them, and is ahead of us if anything."""
        request = self.answer.request
        num_top, end = request.params.logprobs, start + len(tokens)
        if num_top is None:
            return ()
        starts = [request.text_ends[idx - 1] if idx else 0 for idx in range(start, end)]
        rows = zip(tokens, request.logprobs[start:end], starts, strict=True)
        return tuple(TokenLogprob.of(token, row, num_top, at) for token, row, at in rows)
