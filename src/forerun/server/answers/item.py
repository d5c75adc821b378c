"""The kinds of items in a response, each with its events from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Event = dict[str, Any]


class MessageItem:
    def __init__(self, index: int, item_id: str) -> None:
        self._index, self._id = index, item_id
        self._text = ""
        self._logprobs: list[Event] = []

    def opening(self) -> Iterator[Event]:
        yield _added(self._index, {**self.as_dict("in_progress"), "content": []})
        yield {"type": "response.content_part.added", **self._place, "part": self._part}

    def increment(self, text: str, logprobs: list[Event]) -> Event:
        self._text += text
        self._logprobs += logprobs
        told = {"delta": text, "logprobs": logprobs}
        return {"type": "response.output_text.delta", **self._place, **told}

    def closing(self, status: str) -> Iterator[Event]:
        text = {"text": self._text, "logprobs": self._logprobs}
        yield {"type": "response.output_text.done", **self._place, **text}
        yield {"type": "response.content_part.done", **self._place, "part": self._part}
        yield _done(self._index, self.as_dict(status))

    def as_dict(self, status: str) -> Event:
        own = {"type": "message", "id": self._id, "status": status, "role": "assistant"}
        return {**own, "content": [self._part]}

    @property
    def _part(self) -> Event:
        own = {"type": "output_text", "text": self._text, "annotations": []}
        return {**own, "logprobs": self._logprobs}

    @property
    def _place(self) -> Event:
        return {"item_id": self._id, "output_index": self._index, "content_index": 0}


class ReasoningItem:
    def __init__(self, index: int, item_id: str) -> None:
        self._index, self._id = index, item_id
        self._text = ""

    def opening(self) -> Iterator[Event]:
        yield _added(self._index, {**self.as_dict("in_progress"), "content": []})
        yield {"type": "response.content_part.added", **self._place, "part": self._part}

    def increment(self, text: str) -> Event:
        self._text += text
        return {"type": "response.reasoning_text.delta", **self._place, "delta": text}

    def closing(self, status: str) -> Iterator[Event]:
        yield {"type": "response.reasoning_text.done", **self._place, "text": self._text}
        yield {"type": "response.content_part.done", **self._place, "part": self._part}
        yield _done(self._index, self.as_dict(status))

    def as_dict(self, status: str) -> Event:
        own = {"type": "reasoning", "id": self._id, "status": status, "summary": []}
        return {**own, "content": [self._part]}

    @property
    def _part(self) -> Event:
        return {"type": "reasoning_text", "text": self._text}

    @property
    def _place(self) -> Event:
        return {"item_id": self._id, "output_index": self._index, "content_index": 0}


class CallItem:
    """`function` has the function's name, and its namespace if it has one."""

    def __init__(self, function: Mapping[str, str], index: int, call_id: str) -> None:
        self._function, self._index, self._call_id = function, index, call_id
        self._arguments = ""

    def opening(self) -> Iterator[Event]:
        yield _added(self._index, self.as_dict("in_progress"))

    def increment(self, text: str) -> Event:
        self._arguments += text
        kind = "response.function_call_arguments.delta"
        return {"type": kind, **self._place, "delta": text}

    def closing(self, status: str) -> Iterator[Event]:
        told = {"name": self._function["name"], "arguments": self._arguments}
        yield {"type": "response.function_call_arguments.done", **self._place, **told}
        yield _done(self._index, self.as_dict(status))

    def as_dict(self, status: str) -> Event:
        return {
            "type": "function_call",
            "id": self._id,
            "call_id": self._call_id,
            **self._function,
            "arguments": self._arguments,
            "status": status,
        }

    @property
    def _place(self) -> Event:
        return {"item_id": self._id, "output_index": self._index}

    @property
    def _id(self) -> str:
        return f"fc_{self._call_id.removeprefix('call_')}"


def _added(index: int, item: Event) -> Event:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(index: int, item: Event) -> Event:
    return {"type": "response.output_item.done", "output_index": index, "item": item}
