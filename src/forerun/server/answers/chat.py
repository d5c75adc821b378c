"""`/v1/chat/completions`: chat.completion objects and their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forerun.server.answers.delta import Delta
from forerun.server.answers.form import Form
from forerun.server.answers.group import Group
from forerun.server.answers.logprobs import chat_logprobs
from forerun.server.answers.trace import trace


@dataclass
class ChatForm(Form):
    _begun: set[int] = field(default_factory=set)  # answers whose role was told

    def whole(self, deltas: list[Delta], group: Group) -> dict[str, Any]:
        choices = []
        for delta in deltas:
            message = {"role": "assistant", "content": delta.text, "refusal": None}
            choices.append({"index": delta.index, "message": message, **self._rest(delta)})
        answer = {**self._head("chat.completion"), "choices": choices, "usage": self.usage(group)}
        if self.shows_token_ids:
            answer["prompt_token_ids"] = list(group.requests[0].prompt)
        return answer

    def chunks(self, delta: Delta, group: Group) -> Iterator[dict[str, Any]]:
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            opening = {"role": "assistant", "content": "", "refusal": None}
            yield self._chunk({"index": delta.index, "delta": opening, **_EMPTY}, group)
        if not self.is_news(delta):
            return
        words = {"content": delta.text} if delta.text or not delta.output else {}
        yield self._chunk({"index": delta.index, "delta": words, **self._rest(delta)}, group)

    def closing(self, group: Group) -> Iterator[dict[str, Any]]:
        if self.includes_usage:
            head = self._head("chat.completion.chunk")
            yield {**head, "choices": [], "usage": self.usage(group)}

    def _chunk(self, choice: dict[str, Any], group: Group) -> dict[str, Any]:
        head = self._head("chat.completion.chunk")
        return {**head, "choices": [choice], **self.running_usage(group)}

    def _rest(self, delta: Delta) -> dict[str, Any]:
        rest: dict[str, Any] = {
            "logprobs": chat_logprobs(self.tokenizer, delta.logprobs)
            if self.shows_logprobs
            else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.shows_token_ids:
            rest["token_ids"] = list(delta.tokens)
        if self.shows_trace:
            rest["forerun"] = {"trace": [trace(done, self.tokenizer) for done in delta.rounds]}
        return rest


_EMPTY = {"logprobs": None, "finish_reason": None}
