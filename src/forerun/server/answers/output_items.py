"""The items of a response: what it reasons, what it says, and what it calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forerun.replies import Piece, ReplyForm, Thoughts
from forerun.server.answers.item import CallItem, Event, MessageItem, ReasoningItem
from forerun.tools import Arguments, CallBegun, Words


class OutputItems:
    """From an answer's text as it grows to the events that tell of it; `done` are those that are
    complete. There is a message where there is nothing else, if only an empty one."""

    def __init__(self, response_id: str, form: ReplyForm) -> None:
        self._id = response_id.removeprefix("resp_")
        self._form = form
        self._reader = None if form.is_plain else form.reader()
        self._open: ReasoningItem | MessageItem | CallItem | None = None
        self.done: list[Event] = []

    def opening(self) -> Iterator[Event]:
        """Before anything is known: that there will be words, if there is nothing else."""
        if self._reader is None:
            yield from self._begin_words()

    def read(
        self, text: str, more: Event | None = None, *, is_last: bool = False, is_news: bool = True
    ) -> Iterator[Event]:
        """`more` stands beside increments of words; where there is nothing else, there is one
        where it `is_news`, even of no words."""
        pieces: list[Piece] = [Words(text)] if is_news else []
        if self._reader is not None:
            pieces = self._reader.read(text, is_last=is_last)
        for piece in pieces:
            if isinstance(piece, Thoughts):
                yield from self._begin_reasoning()
                assert isinstance(self._open, ReasoningItem), "it comes before all else"
                yield self._open.increment(piece.text)
            elif isinstance(piece, CallBegun):
                yield from self._closed("completed", [])
                self._open = CallItem(piece.name, len(self.done), self._form.fresh_id())
                yield from self._open.opening()
            elif isinstance(piece, Arguments):
                assert isinstance(self._open, CallItem)
                yield self._open.increment(piece.text)
            else:
                yield from self._begin_words()
                assert isinstance(self._open, MessageItem), "no words come behind a call"
                yield self._open.increment(piece.text, more or {})

    def closing(self, status: str, logprobs: list[Any]) -> Iterator[Event]:
        if not self.done and self._open is None:
            yield from self._begin_words()
        yield from self._closed(status, logprobs)

    def _begin_reasoning(self) -> Iterator[Event]:
        if self._open is None:
            self._open = ReasoningItem(len(self.done), f"rs_{self._id}")
            yield from self._open.opening()

    def _begin_words(self) -> Iterator[Event]:
        if isinstance(self._open, ReasoningItem):
            yield from self._closed("completed", [])
        if self._open is None:
            self._open = MessageItem(len(self.done), f"msg_{self._id}")
            yield from self._open.opening()

    def _closed(self, status: str, logprobs: list[Any]) -> Iterator[Event]:
        if self._open is not None:
            yield from self._open.closing(status, logprobs)
            self.done.append(self._open.as_dict(status, logprobs))
            self._open = None
