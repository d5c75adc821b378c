"""What a caller may ask for one request beside its sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from forerun.drafters.prediction import PREDICTION
from forerun.engine.scheduling.limits import MAX_PRIORITY
from forerun.errors import InvalidOption
from forerun.option_checks import is_whole, require, require_fields, require_whole


@dataclass(frozen=True)
class RequestSpeculation:
    """What may guess for one request, within what the engine was started with.

    `drafter` names one of the engine's drafters; without a name they all may guess.
    `num_speculative_tokens` and `num_branches` are ceilings below the engine's own; a depth of 0
    turns guessing off.
    """

    drafter: str | None = None
    num_speculative_tokens: int | None = None
    num_branches: int | None = None

    def __post_init__(self) -> None:
        good = self.drafter is None or isinstance(self.drafter, str)
        require(good, "drafter", self.drafter, "a drafter's name, or None")
        for name, least in (("num_speculative_tokens", 0), ("num_branches", 1)):
            require_whole(name, getattr(self, name), least, or_none=True)

    @property
    def is_off(self) -> bool:
        return self.num_speculative_tokens == 0

    def allows(self, drafter: str) -> bool:
        return not self.is_off and self.drafter in (None, drafter)

    def without_prediction(self) -> RequestSpeculation:
        """Of a request that brings none: nobody follows one for it."""
        return _WithoutPrediction(self.drafter, self.num_speculative_tokens, self.num_branches)

    @classmethod
    def of(cls, given: RequestSpeculation | Mapping[str, Any] | None) -> RequestSpeculation:
        """From what a caller gave; an unknown name raises and points at the nearest valid one."""
        if given is None:
            return AS_STARTED
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise InvalidOption(
                f"speculation={given!r} is not allowed; give RequestSpeculation, a mapping of its "
                f"options, or None."
            )
        require_fields("speculation option", cls, given)
        return cls(**given)


class _WithoutPrediction(RequestSpeculation):
    def allows(self, drafter: str) -> bool:
        return drafter != PREDICTION and super().allows(drafter)


AS_STARTED: Final = RequestSpeculation()

SpeculationLike = RequestSpeculation | Mapping[str, Any] | None


class RequestKeywords(TypedDict, total=False):
    """What a caller may give for one request: see `RequestOptions`."""

    priority: int
    cache_salt: str | None
    speculation: SpeculationLike
    prediction: str | None


@dataclass(frozen=True)
class RequestOptions:
    """`priority`: smaller runs sooner. Only requests of the same `cache_salt` share prefixes.

    `prediction` is the text that the caller expects, roughly: a drafter for this request alone.
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
        """For `num` requests; what is given once is meant for all."""
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
    """`given` for each of `num` requests: a list has one for each already."""
    if not isinstance(given, list | tuple):
        return [given] * num
    if len(given) != num:
        raise InvalidOption(f"{len(given)} values of {name} for {num} prompts; match them.")
    return given
