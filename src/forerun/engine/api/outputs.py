"""What callers get back; fields as in vLLM's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from forerun.engine.request.request import Request
from forerun.replies import ReplyForm
from forerun.tools import ToolCall
from forerun.types import Origin


@dataclass(frozen=True)
class CompletionOutput:
    """One answer. With coupled acceptance, `seed` and the same `n` reproduce it, with or without
    speculation."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None
    seed: int
    origins: tuple[Origin, ...]
    logprobs: tuple[dict[int, float], ...] | None
    stats: dict[str, Any]
    tool_calls: tuple[ToolCall, ...] = ()  # parsed from the text, if tools were given
    reasoning: str | None = None  # parsed from the text, if the model reasons before it answers

    @classmethod
    def of(cls, request: Request) -> CompletionOutput:
        assert request.finish_reason is not None, "the request still runs"
        wanted = request.params.logprobs is not None
        return cls(
            index=request.choice,
            text=request.text.text,
            token_ids=tuple(request.output),
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
            seed=request.seed,
            origins=tuple(request.origins),
            logprobs=tuple(request.logprobs) if wanted else None,
            stats=request.stats.as_dict(),
        )


@dataclass(frozen=True)
class RequestOutput:
    """A prompt and its `n` answers.

    `num_cached_tokens` is how many of the prompt's tokens the first answer found in the cache.
    `prompt_logprobs` has an entry for each token of the prompt, None for the first one.
    """

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: Sequence[CompletionOutput]
    num_cached_tokens: int = 0
    prompt_logprobs: Sequence[dict[int, float] | None] | None = None

    @classmethod
    def of(cls, prompt: str | Sequence[int], answers: Sequence[Request]) -> RequestOutput:
        return cls(
            prompt if isinstance(prompt, str) else None,
            answers[0].prompt,
            [CompletionOutput.of(request) for request in answers],
            answers[0].num_cached_tokens or 0,
            answers[0].prompt_logprobs or None,
        )

    def read_as(self, form: ReplyForm) -> RequestOutput:
        """Return the same outputs with tool calls and reasoning parsed from their texts."""
        if form.is_plain:
            return self
        replies = [form.read(one.text) for one in self.outputs]
        outputs = [
            replace(one, tool_calls=reply.calls, reasoning=reply.reasoning or None)
            for one, reply in zip(self.outputs, replies, strict=True)
        ]
        return replace(self, outputs=outputs)
