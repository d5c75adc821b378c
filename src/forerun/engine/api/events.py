"""The events of a streamed answer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from forerun.engine.api.outputs import CompletionOutput
from forerun.engine.request.request import Request
from forerun.engine.step import Round
from forerun.types import Origin


@dataclass(frozen=True)
class StreamEvent:
    """What one round, or several at once, added to a streamed answer.

    `pieces` are (text, how its token came about), of text that no later token can take back.
    `round` is the latest round: what was guessed, and what was accepted. Only the last event of an
    answer has an `output`.
    """

    pieces: tuple[tuple[str, Origin], ...]
    tokens: tuple[int, ...]
    origins: tuple[Origin, ...]
    round: Round
    output: CompletionOutput | None
    earlier: tuple[Round, ...] = ()  # the rounds before `round`, if there are several

    @property
    def rounds(self) -> tuple[Round, ...]:
        return (*self.earlier, self.round)

    @property
    def text(self) -> str:
        return "".join([piece for piece, _ in self.pieces])

    @classmethod
    def joined(cls, events: Sequence[StreamEvent]) -> StreamEvent:
        """Join events of one answer, in order, into one."""
        *_, last = events
        if len(events) == 1:
            return last
        rounds = tuple(chain.from_iterable(event.rounds for event in events))
        return cls(
            pieces=tuple(chain.from_iterable(event.pieces for event in events)),
            tokens=tuple(chain.from_iterable(event.tokens for event in events)),
            origins=tuple(chain.from_iterable(event.origins for event in events)),
            round=last.round,
            output=last.output,
            earlier=rounds[:-1],
        )


class EventBuilder:
    """Turns one request's rounds into events, which are never taken back.

    With `whole` only the first and the last round become events. The last brings all tokens in
    between, but not their rounds, so that these need not be kept.

    The engine's thread asks which rounds become events. The reader builds the events in its own
    thread, while the engine goes on.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._is_whole = whole
        self._has_begun = False  # whether a round has become an event
        self._num_chars = self._num_tokens = 0  # in the events so far

    def tells(self, done: Round) -> bool:
        """Whether this round becomes an event."""
        if self._is_whole and self._has_begun and done.finish_reason is None:
            return False
        self._has_begun = True
        return True

    def event(self, done: Round) -> StreamEvent:
        """Build a round's event. Rounds come in order; the request may be several rounds ahead."""
        request, verdict, end = done.request, done.verdict, done.num_chars
        is_last = done.finish_reason is not None
        pieces = pieces_between(request, self._num_chars, end)
        self._num_chars = max(self._num_chars, end)
        tokens, origins = verdict.tokens, verdict.origins
        if self._is_whole and is_last:
            start = self._num_tokens
            tokens, origins = tuple(request.output[start:]), tuple(request.origins[start:])
        self._num_tokens += len(tokens)
        output = CompletionOutput.of(request) if is_last else None
        return StreamEvent(pieces, tokens, origins, done, output)


def pieces_between(request: Request, start: int, end: int) -> tuple[tuple[str, Origin], ...]:
    """Return the text from character `start` to `end`, split by token."""
    pieces = []
    text = request.text.text
    for idx in range(bisect_right(request.text_ends, start), len(request.text_ends)):
        stop = min(request.text_ends[idx], end)
        if stop > start:
            pieces.append((text[start:stop], request.origins[idx]))
            start = stop
        if stop == end:
            break
    if end > start:  # an incomplete character at the end belongs to the last token
        pieces.append((text[start:end], request.origins[-1]))
    return tuple(pieces)
