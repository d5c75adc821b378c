"""What an option may hold; a value that it may not raises `InvalidOption` and says what it may."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from forerun.errors import InvalidOption, UnknownKeyword, unknown_name

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)


def is_whole(value: object) -> bool:
    """A whole number, numpy's included; true and false are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """A number that a float can hold; true and false are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an int beyond any float
        return False


def is_unicode(text: str) -> bool:
    """Half of a surrogate pair is no character; bytes that are no text arrive as such halves."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require(good: bool, name: str, value: object, rule: str) -> None:
    """`rule` says what is allowed: "in (0, 1]", "a whole number"."""
    if not good:
        raise InvalidOption(f"{name}={value!r} is not allowed; it must be {rule}.")


def require_known(kind: str, valid: Iterable[str], *names: object) -> None:
    """Names that somebody knows; the error points at the nearest valid one."""
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise unknown_name(kind, str(name), valid)


def require_fields(kind: str, config: type[DataclassInstance], given: Mapping[str, Any]) -> None:
    """A mapping from names of the fields of a dataclass."""
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{kind}s are a mapping from names to values; {given!r} is none.")
    require_known(kind, [field.name for field in fields(config)], *given)


def known_keywords(config: type[Config]) -> type[Config]:
    """For a dataclass: a keyword that it does not take raises and points at the nearest."""
    init, names = config.__init__, {field.name for field in fields(config) if field.init}

    @functools.wraps(init)
    def checked(self: Config, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                raise UnknownKeyword(str(unknown_name("option", name, names)))
        init(self, *args, **given)

    config.__init__ = checked  # type: ignore[assignment, method-assign]
    return config


def require_whole(name: str, value: Any, least: int, *, or_none: bool = False) -> None:
    """A whole number, `least` or more."""
    if or_none and value is None:
        return
    require(is_whole(value) and value >= least, name, value, f"a whole number ≥ {least}")


def require_real(name: str, value: Any, rule: str, is_allowed: Callable[[float], bool]) -> None:
    """A finite number that `is_allowed`, as `rule` says it."""
    require(is_finite(value) and is_allowed(value), name, value, rule)
