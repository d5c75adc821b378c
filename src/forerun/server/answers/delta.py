"""Deltas: what was added to one answer, the common source of all endpoints' formats."""

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
    """`text` is final, in whole characters. Only the last delta of an answer has an `output`.

    `num_before` tokens precede it. `logprobs` are empty unless the client asked for them.
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
        """Join all deltas of one answer, given in order."""
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
        """Return the delta without tokens, for a request of 0: the engine generates one."""
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
        """Return what was added since the last call; None if nothing was."""
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
        """Return the log-probabilities of `tokens`. The engine's thread only appends to the
        request's lists, so these have at least as much as was read."""
        request = self.answer.request
        num_top, end = request.params.logprobs, start + len(tokens)
        if num_top is None:
            return ()
        starts = [request.text_ends[idx - 1] if idx else 0 for idx in range(start, end)]
        rows = zip(tokens, request.logprobs[start:end], starts, strict=True)
        return tuple(TokenLogprob.of(token, row, num_top, at) for token, row, at in rows)
