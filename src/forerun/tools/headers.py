"""What stands before the arguments of a call, looked for in a text as it grows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Way(NamedTuple):
    """To begin a call: what stands before a function's name, and between that and its arguments."""

    before_name: str
    before_arguments: str

    def of(self, name: str) -> str:
        return f"{self.before_name}{name}{self.before_arguments}"


class Found(NamedTuple):
    start: int
    end: int
    name: str


class Headers:
    """Of the functions with these `names`, in any of the `ways`: what it takes to look for them
    does not grow with their number."""

    def __init__(self, ways: Sequence[Way], names: Collection[str]) -> None:
        self._ways = ways
        self._names = frozenset(names)
        self._longest = max(len(way.of(name)) for way in ways for name in names)
        parts = (map(re.escape, way) for way in ways)
        each = (f'{before}(?P<name{idx}>[^"]+){rest}' for idx, (before, rest) in enumerate(parts))
        self._pattern = re.compile("|".join(each))

    def first_in(self, text: str) -> Found | None:
        at = 0
        while (found := self._pattern.search(text, at)) is not None:
            name = next(filter(None, found.groups()))
            if name in self._names:
                return Found(found.start(), found.end(), name)
            at = found.start() + 1
        return None

    def num_before(self, text: str) -> int:
        """Characters of it that are no beginning of a header."""
        starts = range(max(0, len(text) - self._longest + 1), len(text))
        return next((at for at in starts if self._may_go_on(text[at:])), len(text))

    def _may_go_on(self, end: str) -> bool:
        return any(self._is_begun(way, end) for way in self._ways)

    def _is_begun(self, way: Way, end: str) -> bool:
        if len(end) <= len(way.before_name):
            return way.before_name.startswith(end)
        if not end.startswith(way.before_name):
            return False
        name, quote, rest = end[len(way.before_name) :].partition('"')
        if quote:
            return name in self._names and way.before_arguments.startswith(quote + rest)
        return any(known.startswith(name) for known in self._names)
