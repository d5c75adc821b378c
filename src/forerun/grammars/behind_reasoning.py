"""A grammar of what comes behind a model's reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from forerun.grammars.cues import Cue, Cues
from forerun.types import Grammar

_OPENING, _REASONING, _ANSWERING = range(3)
_SPACES = (b"\n\n", b"\n", b" ")


class BehindReasoning:
    """A `Grammar` of an answer that may begin with reasoning, which is free, and stands between two
    `marks`; what comes behind it, or instead of it, is what `grammar` allows. One token of space
    may stand in between. Where the first mark is empty, the reasoning has begun before the answer.

    `spell` gives a token's bytes, and `read` tokens of any bytes.
    """

    def __init__(
        self,
        grammar: Grammar,
        marks: tuple[str, str],
        spell: Callable[[int], bytes],
        read: Callable[[bytes], Sequence[int]],
    ) -> None:
        self._grammar = grammar
        self._opens, self._closes = (mark.encode() for mark in marks)
        self._spell, self._read = spell, read
        self._opening = list(read(self._opens))
        spaces = [read(space) for space in _SPACES]
        self._spaces = [tokens[0] for tokens in spaces if len(tokens) == 1]
        self._cues = Cues([marks[1]], spell, self._begun)
        self._behind: list[int] = []  # what `grammar` reads of a list, which may grow:
        self._growing: Sequence[int] | None = None
        self._num_read = 0  # of its tokens, behind
        self._cue: Cue | None = None

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        if self._stage(chain(output, more)) != _REASONING:
            return self._grammar.binds(output, more)
        cue = self._cues.first_in(output, more)
        if cue is None:
            return False
        behind, rest, _ = self._split(cue, output, more)
        return self._grammar.binds(behind, rest)

    def allowed_bits(self, output: Sequence[int]) -> bytes:
        stage = self._stage(output)
        if stage == _ANSWERING:
            return self._grammar.allowed_bits(output)
        if stage == _OPENING:
            bits = self._grammar.allowed_bits(output) if self._fits(output) else b""
            return _with(bits, self._goes_on(output))
        cue = self._cues.first_in(output)
        assert cue is not None, "asked where it does not bind"
        bits = self._grammar.allowed_bits(self._read_behind(cue, output))
        return bits if cue.tokens or cue.num < len(output) else _with(bits, self._spaces)

    def is_over(self, output: Sequence[int]) -> bool:
        stage = self._stage(output)
        if stage == _OPENING and self._goes_on(output):
            return False
        if stage != _REASONING:
            return self._grammar.is_over(output)
        cue = self._cues.first_in(output)
        return cue is not None and self._grammar.is_over(self._read_behind(cue, output))

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        if self._stage(output) == _ANSWERING:
            return self._grammar.num_fitting(output, tokens)
        if self._stage(chain(output, tokens)) != _REASONING:
            text = [*output, *tokens]
            num_fitting = self._grammar.num_fitting((), text)
            return max(self._num_opening(text), num_fitting) - len(output)
        cue = self._cues.first_in(output, tokens)
        if cue is None:
            return len(tokens)
        behind, rest, num_free = self._split(cue, output, tokens)
        return num_free + self._grammar.num_fitting(behind, rest)

    def _stage(self, tokens: Iterable[int]) -> int:
        """Known by the first few of them. `_OPENING` may yet become either."""
        text = b""
        if not self._opens:
            return _REASONING
        for token in tokens:
            text = (text + self._spell(token)).lstrip()
            if text.startswith(self._opens):
                return _REASONING
            if not self._opens.startswith(text):
                return _ANSWERING
        return _OPENING

    def _goes_on(self, output: Sequence[int]) -> Sequence[int]:
        """The next token of the first mark, where `output` is its beginning."""
        num = len(output)
        return self._opening[num : num + 1] if self._num_opening(output) == num else ()

    def _fits(self, tokens: Sequence[int]) -> bool:
        return self._grammar.num_fitting((), tokens) == len(tokens)

    def _num_opening(self, tokens: Sequence[int]) -> int:
        """Of the tokens that the first mark is written with."""
        pairs = zip(tokens, self._opening, strict=False)
        return next((idx for idx, (one, other) in enumerate(pairs) if one != other), len(tokens))

    def _split(
        self, cue: Cue, output: Sequence[int], more: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int], int]:
        """What `grammar` reads of `output`, what of `more`, and how much of that it does not."""
        num_free = max(0, cue.num - len(output))
        if cue.num >= len(output) and not cue.tokens:
            num_free += self._is_space(more[num_free : num_free + 1])
        return self._read_behind(cue, output), more[num_free:], num_free

    def _read_behind(self, cue: Cue, output: Sequence[int]) -> Sequence[int]:
        """A list that grows as the output does."""
        is_known = output is self._growing and cue is self._cue and self._num_read > cue.num
        if is_known and self._num_read <= len(output):
            self._behind += output[self._num_read :]
        else:
            num = cue.num
            if not cue.tokens:
                num += self._is_space(output[num : num + 1])
            self._behind = [*cue.tokens, *output[num:]]
            self._growing, self._cue = output, cue
        self._num_read = len(output)
        return self._behind

    def _is_space(self, tokens: Sequence[int]) -> bool:
        """Whether there is a token, of space alone."""
        return len(tokens) > 0 and self._spell(tokens[0]).isspace()

    def _begun(self, text: bytes) -> Sequence[int] | None:
        """What is behind the second mark in the token that ends it."""
        tokens = self._read(text[len(self._closes) :].lstrip())
        return tokens if self._fits(tokens) else None


def _with(bits: bytes, tokens: Iterable[int]) -> bytes:
    found = bytearray(bits)
    for token in tokens:
        found.extend(bytes(max(0, token // 8 + 1 - len(found))))
        found[token // 8] |= 1 << token % 8
    return bytes(found)
