"""A grammar that binds after a model's reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from forerun.grammars.cues import Behind, Cue, Cues
from forerun.types import Grammar

_OPENING, _REASONING, _ANSWERING = range(3)
_SPACES = (b"\n\n", b"\n", b" ")


class BehindReasoning:
    """A `Grammar` of an answer that may begin with reasoning, which is between two `marks`.

    Reasoning is unconstrained. What follows it, or comes instead of it, must fit `grammar`; one
    token of white space may come in between. An empty first mark means that the prompt has opened
    the reasoning. `spell` returns a token's bytes, and `read` the tokens of any bytes.
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
        self._behind = Behind()
        self._looked: Sequence[int] | None = None  # the last output
        self._num_looked, self._begins = 0, b""  # its tokens read so far, and what they spell

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        if self._stage(output, more) != _REASONING:
            return self._grammar.binds(output, more)
        cue = self._cues.first_in(output, more)
        if cue is None:
            return False
        behind, rest = self._split(cue, output, more)
        return self._grammar.binds(behind, rest)

    def may_loosen(self, output: Sequence[int]) -> bool:
        return self._stage(output) == _OPENING

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        stage = self._stage(output, more)
        if stage == _ANSWERING:
            return self._grammar.allowed_bits(output, more)
        if stage == _OPENING:
            text = (*output, *more)
            bits = self._grammar.allowed_bits(text) if self._fits(text) else b""
            return _with(bits, self._goes_on(text))
        cue = self._cues.first_in(output, more)
        assert cue is not None, "asked where it does not bind"
        bits = self._grammar.allowed_bits(*self._split(cue, output, more))
        is_first = not cue.tokens and cue.num == len(output) + len(more)
        return _with(bits, self._spaces) if is_first else bits

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        stage = self._stage(output, more)
        if stage == _OPENING and self._goes_on((*output, *more)):
            return False
        if stage != _REASONING:
            return self._grammar.is_over(output, more)
        cue = self._cues.first_in(output, more)
        return cue is not None and self._grammar.is_over(*self._split(cue, output, more))

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        if self._stage(output) == _ANSWERING:
            return self._grammar.num_fitting(output, tokens)
        if self._stage(output, tokens) != _REASONING:
            text = (*output, *tokens)
            num_fitting = self._grammar.num_fitting((), text)
            return max(self._num_opening(text), num_fitting) - len(output)
        cue = self._cues.first_in(output, tokens)
        if cue is None:
            return len(tokens)
        behind, rest = self._split(cue, output, tokens)
        return len(tokens) - len(rest) + self._grammar.num_fitting(behind, rest)

    def _stage(self, output: Sequence[int], more: Sequence[int] = ()) -> int:
        """Return the stage, which the first few tokens decide; `_OPENING` is still undecided."""
        if output is not self._looked:
            self._looked, self._num_looked, self._begins = output, 0, b""
        while (stage := self._stage_of(self._begins)) == _OPENING:
            if self._num_looked == len(output):
                break
            self._begins = (self._begins + self._spell(output[self._num_looked])).lstrip()
            self._num_looked += 1
        begins = self._begins
        for token in more if stage == _OPENING else ():
            begins = (begins + self._spell(token)).lstrip()
            if (stage := self._stage_of(begins)) != _OPENING:
                break
        return stage

    def _stage_of(self, begins: bytes) -> int:
        if begins.startswith(self._opens):
            return _REASONING
        return _OPENING if self._opens.startswith(begins) else _ANSWERING

    def _goes_on(self, output: Sequence[int]) -> Sequence[int]:
        """Return the next token of the first mark if `output` is its beginning, else none."""
        num = len(output)
        return self._opening[num : num + 1] if self._num_opening(output) == num else ()

    def _fits(self, tokens: Sequence[int]) -> bool:
        return self._grammar.num_fitting((), tokens) == len(tokens)

    def _num_opening(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens`, from the first on, are those of the first mark."""
        pairs = zip(tokens, self._opening, strict=False)
        return next((idx for idx, (one, other) in enumerate(pairs) if one != other), len(tokens))

    def _split(
        self, cue: Cue, output: Sequence[int], more: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the parts of `output` and `more` that `grammar` reads: those after the cue."""
        num_free, num_skipped = max(0, cue.num - len(output)), 0
        if not cue.tokens:
            if cue.num < len(output):
                num_skipped = self._is_space(output[cue.num])
            elif num_free < len(more):
                num_free += self._is_space(more[num_free])
        return self._behind.of(output, cue, num_skipped), more[num_free:]

    def _is_space(self, token: int) -> bool:
        return self._spell(token).isspace()

    def _begun(self, text: bytes) -> Sequence[int] | None:
        """Return what follows the second mark in the token that completes it, as tokens; None if
        it does not fit."""
        tokens = self._read(text[len(self._closes) :].lstrip())
        return tokens if self._fits(tokens) else None


def _with(bits: bytes, tokens: Iterable[int]) -> bytes:
    found = bytearray(bits)
    for token in tokens:
        found.extend(bytes(max(0, token // 8 + 1 - len(found))))
        found[token // 8] |= 1 << token % 8
    return bytes(found)
