"""An output's text as it grows, and where a stop string ends it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from forerun.models.text.token_bytes import whole_characters
from forerun.models.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextRules:
    """How tokens become text, and what ends it."""

    tokenizer: Tokenizer
    skip_special: bool
    stops: tuple[str, ...]
    include_stop: bool

    def num_begun(self, text: str) -> int:
        """Return the length of the longest suffix of `text` that a stop string begins with and
        goes beyond."""
        stops, firsts = self._ordered
        for at in range(max(0, len(text) - max(map(len, stops)) + 1), len(text)):
            if text[at] in firsts:
                end = text[at:]
                behind = bisect_right(stops, end)  # longer strings that begin with it come next
                if behind < len(stops) and stops[behind].startswith(end):
                    return len(end)
        return 0

    @cached_property
    def _ordered(self) -> tuple[list[str], set[str]]:
        """The stop strings in order, and the set of their first characters."""
        return sorted(self.stops), {stop[0] for stop in self.stops}


class OutputText(NamedTuple):
    """The text of some tokens, immutable: `push` returns the text with one more token.

    `text` holds whole characters only. `stop` is the stop string that was found; `text` then ends
    before or after it, as `rules` say.
    """

    rules: TextRules
    text: str = ""
    rest: bytes = b""  # the bytes of an incomplete character
    stop: str | None = None
    num_exempt: int = 0  # leading characters in which stop strings are ignored: see `min_tokens`

    @classmethod
    def start(
        cls, tokenizer: Tokenizer, stops: Sequence[str], *, include_stop: bool, skip_special: bool
    ) -> OutputText:
        return cls(TextRules(tokenizer, skip_special, tuple(stops), include_stop))

    def push(self, token: int, *, may_stop: bool = True) -> OutputText:
        rules = self.rules
        spelled = self.rest + rules.tokenizer.token_bytes(token, rules.skip_special)
        new, rest = whole_characters(spelled)
        if may_stop:
            return self._grown(new, rest)
        text = self.text + new
        return OutputText(rules, text, rest, None, len(text))

    def push_all(self, tokens: Sequence[int]) -> tuple[OutputText, list[int]]:
        """Push several tokens, where there are no stop strings; also return the length of the text
        after each token."""
        rules, text, rest, ends = self.rules, self.text, self.rest, list[int]()
        assert not rules.stops, rules.stops
        spelling = rules.tokenizer.token_bytes
        for token in tokens:
            new, rest = whole_characters(rest + spelling(token, rules.skip_special))
            text += new
            ends.append(len(text))
        return OutputText(rules, text, rest, None, self.num_exempt), ends

    def finish(self) -> OutputText:
        """End the text: a character that was never completed becomes U+FFFD."""
        if self.stop is not None:
            return self
        return self._grown(*whole_characters(self.rest, final=True))

    def _grown(self, new: str, rest: bytes) -> OutputText:
        text, met = self.text + new, None
        if not self.rules.stops:
            return OutputText(self.rules, text, rest, None, self.num_exempt)
        hits = [(text.find(stop, self._search_from(stop)), stop) for stop in self.rules.stops]
        begun = [(at, stop) for at, stop in hits if at >= 0]
        if begun:
            at, met = min(begun)
            text = text[: at + len(met) if self.rules.include_stop else at]
        return OutputText(self.rules, text, rest, met, self.num_exempt)

    def _search_from(self, stop: str) -> int:
        """Where to search for `stop`: if it was not found before, it ends in the new text."""
        return max(self.num_exempt, len(self.text) - len(stop) + 1)

    @property
    def num_certain(self) -> int:
        """How many characters no later token can cut off: all but the start of a stop string."""
        if self.stop is not None or not self.rules.stops:
            return len(self.text)
        return len(self.text) - self.rules.num_begun(self.text)
