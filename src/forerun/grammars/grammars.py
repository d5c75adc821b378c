"""The grammars of one vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from forerun.errors import MissingExtra
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import Grammar, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from forerun.grammars.matched import MatchedGrammar

_MAX_KEPT: Final = 64  # compiled grammars: callers send the same schema again and again


class Grammars:
    """Compiled when they are first asked for, and kept for a while; any thread may ask.

    `vocab_size` is the model's, which may have more ids than its tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._lock = Lock()
        self._vocabulary: LLTokenizer | None = None
        self._kept: OrderedDict[str, MatchedGrammar] = OrderedDict()

    def of(self, wanted: StructuredOutputsParams | None) -> Grammar | None:
        """One for a request; raises `InvalidGrammar` where it cannot be used."""
        if wanted is None:
            return None
        if find_spec("llguidance") is None:
            raise MissingExtra("structured_outputs", "structured")
        from forerun.grammars import description

        text = description.described(wanted)
        with self._lock:
            kept = self._kept.get(text)
            if kept is None:
                kept = self._kept[text] = self._compiled(text, description.kind_of(wanted))
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(text)
            return kept.fresh()

    def _compiled(self, text: str, kind: str) -> MatchedGrammar:
        from llguidance import LLMatcher

        from forerun.grammars.matched import MatchedGrammar
        from forerun.grammars.vocabulary import vocabulary

        if self._vocabulary is None:
            self._vocabulary = vocabulary(self._tokenizer)
        matcher = LLMatcher(self._vocabulary, text, log_level=0, limits=_limits())
        grammar = MatchedGrammar(matcher, self._vocab_size, kind)
        grammar.fresh().allowed(())  # the first step of some takes too long
        return grammar


def _limits() -> Any:
    """A step may take a few hundredths of a second: all requests wait for it."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        max_items_in_row=10_000,
        step_lexer_fuel=100_000,
        step_max_items=20_000,
        verbose_errors=False,
    )
