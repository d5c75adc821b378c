"""The content blocks of one of Anthropic's messages: thinking, text and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forerun.replies import Piece, ReplyForm, Thoughts
from forerun.tools import CallBegun, ToolCall, Words

Event = dict[str, Any]


class ContentBlocks:
    """Turns an answer's text, as it grows, into stream events and into its content.

    A call that is cut off is streamed as far as it goes, and is not in `content`. Thinking that is
    not shown leaves an empty block, as with Anthropic.
    """

    def __init__(self, form: ReplyForm, *, shows_thinking: bool = True) -> None:
        self._form = form
        self._reader = form.reader()
        self._shows_thinking = shows_thinking
        self._open: Event | None = None  # as it began
        self._text = ""  # of the open block
        self._index = -1  # of the open block
        self._done: list[tuple[Event, str]] = []  # complete blocks, as they began, and their texts

    @property
    def content(self) -> list[Event]:
        """The complete blocks. A stream does not need them, so calls are parsed only here."""
        return [_complete(block, text) for block, text in self._done]

    @property
    def has_called(self) -> bool:
        return self._reader.num_calls > 0 and self._reader.is_whole

    def read(self, text: str, *, is_last: bool = False) -> Iterator[Event]:
        for piece in self._reader.read(text, is_last=is_last):
            yield from self._events(piece)
        if is_last:
            yield from self._closed(is_whole=self._reader.is_whole)

    def _events(self, piece: Piece) -> Iterator[Event]:
        if isinstance(piece, CallBegun):
            own = {"id": self._form.fresh_id(), "name": piece.name, "input": {}}
            yield from self._begun({"type": "tool_use", **own})
        elif isinstance(piece, Thoughts):
            yield from self._in_block({"type": "thinking", "thinking": "", "signature": ""})
            if self._shows_thinking:
                yield self._delta("thinking_delta", "thinking", piece.text)
        elif isinstance(piece, Words):
            yield from self._in_block({"type": "text", "text": ""})
            yield self._delta("text_delta", "text", piece.text)
        else:
            yield self._delta("input_json_delta", "partial_json", piece.text)

    def _in_block(self, block: Event) -> Iterator[Event]:
        if self._open is None or self._open["type"] != block["type"]:
            yield from self._begun(block)

    def _begun(self, block: Event) -> Iterator[Event]:
        yield from self._closed()
        self._open, self._text = block, ""
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, kind: str, name: str, text: str) -> Event:
        self._text += text
        delta = {"type": kind, name: text}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _closed(self, *, is_whole: bool = True) -> Iterator[Event]:
        block, self._open = self._open, None
        if block is None:
            return
        yield {"type": "content_block_stop", "index": self._index}
        if is_whole or block["type"] != "tool_use":
            self._done.append((block, self._text))


def _complete(block: Event, text: str) -> Event:
    if block["type"] == "tool_use":
        return {**block, "input": ToolCall(block["name"], text or "{}").values}
    return {**block, block["type"]: text}
