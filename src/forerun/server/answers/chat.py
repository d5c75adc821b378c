"""`/v1/chat/completions`: chat.completion objects and their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.trace import trace


@dataclass
class ChatForm(ChunkForm):
    chunk_kind = "chat.completion.chunk"

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        choices = []
        for delta in deltas:
            message = {"role": "assistant", "content": delta.text, "refusal": None}
            choices.append({"index": delta.index, "message": message, **self._rest(delta)})
        answer = {**self._head("chat.completion"), "choices": choices, "usage": self.group.usage}
        if self.shows_token_ids:
            answer["prompt_token_ids"] = self._prompt
        return answer

    def _first(self, delta: Delta) -> bytes:
        if self.shows_token_ids and delta.num_before == 0:
            return self._opened(prompt_token_ids=self._prompt)
        return self._before

    @property
    def _prompt(self) -> list[int]:
        return list(self.group.requests[0].prompt)

    def choices(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if delta.num_before == 0:
            opening = {"role": "assistant", "content": "", "refusal": None}
            yield {"index": delta.index, "delta": opening, **_EMPTY}
        if self.is_news(delta):
            words = {} if delta.output and not delta.text else {"content": delta.text}
            yield {"index": delta.index, "delta": words, **self._rest(delta)}

    def _rest(self, delta: Delta) -> dict[str, Any]:
        rest: dict[str, Any] = {
            "logprobs": {"content": self.chat_entries(delta), "refusal": None}
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
