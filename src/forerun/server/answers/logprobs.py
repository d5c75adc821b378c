"""Log-probabilities as OpenAI shows them: the target's own, before any transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.engine.request.request import Request
from forerun.models.text.tokenizer import Tokenizer

_LEAST: Final = -9999.0  # JSON has no infinity


@dataclass(frozen=True)
class TokenLogprob:
    """A token, how likely it was, and the likeliest in its place; None before the first token."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, token: int, found: Mapping[int, float], num_top: int) -> TokenLogprob:
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:num_top]
        top = tuple((other, max(_LEAST, value)) for other, value in best)
        return cls(token, max(_LEAST, found[token]), top)


def prompt_logprobs(request: Request) -> tuple[TokenLogprob, ...]:
    """For each token of the prompt, if the request asked for them."""
    num_top = request.params.prompt_logprobs
    if num_top is None:
        return ()
    pairs = zip(request.prompt, request.prompt_logprobs, strict=True)
    return tuple(
        TokenLogprob(token, None, ()) if found is None else TokenLogprob.of(token, found, num_top)
        for token, found in pairs
    )


def spelled(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token, skip_special=False).decode("utf-8", "replace")


def chat_logprobs(tokenizer: Tokenizer, found: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {"content": [chat_entry(tokenizer, one) for one in found], "refusal": None}


def chat_entry(tokenizer: Tokenizer, one: TokenLogprob) -> dict[str, Any]:
    return {
        **_chat_token(tokenizer, one.token, one.logprob),
        "top_logprobs": [_chat_token(tokenizer, *other) for other in one.top],
    }


def _chat_token(tokenizer: Tokenizer, token: int, logprob: float | None) -> dict[str, Any]:
    """`bytes` join to the text even where a token is only half a character."""
    return {
        "token": spelled(tokenizer, token),
        "logprob": logprob,
        "bytes": list(tokenizer.token_bytes(token, skip_special=False)),
    }


def completion_logprobs(
    tokenizer: Tokenizer, found: Sequence[TokenLogprob], offset: int
) -> dict[str, Any]:
    """The older form: columns. `offset` is where the first token's text begins."""
    offsets = []
    for one in found:
        offsets.append(offset)
        offset += len(spelled(tokenizer, one.token))
    return {
        "tokens": [spelled(tokenizer, one.token) for one in found],
        "token_logprobs": [one.logprob for one in found],
        "top_logprobs": [
            {spelled(tokenizer, token): value for token, value in one.top}
            if one.logprob is not None
            else None
            for one in found
        ],
        "text_offset": offsets,
    }
