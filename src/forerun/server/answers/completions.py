"""`/v1/completions`: text_completion objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.logprobs import completion_logprobs, prompt_logprobs
from forerun.server.answers.trace import trace


@dataclass
class CompletionForm(ChunkForm):
    """`echoes` puts the prompt before its answer."""

    echoes: bool = False
    _echoed: dict[int, int] = field(default_factory=dict)  # characters before each answer

    chunk_kind = "text_completion"

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        choices = [self._choice(self._begun(delta)) for delta in deltas]
        return {**self._head("text_completion"), "choices": choices, "usage": self.group.usage}

    def choices(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if delta.num_before == 0:
            delta = self._begun(delta)
        if self.is_news(delta):
            yield self._choice(delta)

    def _begun(self, delta: Delta) -> Delta:
        """The first delta of an answer, after the prompt that is to stand before it."""
        if not self.echoes:
            return delta
        request = self.group.requests[delta.index - delta.index % self.group.num_choices]
        skips = request.params.skip_special_tokens
        text = self.tokenizer.decode(request.prompt, skip_special=skips)
        self._echoed[delta.index] = len(text)
        return delta.preceded_by(text, prompt_logprobs(request, self.tokenizer, text))

    def _choice(self, delta: Delta) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": completion_logprobs(
                self.tokenizer, delta.logprobs, self._echoed.get(delta.index, 0)
            )
            if self.shows_logprobs
            else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.shows_token_ids:
            choice["token_ids"] = list(delta.tokens)
            if delta.num_before == 0:
                choice["prompt_token_ids"] = list(self.group.requests[delta.index].prompt)
        if self.shows_trace:
            choice["forerun"] = {"trace": [trace(done, self.tokenizer) for done in delta.rounds]}
        return choice
