"""Log-probabilities as OpenAI shows them: the target's own, before any transform."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.engine.request.request import Request
from forerun.models.text.token_bytes import whole_characters
from forerun.models.text.tokenizer import Tokenizer

_LEAST: Final = -9999.0  # JSON has no infinity


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log-probability, None for the first of a prompt, and the likeliest in its place.

    `start` is where the token's text begins, relative to the answer's text: below 0 in the prompt.
    A token that continues a character begins where the character does.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]
    start: int

    @classmethod
    def of(cls, token: int, found: Mapping[int, float], num_top: int, start: int) -> TokenLogprob:
        best = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:num_top]
        top = tuple((other, max(_LEAST, value)) for other, value in best)
        return cls(token, max(_LEAST, found[token]), top, start)


def prompt_logprobs(request: Request, tokenizer: Tokenizer, text: str) -> tuple[TokenLogprob, ...]:
    """Return those of the prompt, or () if the request did not ask; `text` is the whole prompt."""
    num_top = request.params.prompt_logprobs
    if num_top is None:
        return ()
    starts = _starts(request, tokenizer, text)
    rows = zip(request.prompt, request.prompt_logprobs, starts, strict=True)
    return tuple(
        TokenLogprob(token, None, (), start)
        if found is None
        else TokenLogprob.of(token, found, num_top, start)
        for token, found, start in rows
    )


def _starts(request: Request, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return where the prompt's tokens begin, relative to the end of `text`.

    The tokens also spell what the tokenizer added before and after `text`. If they spell the text
    itself differently, both are taken to end at the same place."""
    whole, ends, rest = "", [0], b""
    for token in request.prompt:
        new, rest = whole_characters(rest + tokenizer.token_bytes(token, skip_special=False))
        whole += new
        ends.append(len(whole))
    whole += whole_characters(rest, final=True)[0]
    is_last = whole.endswith(text) or text not in whole
    last = len(whole) if is_last else whole.rindex(text) + len(text)
    return [max(min(end - last, 0), -len(text)) for end in ends[:-1]]


def spelled(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.token_bytes(token, skip_special=False).decode("utf-8", "replace")


def chat_entry(tokenizer: Tokenizer, one: TokenLogprob, *, skips_special: bool) -> dict[str, Any]:
    """Return a token in chat's form. All `bytes` join to the text: those of a token may be half a
    character, and a special token that the text skips has none."""

    def told(token: int, logprob: float | None) -> dict[str, Any]:
        shown = tokenizer.token_bytes(token, skips_special)
        return {"token": spelled(tokenizer, token), "logprob": logprob, "bytes": list(shown)}

    return {
        **told(one.token, one.logprob),
        "top_logprobs": [told(*other) for other in one.top],
    }


def completion_logprobs(
    tokenizer: Tokenizer, found: Sequence[TokenLogprob], offset: int
) -> dict[str, list[Any]]:
    """Return columns, the older form; the answer begins at `offset` in the choice's text."""
    return {
        "tokens": [_name(tokenizer, one.token) for one in found],
        "token_logprobs": [one.logprob for one in found],
        "top_logprobs": [_top(tokenizer, one) for one in found],
        "text_offset": [offset + one.start for one in found],
    }


def _top(tokenizer: Tokenizer, one: TokenLogprob) -> dict[str, float] | None:
    """Return the likeliest tokens and the token itself, as OpenAI does. Of tokens spelled alike
    only one is shown: the token itself, else the likeliest."""
    if one.logprob is None:
        return None
    return {_name(tokenizer, token): value for token, value in reversed(one.top)} | {
        _name(tokenizer, one.token): one.logprob
    }


def _name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token's text as a key, or its bytes in OpenAI's notation if they are no text."""
    found = tokenizer.token_bytes(token, skip_special=False)
    try:
        return found.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found)
