"""The options of one request besides its sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from forerun.engine.scheduling.limits import MAX_PRIORITY
from forerun.errors import InvalidOption
from forerun.option_checks import is_whole, require
from forerun.speculation.request import AS_STARTED, RequestSpeculation

SpeculationLike = RequestSpeculation | Mapping[str, Any] | None


class RequestKeywords(TypedDict, total=False):
    """The keywords of one request: see `RequestOptions`."""

    priority: int
    cache_salt: str | None
    speculation: SpeculationLike
    prediction: str | None


@dataclass(frozen=True)
class RequestOptions:
    """The options of one request, validated.

    A smaller `priority` runs sooner. Only requests of the same `cache_salt` share prefixes.
    `prediction` is roughly the text that the caller expects; guesses follow it while it is right.
    """

    priority: int = 0
    cache_salt: str | None = None
    speculation: RequestSpeculation = AS_STARTED
    prediction: str | None = None

    def __post_init__(self) -> None:
        good = is_whole(self.priority) and abs(self.priority) <= MAX_PRIORITY
        rule = f"a whole number within -{MAX_PRIORITY} … {MAX_PRIORITY}"
        require(good, "priority", self.priority, rule)
        good = self.cache_salt is None or isinstance(self.cache_salt, str)
        require(good, "cache_salt", self.cache_salt, "a text, or None")
        good = self.prediction is None or isinstance(self.prediction, str)
        require(good, "prediction", self.prediction, "a text, or None")

    @classmethod
    def of(cls, given: RequestKeywords) -> RequestOptions:
        (options,) = cls.each(1, **given)
        return options

    @classmethod
    def each(
        cls,
        num: int,
        priority: int | Sequence[int] = 0,
        cache_salt: str | Sequence[str | None] | None = None,
        speculation: SpeculationLike | Sequence[SpeculationLike] = None,
        prediction: str | Sequence[str | None] | None = None,
    ) -> list[RequestOptions]:
        """Return the options of `num` requests; a single value is meant for all of them."""
        columns = zip(
            spread(priority, num, "priority"),
            spread(cache_salt, num, "cache_salt"),
            spread(speculation, num, "speculation"),
            spread(prediction, num, "prediction"),
            strict=True,
        )
        return [
            cls(rank, salt, RequestSpeculation.of(guess), text)
            for rank, salt, guess, text in columns
        ]


def spread(given: Any, num: int, name: str) -> Sequence[Any]:
    """Return one value for each of `num` requests: those of a list, or `given` for all."""
    if not isinstance(given, list | tuple):
        return [given] * num
    if len(given) != num:
        raise InvalidOption(f"{len(given)} values of {name} for {num} prompts; match them.")
    return given
