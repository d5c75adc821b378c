"""`/v1/responses`: response objects and the events of their streams."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forerun.replies import WORDS_ALONE, ReplyForm
from forerun.server.answers.delta import Delta
from forerun.server.answers.form import Form
from forerun.server.answers.item import Event
from forerun.server.answers.output_items import Chance, OutputItems
from forerun.server.answers.trace import trace
from forerun.server.answers.usage import responses_usage
from forerun.server.fields.tool_shapes import LEFT_OUT
from forerun.server.json_text import to_json
from forerun.server.namespaces import parted
from forerun.server.operation.protocol import Direct
from forerun.server.streaming import MANY_LOGPROBS, explained, made


@dataclass
class ResponseForm(Form):
    """`given` are the request's fields, some of which a response repeats."""

    given: Mapping[str, Any] = field(default_factory=dict)
    reply: ReplyForm = WORDS_ALONE

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        (delta,) = deltas
        items = self._items()
        for _ in items.read(delta.text, self._chances(delta), is_last=True):
            pass
        for _ in items.closing(_status(delta)):
            pass
        return self._ended(delta, items.done)

    def _ended(self, delta: Delta, items: list[dict[str, Any]]) -> dict[str, Any]:
        response = self._response(_status(delta), items)
        if delta.finish_reason == "length":
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        response["usage"] = responses_usage(self.group.usage)
        if self.shows_trace:
            response["forerun"] = {"trace": self._trace(delta)}
        return response

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        given = self.given
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": given.get("instructions"),
            "max_output_tokens": given.get("max_output_tokens"),
            "model": self.model,
            "output": output,
            "parallel_tool_calls": given.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **given.get("reasoning", {})},
            "store": False,
            "temperature": given.get("temperature", 1.0),
            "text": {"format": {"type": "text"}, **given.get("text", {})},
            "tool_choice": given.get("tool_choice", "auto"),
            "tools": [tool for tool in self._tools if tool["type"] not in LEFT_OUT],
            "top_logprobs": given.get("top_logprobs", 0),
            "top_p": given.get("top_p", 1.0),
            "truncation": given.get("truncation", "disabled"),
            "usage": None,
            "metadata": given.get("metadata", {}),
            "system_fingerprint": self.fingerprint,
        }

    def _items(self) -> OutputItems:
        return OutputItems(self.id, self.reply, parted(self._tools))

    @property
    def _tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.given.get("tools", [])
        return found

    def _chances(self, delta: Delta) -> list[Chance]:
        if not self.shows_logprobs:
            return []
        starts = [one.start for one in delta.logprobs]
        return list(map(Chance, starts, self.chat_entries(delta)))

    def _trace(self, delta: Delta) -> list[Event]:
        return [trace(done, self.tokenizer) for done in delta.rounds] if self.shows_trace else []

    async def events(self) -> AsyncIterator[Event]:
        """Yield each event as an object; its `type` is its name."""
        begun = self._response("in_progress", [])
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        items = self._items()
        for event in items.opening():
            yield event
        deltas = list[Delta]()
        async for (delta,) in self.group.news():
            deltas.append(delta if self.shows_trace else replace(delta, rounds=()))
            if not self.is_news(delta):
                continue
            is_long = len(delta.logprobs) > MANY_LOGPROBS
            chances = await made(self._chances, delta, is_long=is_long)
            is_last = delta.output is not None
            for event in items.read(delta.text, chances, self._trace(delta), is_last=is_last):
                yield event
        whole = Delta.joined(deltas)  # there is at least one
        for event in items.closing(_status(whole)):
            yield event
        response = self._ended(whole, items.done)
        yield {"type": f"response.{_status(whole)}", "response": response}

    def failed(self, error: Exception) -> dict[str, Any]:
        told = explained(error)
        response = self._response("failed", [])
        code = "server_error" if told.status >= 500 else "invalid_prompt"  # OpenAI's nearest
        response["error"] = {"code": code, "message": told.body["error"]["message"]}
        return {"type": "response.failed", "response": response}


async def named_events(form: ResponseForm, _direct: Direct) -> AsyncIterator[bytes]:
    """Yield the form's events as lines, with their names and numbers."""
    numbers = itertools.count()

    def line(event: dict[str, Any]) -> bytes:
        numbered = {**event, "sequence_number": next(numbers)}
        return f"event: {event['type']}".encode() + b"\ndata: " + to_json(numbered) + b"\n\n"

    try:
        async for event in form.events():
            is_whole = form.shows_more and "delta" not in event  # it repeats the answer
            is_long = is_whole or len(event.get("logprobs", ())) > MANY_LOGPROBS
            yield await made(line, event, is_long=is_long)
    except Exception as error:
        yield line(form.failed(error))


def _status(delta: Delta) -> str:
    return "incomplete" if delta.finish_reason == "length" else "completed"
