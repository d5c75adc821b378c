"""What the forms of all endpoints share: how answers are written as JSON and as stream chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Any, ClassVar, Final, Protocol

from forerun.models.text.tokenizer import Tokenizer
from forerun.server.answers.delta import Delta
from forerun.server.answers.group import Group
from forerun.server.answers.logprobs import chat_entry
from forerun.server.json_text import to_json

_MARK: Final = "\0"  # a text that a chunk's choice does not have otherwise


@dataclass
class Form:
    """How one request's answers are written, in the format of an endpoint."""

    group: Group
    id: str
    created: int
    model: str
    fingerprint: str
    tokenizer: Tokenizer
    shows_logprobs: bool = False
    shows_token_ids: bool = False
    shows_trace: bool = False

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    @property
    def shows_more(self) -> bool:
        """Whether the client gets more than text."""
        return self.shows_logprobs or self.shows_token_ids or self.shows_trace

    def chat_entries(self, delta: Delta) -> list[dict[str, Any]]:
        """The log-probabilities of a delta's tokens, as chat and responses show them."""
        skips_special = self.group.requests[0].params.skip_special_tokens
        return [
            chat_entry(self.tokenizer, one, skips_special=skips_special) for one in delta.logprobs
        ]

    def is_news(self, delta: Delta) -> bool:
        """Whether a delta has anything to send; text may wait for the rest of a character."""
        return bool(delta.text) or delta.output is not None or self.shows_more


class Whole(Protocol):
    """What a response that is not streamed needs of a form."""

    group: Group

    @property
    def shows_more(self) -> bool: ...

    def whole(self, deltas: list[Delta]) -> dict[str, Any]: ...


@dataclass
class ChunkForm(Form, ABC):
    """A form whose streams are chunks. Chunks differ in little; the JSON they share is written
    once."""

    includes_usage: bool = False
    continuous_usage: bool = False
    _frames: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # JSON around a text

    chunk_kind: ClassVar[str]

    @abstractmethod
    def whole(self, deltas: list[Delta]) -> dict[str, Any]: ...

    @abstractmethod
    def choices(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Yield the choices that a delta becomes, one for each chunk."""

    @property
    def is_framed(self) -> bool:
        """Whether most chunks have nothing but text, so that they can be framed."""
        return not self.shows_more

    def num_logprobs(self, deltas: Sequence[Delta]) -> int:
        """Return how many tokens' log-probabilities the chunks of `deltas` contain."""
        return sum([len(delta.logprobs) for delta in deltas])

    def chunks(self, deltas: Sequence[Delta]) -> bytes:
        """Return the stream's events for the deltas of one step."""
        return b"".join([line for delta in deltas for line in self._lines(delta)])

    def closing(self) -> bytes:
        return self._before + _with_usage(self.group.usage) if self.includes_usage else b""

    def _lines(self, delta: Delta) -> list[bytes]:
        after = self._after
        if self.continuous_usage:
            after = _with_usage(self.group.usage_of(delta))
        if delta.num_before and delta.output is None and self.is_framed:
            if not delta.text:
                return []
            start, end = self._frames.get(delta.index) or self._framed(delta)
            return [start, to_json(delta.text), end, after]
        starts = chain([self._first(delta)], repeat(self._before))
        return [
            start + to_json(choice) + after
            for start, choice in zip(starts, self.choices(delta), strict=False)
        ]

    def _first(self, _delta: Delta) -> bytes:
        """Return the JSON before the first choice of a delta."""
        return self._before

    def _framed(self, delta: Delta) -> tuple[bytes, bytes]:
        """Return the JSON before and after the text of a delta that has nothing else."""
        (choice,) = self.choices(replace(delta, text=_MARK))
        start, end = to_json(choice).split(to_json(_MARK))
        frame = self._frames[delta.index] = self._before + start, end
        return frame

    @cached_property
    def _before(self) -> bytes:
        return self._opened()

    def _opened(self, **more: Any) -> bytes:
        head = to_json({**self._head(self.chunk_kind), **more})
        return b"data: " + head[:-1] + b',"choices":['

    @cached_property
    def _after(self) -> bytes:
        """The JSON after a choice; the usage is null if it comes at the end, as with OpenAI."""
        return b'],"usage":null}\n\n' if self.includes_usage else b"]}\n\n"


def _with_usage(usage: dict[str, Any]) -> bytes:
    return b'],"usage":' + to_json(usage) + b"}\n\n"
