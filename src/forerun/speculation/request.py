"""A request as speculation sees it, and the speculation that it allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from forerun.drafters import OWN, RequestView
from forerun.errors import InvalidOption
from forerun.option_checks import require, require_fields, require_whole


@dataclass(frozen=True)
class RequestSpeculation:
    """The speculation that one request allows, within that of the engine.

    `drafter` names one of the engine's drafters; by default all may guess. A prediction or a
    grammar of the request makes guesses in any case. `num_speculative_tokens` and `num_branches`
    are ceilings below the engine's own; a depth of 0 turns guessing off.
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
        return not self.is_off and (self.drafter in (None, drafter) or drafter in OWN)

    def without(self, *names: str) -> RequestSpeculation:
        """Return the same without these drafters, for a request that gives them nothing to use."""
        own = self.drafter, self.num_speculative_tokens, self.num_branches
        return _Without(*own, names) if names else self

    @classmethod
    def of(cls, given: RequestSpeculation | Mapping[str, Any] | None) -> RequestSpeculation:
        """Build from what a caller gave; an unknown name raises and suggests the nearest one."""
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


@dataclass(frozen=True)
class _Without(RequestSpeculation):
    silent: tuple[str, ...] = ()

    def allows(self, drafter: str) -> bool:
        return drafter not in self.silent and super().allows(drafter)


AS_STARTED: Final = RequestSpeculation()


class SpeculativeRequest(RequestView, Protocol):
    """A request as drafters see it, with the speculation that it allows."""

    @property
    def speculation(self) -> RequestSpeculation: ...

    @property
    def num_left(self) -> int:
        """How many tokens it may still emit."""
