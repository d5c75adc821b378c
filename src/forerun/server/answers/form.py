"""What the forms of all endpoints share: who answers, and what of it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from forerun.models.text.tokenizer import Tokenizer
from forerun.server.answers.delta import Delta
from forerun.server.answers.group import Group


@dataclass
class Form:
    """How one request's answers are written down."""

    id: str
    created: int
    model: str
    fingerprint: str
    tokenizer: Tokenizer
    shows_logprobs: bool = False
    shows_token_ids: bool = False
    shows_trace: bool = False
    includes_usage: bool = False
    continuous_usage: bool = False

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def is_news(self, delta: Delta) -> bool:
        """Whether a delta says anything; text may wait for the rest of a character."""
        says_more = self.shows_logprobs or self.shows_token_ids or self.shows_trace
        return bool(delta.text) or delta.output is not None or says_more

    def usage(self, group: Group) -> dict[str, Any]:
        return group.usage

    def running_usage(self, group: Group) -> dict[str, Any]:
        """In every chunk: the usage so far, or null where it comes at the end, as OpenAI does."""
        if self.continuous_usage:
            return {"usage": self.usage(group)}
        return {"usage": None} if self.includes_usage else {}


class Whole(Protocol):
    """What an answer in one piece needs of a form."""

    def whole(self, deltas: list[Delta], group: Group) -> dict[str, Any]: ...


class Chunked(Whole, Protocol):
    """What a stream of chunks needs besides."""

    def chunks(self, delta: Delta, group: Group) -> Iterator[dict[str, Any]]: ...

    def closing(self, group: Group) -> Iterator[dict[str, Any]]: ...
