"""Finds the headers of calls, the text before their arguments, in a text that grows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple


class Way(NamedTuple):
    """How a call begins: the text before the function's name, and from there to the arguments."""

    before_name: str
    before_arguments: str

    def of(self, name: str) -> str:
        return f"{self.before_name}{name}{self.before_arguments}"


class Found(NamedTuple):
    start: int
    end: int
    name: str


class Headers:
    """Finds the headers of calls: those of the functions with these `names`, in any of the `ways`.

    The time it takes does not grow with the number of functions."""

    def __init__(self, ways: Sequence[Way], names: Collection[str]) -> None:
        self._ways = ways
        self._names = frozenset(names)
        self._longest = max(len(way.of(name)) for way in ways for name in names)
        parts = (map(re.escape, way) for way in ways)
        each = (f'{before}(?P<name{idx}>[^"]+){rest}' for idx, (before, rest) in enumerate(parts))
        self._pattern = re.compile("|".join(each))
        starts = [way.before_name for way in ways]
        self._beginnings = frozenset(one[:num] for one in starts for num in range(1, len(one) + 1))
        self._longest_beginning = max(map(len, starts))

    def first_in(self, text: str, num_searched: int = 0) -> Found | None:
        """Return the first header in `text`, or None. The caller has found that none ends within
        the first `num_searched` characters."""
        at = max(0, num_searched - self._longest)
        while (found := self._pattern.search(text, at)) is not None:
            name = next(filter(None, found.groups()))
            if name in self._names:
                return Found(found.start(), found.end(), name)
            at = found.start() + 1
        return None

    def num_before(self, text: str) -> int:
        """Return the first index at which a header may begin that more text will complete; `text`
        itself has no complete header."""
        longest = min(len(text), self._longest_beginning)
        sizes = range(longest, 0, -1)
        begun = next((num for num in sizes if text[-num:] in self._beginnings), 0)
        first = max(0, len(text) - self._longest + 1)
        named = (
            at
            for way in self._ways
            for at in _places(text, way.before_name, first)
            if self._may_go_on(way, text[at + len(way.before_name) :])
        )
        return min([len(text) - begun, *named])

    def _may_go_on(self, way: Way, rest: str) -> bool:
        """Whether `rest`, the text after `before_name`, may still become the rest of a header."""
        name, quote, behind = rest.partition('"')
        if quote:
            return name in self._names and way.before_arguments.startswith(quote + behind)
        return any(known.startswith(name) for known in self._names)


def _places(text: str, part: str, first: int) -> Iterator[int]:
    at = text.find(part, first)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
