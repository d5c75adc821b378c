"""The grammars of one vocabulary: compiled, kept, and tried first where callers are not trusted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from forerun.errors import GrammarTooMuch, InvalidGrammar, MissingExtra
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import Grammar, StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from forerun.grammars.matched import MatchedGrammar, Source
    from forerun.grammars.trial import Trial

# Bounds on the compiled grammars that are kept, since callers often send the same schema again:
# their number, their characters, and the seconds of compiling them, with which their memory grows.
_MAX_KEPT, _MAX_CHARACTERS, _MAX_SECONDS = 64, 1 << 20, 2.0
# A step may take a few hundredths of a second: all requests wait for it.
_LIMITS: Final[dict[str, Any]] = {
    "max_items_in_row": 10_000,
    "step_lexer_fuel": 100_000,
    "verbose_errors": False,
}
_Key = tuple[str, bool]  # a grammar's text, and whether special tokens are shown


class Grammars:
    """Compiles grammars when they are first needed, and keeps them for a while; thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._vocabularies: dict[bool, LLTokenizer] = {}  # by whether special tokens are shown
        self._kept: OrderedDict[_Key, Source] = OrderedDict()
        self._trial: Trial | None = None
        self._is_tried = False

    def try_first(self) -> None:
        """Try each new grammar in another process first, and refuse what would be too much here.

        For callers who are not trusted."""
        self._is_tried = True

    def interrupt(self) -> None:
        """Refuse the grammar that is being tried, so that nothing waits for the trial."""
        if self._trial is not None:
            self._trial.interrupt()

    def of(
        self, wanted: StructuredOutputsParams | None, *, shows_special: bool = False
    ) -> Grammar | None:
        """Return a request's grammar; raises `InvalidGrammar` if it cannot be used.

        `shows_special`: whether the request's text has its special tokens."""
        if wanted is None:
            return None
        _need_llguidance()
        from forerun.grammars.behind_reasoning import BehindReasoning
        from forerun.grammars.triggered import TriggeredGrammar

        grammar: Grammar = self._matched(wanted, shows_special=shows_special)
        spell = partial(self._tokenizer.token_bytes, skip_special=not shows_special)
        read = self._vocabulary(shows_special).tokenize_bytes
        if wanted.triggers:
            grammar = TriggeredGrammar(grammar, wanted.triggers, spell, read)
        if wanted.reasoning is not None:
            grammar = BehindReasoning(grammar, wanted.reasoning, spell, read)
        return grammar

    @property
    def seconds(self) -> float:
        """CPU seconds that trials have taken so far."""
        return 0.0 if self._trial is None else self._trial.seconds

    def check(self, wanted: StructuredOutputsParams) -> None:
        """Raise what `of` would raise; the compiled grammar is not kept."""
        _need_llguidance()
        from forerun.grammars import description
        from forerun.grammars.matched import Source

        text, kind = description.described(wanted), description.kind_of(wanted)
        if self._is_tried:
            self._try(text, kind, is_looked_at=True)
            return
        Source(partial(self._compiled, (text, True)), kind)

    def _matched(self, wanted: StructuredOutputsParams, *, shows_special: bool) -> MatchedGrammar:
        from forerun.grammars import description
        from forerun.grammars.matched import MatchedGrammar, Source

        text, kind = description.described(wanted), description.kind_of(wanted)
        key = text, shows_special
        with self._lock:
            kept = self._kept.get(key)
        if kept is None and self._is_tried:
            self._try(text, kind)
        source = kept or Source(partial(self._compiled, key), kind)
        self._keep(key, source)
        return MatchedGrammar(source, self._tokenizer.eos_ids)

    def _try(self, text: str, kind: str, *, is_looked_at: bool = False) -> None:
        from forerun.grammars.trial import TOO_LONG, TOO_MUCH, Trial
        from forerun.grammars.vocabulary import told

        with self._lock:
            if self._trial is None:
                self._trial = Trial(told(self._tokenizer), _LIMITS)
        if complaint := self._trial.complaint(text, is_looked_at=is_looked_at):
            is_much = complaint in (TOO_LONG, TOO_MUCH)
            raise (GrammarTooMuch if is_much else InvalidGrammar).because(kind, complaint)

    def _keep(self, key: _Key, source: Source) -> None:
        with self._lock:
            self._kept[key] = source
            self._kept.move_to_end(key)
            while not _may_be_kept(self._kept):
                self._kept.popitem(last=False)

    def _compiled(self, key: _Key) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        text, shows_special = key
        limits = LLParserLimits(**_LIMITS)
        return LLMatcher(self._vocabulary(shows_special), text, log_level=0, limits=limits)

    def _vocabulary(self, shows_special: bool) -> LLTokenizer:
        """Return the vocabulary: one for both values if no special token is text."""
        from forerun.grammars.vocabulary import vocabulary

        shows_special = shows_special and self._has_spoken_special
        found = self._vocabularies.get(shows_special)
        if found is None:
            found = vocabulary(self._tokenizer, shows_special=shows_special)
            self._vocabularies[shows_special] = found
        return found

    @cached_property
    def _has_spoken_special(self) -> bool:
        from forerun.grammars.vocabulary import spoken_special

        return bool(spoken_special(self._tokenizer))


def _need_llguidance() -> None:
    if find_spec("llguidance") is None:
        raise MissingExtra("structured_outputs", "structured")


def _may_be_kept(sources: Mapping[_Key, Source]) -> bool:
    num_characters = sum([len(text) for text, _ in sources])
    seconds = sum([source.seconds for source in sources.values()])
    is_few = len(sources) <= _MAX_KEPT and num_characters <= _MAX_CHARACTERS
    return is_few and seconds <= _MAX_SECONDS
