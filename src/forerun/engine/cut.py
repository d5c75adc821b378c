"""Where an output ends: decided for each verdict before it is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forerun.engine.request.output_text import OutputText
from forerun.engine.request.request import Request
from forerun.types import Verdict


class Cut(NamedTuple):
    """How many tokens of a verdict are emitted, and why the request ends there, if it does."""

    num_tokens: int
    text: OutputText
    text_ends: Sequence[int]  # the length of the text after each emitted token
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def num_chars(self) -> int:
        """The length of the text that no later token can take back."""
        return self.text.num_certain if self.finish_reason is None else len(self.text.text)


def cut(request: Request, verdict: Verdict) -> Cut:
    """Read a verdict's tokens in order and cut it after the first that ends the request."""
    text, params, num_left = request.text, request.params, request.num_left
    num_unstoppable = params.min_tokens - len(request.output)
    ends = params.stop_token_ids
    if not params.ignore_eos:
        ends = (*ends, *request.end_ids)
    tokens, grammar = verdict.tokens, request.grammar
    is_free = not text.rules.stops
    if grammar is not None:
        is_free = is_free and not grammar.may_loosen(request.output)
        is_free = is_free and not grammar.is_over(request.output, tokens)
    if len(tokens) < num_left and is_free and not set(tokens).intersection(ends):
        return Cut(len(tokens), *text.push_all(tokens))
    text_ends: list[int] = []
    for num, token in enumerate(tokens, start=1):
        if token in ends:
            if text.rules.include_stop:
                text = text.push(token, may_stop=False)
            text = text.finish()
            reason = token if token in params.stop_token_ids else None
            return Cut(num, text, [*text_ends, len(text.text)], "stop", reason)
        text = text.push(token, may_stop=num > num_unstoppable)
        text_ends.append(len(text.text))
        if text.stop is not None:
            return Cut(num, text, text_ends, "stop", text.stop)
        if grammar is not None and grammar.is_over(request.output, tokens[:num]):
            return Cut(num, text.finish(), text_ends, "stop")
        if num == num_left:
            return Cut(num, text.finish(), text_ends, "length")
    return Cut(len(tokens), text, text_ends)
