"""`/v1/messages`: Anthropic's messages and the events of their streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from forerun.replies import WORDS_ALONE, ReplyForm
from forerun.server.answers.blocks import ContentBlocks, Event
from forerun.server.answers.delta import Delta
from forerun.server.answers.form import Form
from forerun.server.answers.trace import trace
from forerun.server.answers.usage import messages_usage
from forerun.server.json_text import to_json
from forerun.server.operation.protocol import Direct
from forerun.server.streaming import REQUEST_ID, explained

_PING: Final = {"type": "ping"}


@dataclass
class MessageForm(Form):
    """`is_short`: the context ends before `max_tokens` are reached."""

    reply: ReplyForm = WORDS_ALONE
    shows_thinking: bool = True
    is_short: bool = False

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        (delta,) = deltas
        blocks = self._blocks()
        for _ in blocks.read(delta.text, is_last=True):
            pass
        message = {**self._message(), "content": blocks.content, **self._ending(delta, blocks)}
        return self._with_rounds(message, self._trace(delta))

    async def events(self) -> AsyncIterator[Event]:
        """Yield each event as an object; its `type` is its name. The trace of rounds goes with the
        next event that has a delta."""
        yield {"type": "message_start", "message": self._message()}
        yield _PING
        blocks, rounds = self._blocks(), list[Event]()
        async for (delta,) in self.group.news():
            rounds += self._trace(delta)
            for event in blocks.read(delta.text, is_last=delta.output is not None):
                if "delta" in event:
                    event, rounds = self._with_rounds(event, rounds), []
                yield event
            if delta.output is not None:
                ended = {"type": "message_delta", "delta": self._ending(delta, blocks)}
                yield self._with_rounds({**ended, "usage": self._usage}, rounds)
        yield {"type": "message_stop"}

    def _message(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage,
        }

    def _blocks(self) -> ContentBlocks:
        return ContentBlocks(self.reply, shows_thinking=self.shows_thinking)

    @property
    def _usage(self) -> dict[str, Any]:
        return messages_usage(self.group.usage)

    def _ending(self, delta: Delta, blocks: ContentBlocks) -> dict[str, Any]:
        reason, stop = "end_turn", None
        if delta.finish_reason == "length":
            reason = "model_context_window_exceeded" if self.is_short else "max_tokens"
        elif blocks.has_called:
            reason = "tool_use"
        elif isinstance(delta.stop_reason, str):
            reason, stop = "stop_sequence", delta.stop_reason
        return {"stop_reason": reason, "stop_sequence": stop}

    def _trace(self, delta: Delta) -> list[Event]:
        return [trace(done, self.tokenizer) for done in delta.rounds] if self.shows_trace else []

    def _with_rounds(self, told: Event, rounds: list[Event]) -> Event:
        return {**told, "forerun": {"trace": rounds}} if rounds else told


async def message_events(form: MessageForm, _direct: Direct) -> AsyncIterator[bytes]:
    """Yield the form's events as lines, with their names."""
    try:
        async for event in form.events():
            yield _line(event)
    except Exception as error:
        yield _line(explained(error).for_anthropic(REQUEST_ID.get()))


def _line(event: Event) -> bytes:
    return f"event: {event['type']}".encode() + b"\ndata: " + to_json(event) + b"\n\n"


PING: Final = _line(_PING)
