"""`/v1/completions`: text_completion objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.logprobs import completion_logprobs, prompt_logprobs
from forerun.server.answers.trace import trace


@dataclass(frozen=True)
class Echo:
    """A prompt that precedes its answers: its text, and columns as from `completion_logprobs`."""

    text: str = ""
    logprobs: Mapping[str, Sequence[Any]] = field(default_factory=dict)


_NO_ECHO: Final = Echo()


@dataclass
class CompletionForm(ChunkForm):
    """`echoed` are the texts of prompts that precede their answers; None for a prompt that is only
    known as tokens."""

    echoed: Sequence[str | None] = ()
    _echoes: dict[int, Echo] = field(default_factory=dict)  # by index of a prompt's first choice

    chunk_kind = "text_completion"

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        choices = [self._choice(delta) for delta in deltas]
        return {**self._head("text_completion"), "choices": choices, "usage": self.group.usage}

    def choices(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if self.is_news(delta) or (self.echoed and delta.num_before == 0):
            yield self._choice(delta)

    def num_logprobs(self, deltas: Sequence[Delta]) -> int:
        firsts = [delta.index for delta in deltas if delta.num_before == 0]
        echoed = firsts if self.echoed and self.shows_logprobs else []
        num_before = sum(len(self.group.requests[index].prompt) for index in echoed)
        return super().num_logprobs(deltas) + num_before

    def _echo(self, index: int) -> Echo:
        """Return what precedes all choices of a prompt."""
        first = index - index % self.group.num_choices
        if first not in self._echoes:
            request, tokenizer = self.group.requests[first], self.tokenizer
            text = self.echoed[first // self.group.num_choices]
            if text is None:
                text = tokenizer.decode(request.prompt, skip_special=False)
            found = prompt_logprobs(request, tokenizer, text)
            columns = completion_logprobs(tokenizer, found, len(text))
            self._echoes[first] = Echo(text, columns)
        return self._echoes[first]

    def _choice(self, delta: Delta) -> dict[str, Any]:
        is_first = delta.num_before == 0
        echo = self._echo(delta.index) if self.echoed else _NO_ECHO
        logprobs = None
        if self.shows_logprobs:
            logprobs = completion_logprobs(self.tokenizer, delta.logprobs, len(echo.text))
            for name, before in echo.logprobs.items() if is_first else ():
                logprobs[name] = [*before, *logprobs[name]]
        choice: dict[str, Any] = {
            "index": delta.index,
            "text": echo.text + delta.text if is_first else delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.shows_token_ids:
            choice["token_ids"] = list(delta.tokens)
            if is_first:
                choice["prompt_token_ids"] = list(self.group.requests[delta.index].prompt)
        if self.shows_trace:
            choice["forerun"] = {"trace": [trace(done, self.tokenizer) for done in delta.rounds]}
        return choice
