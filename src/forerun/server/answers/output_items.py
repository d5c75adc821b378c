"""The output items of a response: reasoning, messages and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from forerun.replies import Piece, ReplyForm, Thoughts
from forerun.server.answers.item import CallItem, Event, MessageItem, ReasoningItem
from forerun.tools import Arguments, CallBegun, Words

_NONE: Final[Mapping[str, Mapping[str, str]]] = {}


class Chance(NamedTuple):
    """A token's log-probability as a response shows it; `start` is where its text begins."""

    start: int
    shown: Event


class OutputItems:
    """Turns an answer's text, as it grows, into stream events; `done` are the complete items.

    An answer without reasoning and calls has a message, if only an empty one. `parted` has the
    names of functions in namespaces. Log-probabilities are shown only for words, each with the
    words that its token spells.
    """

    def __init__(
        self, response_id: str, form: ReplyForm, parted: Mapping[str, Mapping[str, str]] = _NONE
    ) -> None:
        self._id = response_id.removeprefix("resp_")
        self._form = form
        self._parted = parted
        self._reader = None if form.is_plain else form.reader()
        self._open: ReasoningItem | MessageItem | CallItem | None = None
        self._text = ""  # of the answer, until its words begin
        self._num_read = 0  # characters of the answer
        self._num_told: int | None = None  # characters up to the end of the words that were sent
        self._chances: list[Chance] = []  # not sent yet
        self._rounds: list[Event] = []
        self.done: list[Event] = []

    def opening(self) -> Iterator[Event]:
        """Yield the events before any text: if words are all that can come, a message begins."""
        if self._reader is None:
            yield from self._begin_words()

    def read(
        self,
        text: str,
        chances: Sequence[Chance] = (),
        rounds: Sequence[Event] = (),
        *,
        is_last: bool = False,
    ) -> Iterator[Event]:
        """Yield the events for `text`. The trace `rounds` goes with the next delta, or else with
        the first event of the end."""
        self._chances += chances
        self._rounds += rounds
        self._num_read += len(text)
        if self._num_told is None:
            self._text += text
        pieces: list[Piece] = [Words(text)]
        if self._reader is not None:
            pieces = self._reader.read(text, is_last=is_last)
        for piece in pieces:
            for event in self._told(piece):
                yield self._with_rounds(event) if "delta" in event else event
        is_end = is_last and self._num_told == self._num_read  # send tokens without text, too
        if is_end and self._chances and isinstance(self._open, MessageItem):
            yield self._open.increment("", [one.shown for one in self._chances])

    def closing(self, status: str) -> Iterator[Event]:
        if not self.done and self._open is None:
            yield from self._begin_words()
        is_whole = self._reader is None or self._reader.is_whole
        for event in self._closed(status if is_whole else "incomplete"):
            yield self._with_rounds(event)

    def _with_rounds(self, event: Event) -> Event:
        rounds, self._rounds = self._rounds, []
        return {**event, "forerun": {"trace": rounds}} if rounds else event

    def _told(self, piece: Piece) -> Iterator[Event]:
        if isinstance(piece, Thoughts):
            yield from self._begin_reasoning()
            assert isinstance(self._open, ReasoningItem), "it comes before all else"
            yield self._open.increment(piece.text)
        elif isinstance(piece, CallBegun):
            yield from self._closed("completed")
            self._chances = []
            function = self._parted.get(piece.name, {"name": piece.name})
            self._open = CallItem(function, len(self.done), self._form.fresh_id())
            yield from self._open.opening()
        elif isinstance(piece, Arguments):
            assert isinstance(self._open, CallItem)
            yield self._open.increment(piece.text)
        else:
            yield from self._begin_words()
            assert isinstance(self._open, MessageItem), "no words come behind a call"
            yield self._open.increment(piece.text, self._chances_of(piece.text))

    def _chances_of(self, words: str) -> list[Event]:
        """Return the log-probabilities of tokens that begin in `words` or reach into them; of all
        tokens if the answer is nothing but words."""
        found, later = self._chances, list[Chance]()
        if self._reader is not None:
            start = self._num_told if self._num_told is not None else self._num_before()
            self._num_told = end = start + len(words)
            ends = [*(one.start for one in found[1:]), self._num_read]
            later = [one for one in found if one.start >= end]
            found = [
                one
                for one, its_end in zip(found, ends, strict=False)
                if one.start < end and (one.start >= start or its_end > start)
            ]
        self._chances = later
        return [one.shown for one in found]

    def _num_before(self) -> int:
        """Return how many characters of reasoning precede the words."""
        reasoning = self._form.reasoning
        return (reasoning and reasoning.end_in(self._text)) or 0

    def _begin_reasoning(self) -> Iterator[Event]:
        if self._open is None:
            self._open = ReasoningItem(len(self.done), f"rs_{self._id}")
            yield from self._open.opening()

    def _begin_words(self) -> Iterator[Event]:
        if isinstance(self._open, ReasoningItem):
            yield from self._closed("completed")
        if self._open is None:
            self._open = MessageItem(len(self.done), f"msg_{self._id}")
            yield from self._open.opening()

    def _closed(self, status: str) -> Iterator[Event]:
        if self._open is not None:
            yield from self._open.closing(status)
            self.done.append(self._open.as_dict(status))
            self._open = None
