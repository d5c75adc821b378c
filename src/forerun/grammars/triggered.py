"""A grammar that binds once a trigger is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from forerun.grammars.cues import Behind, Cue, Cues
from forerun.types import Grammar


class TriggeredGrammar:
    """A `Grammar` that does not bind until one of `triggers` is written.

    From the trigger's first character on, the text must fit `grammar`. A trigger is ignored if it
    does not fit, together with whatever else its last token spells. `spell` returns a token's
    bytes, and `read` the tokens of any bytes.
    """

    def __init__(
        self,
        grammar: Grammar,
        triggers: Sequence[str],
        spell: Callable[[int], bytes],
        read: Callable[[bytes], Sequence[int]],
    ) -> None:
        self._grammar = grammar
        self._read = read
        self._cues = Cues(triggers, spell, self._begun)
        self._behind = Behind()

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return self._cues.first_in(output, more) is not None

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        cue = self._cues.first_in(output, more)
        assert cue is not None, "asked where it does not bind"
        return self._grammar.allowed_bits(*self._split(cue, output, more))

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        cue = self._cues.first_in(output, more)
        return cue is not None and self._grammar.is_over(*self._split(cue, output, more))

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        cue = self._cues.first_in(output, tokens)
        if cue is None:
            return len(tokens)
        behind, rest = self._split(cue, output, tokens)
        return len(tokens) - len(rest) + self._grammar.num_fitting(behind, rest)

    def _split(
        self, cue: Cue, output: Sequence[int], more: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the parts of `output` and `more` that the grammar reads: those after the cue."""
        return self._behind.of(output, cue), more[max(0, cue.num - len(output)) :]

    def _begun(self, text: bytes) -> Sequence[int] | None:
        tokens = self._read(text)
        return tokens if self._grammar.num_fitting((), tokens) == len(tokens) else None
