"""Checks of option values; each raises `InvalidOption` with what is allowed."""

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
    """Whether `value` is an integer, numpy's included; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether `value` is a number that a float can hold; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an int beyond any float
        return False


def is_unicode(text: str) -> bool:
    """Whether `text` has no lone surrogates, which is how Python decodes bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require(good: bool, name: str, value: object, rule: str) -> None:
    """Raise unless `good`; `rule` says what is allowed: "in (0, 1]", "a whole number"."""
    if not good:
        raise InvalidOption(f"{name}={value!r} is not allowed; it must be {rule}.")


def require_known(kind: str, valid: Iterable[str], *names: object) -> None:
    """Raise unless all `names` are valid; the error suggests the nearest valid one."""
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise unknown_name(kind, str(name), valid)


def require_fields(kind: str, config: type[DataclassInstance], given: Mapping[str, Any]) -> None:
    """Raise unless `given` is a mapping whose keys are fields of the dataclass `config`."""
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{kind}s are a mapping from names to values; {given!r} is none.")
    require_known(kind, [field.name for field in fields(config)], *given)


def known_keywords(config: type[Config]) -> type[Config]:
    """Decorate a dataclass, so that an unknown keyword raises and suggests the nearest field."""
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
    """Raise unless `value` is an integer ≥ `least`, or None if `or_none`."""
    if or_none and value is None:
        return
    require(is_whole(value) and value >= least, name, value, f"a whole number ≥ {least}")


def require_real(name: str, value: Any, rule: str, is_allowed: Callable[[float], bool]) -> None:
    """Raise unless `value` is a finite number that `is_allowed`; `rule` says which are."""
    require(is_finite(value) and is_allowed(value), name, value, rule)
