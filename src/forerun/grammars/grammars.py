"""The grammars of one vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from forerun.errors import MissingExtra
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import Grammar, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from forerun.grammars.matched import MatchedGrammar

# Compiled grammars that are kept, as callers send the same schema again and again: so many, and so
# many characters in all.
_MAX_KEPT, _MAX_CHARACTERS = 64, 1 << 20


class Grammars:
    """Compiled when they are first asked for, and kept for a while; any thread may ask."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()

    def of(self, wanted: StructuredOutputsParams | None) -> Grammar | None:
        """One for a request; raises `InvalidGrammar` where it cannot be used."""
        if wanted is None:
            return None
        _need_llguidance()
        from forerun.grammars.behind_reasoning import BehindReasoning
        from forerun.grammars.triggered import TriggeredGrammar

        grammar: Grammar = self._matched(wanted)
        assert self._vocabulary is not None
        spell, read = self._spell, self._vocabulary.tokenize_bytes
        if wanted.triggers:
            grammar = TriggeredGrammar(grammar, wanted.triggers, spell, read)
        if wanted.reasoning is not None:
            grammar = BehindReasoning(grammar, wanted.reasoning, spell, read)
        return grammar

    def check(self, wanted: StructuredOutputsParams) -> None:
        """Raise what `of` would; nothing is kept of it."""
        _need_llguidance()
        from forerun.grammars import description
        from forerun.grammars.matched import MatchedGrammar

        text, kind = description.described(wanted), description.kind_of(wanted)
        compile_it = partial(self._compiled, text)
        MatchedGrammar(compile_it(), compile_it, kind).allowed_bits(())

    def _matched(self, wanted: StructuredOutputsParams) -> MatchedGrammar:
        from forerun.grammars import description
        from forerun.grammars.matched import MatchedGrammar

        text, kind = description.described(wanted), description.kind_of(wanted)
        with self._lock:
            kept = self._kept.get(text)
            if kept is not None:
                self._kept.move_to_end(text)
        renew = partial(self._renewed, text)
        grammar = MatchedGrammar((kept or renew()).deep_copy(), renew, kind)
        if kept is None:
            grammar.allowed_bits(())  # the first step of some takes too long
        return grammar

    def _spell(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token, skip_special=False)

    def _renewed(self, text: str) -> LLMatcher:
        """Anew: copies share what they learnt of the text's expressions, and its limits."""
        matcher = self._compiled(text)
        if not matcher.is_error():
            with self._lock:
                self._kept[text] = matcher
                self._kept.move_to_end(text)
                while len(self._kept) > _MAX_KEPT or sum(map(len, self._kept)) > _MAX_CHARACTERS:
                    self._kept.popitem(last=False)
        return matcher

    def _compiled(self, text: str) -> LLMatcher:
        from llguidance import LLMatcher

        from forerun.grammars.vocabulary import vocabulary

        if self._vocabulary is None:
            self._vocabulary = vocabulary(self._tokenizer)
        return LLMatcher(self._vocabulary, text, log_level=0, limits=_limits())


def _need_llguidance() -> None:
    if find_spec("llguidance") is None:
        raise MissingExtra("structured_outputs", "structured")


def _limits() -> Any:
    """A step may take a few hundredths of a second: all requests wait for it."""
    from llguidance import LLParserLimits

    return LLParserLimits(max_items_in_row=10_000, step_lexer_fuel=100_000, verbose_errors=False)
