"""Structured-output options as grammar texts for llguidance."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from llguidance import LLMatcher, grammar_from
from llguidance.gbnf_to_lark import gbnf_to_lark

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars.schemas import closed, reworded
from forerun.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# A line break with indentation, or a space. JSON allows any number of both, but a small model that
# has begun to indent may never stop.
_WHITESPACE: Final = r"(\r?\n[ \t]{0,128}|[ ])"
_MAX_LEN: Final = 1 << 17  # characters: some take 4 µs each to compile
_MOST_RULES: Final = 1000  # of GBNF
_MOST_WORK: Final = 10_000_000  # rules times characters of GBNF: a fifth of a µs each
# Possessive quantifiers: nothing is matched twice, so no text takes long. A literal that is not
# closed goes to the end of its line if the text may be GBNF, to the end of the text in Lark.
_LITERAL_OF_EITHER: Final = re.compile(
    r'"(?:[^"\\\n]|\\.)*+"?|\[(?:[^\]\\\n]|\\.)*+\]?|/(?:[^/\\\n]|\\.)++/?|(?://|#)[^\n]*',
    re.DOTALL,
)
_LITERAL: Final = re.compile(
    r'"(?:[^"\\]|\\.)*+"?i?|(?://|#)[^\n]*|/(?:[^/\\]|\\.)++/?[a-z]*', re.DOTALL
)
# Parts of llguidance's Lark that matchers cannot go back over: limits of a rule, special tokens …
_ONE_WAY: Final = re.compile(
    r"\[[^\[\]]*+\]\s*+:|[<@]|%(?!import\b|ignore\b|llguidance\s*+\{\s*+\})"
)
_SCHEMA_IN_LARK: Final = re.compile(_LITERAL.pattern + r"|%json\s*+(?=\{)", re.DOTALL)


def kind_of(wanted: StructuredOutputsParams) -> str:
    """Return what errors call the constraint."""
    if wanted.regex is not None:
        return "the regular expression"
    if wanted.choice is not None:
        return "the choice"
    return "the grammar" if wanted.grammar is not None else "the JSON schema"


@lru_cache(maxsize=32)
def described(wanted: StructuredOutputsParams) -> str:
    """Return the constraint as the text of a grammar, which is validated when it is compiled."""
    given = wanted.regex or wanted.grammar or wanted.json or "".join(wanted.choice or ())
    num_characters = len(given) + len(wanted.whitespace_pattern or "")
    if num_characters > _MAX_LEN:
        complaint = f"it has {num_characters} characters, and {_MAX_LEN} are allowed"
        raise GrammarTooMuch.because(kind_of(wanted), complaint)
    try:
        if wanted.regex is not None:
            return LLMatcher.grammar_from_regex(wanted.regex)
        if wanted.choice is not None:
            return grammar_from("choice", json.dumps(wanted.choice))
        if wanted.grammar is not None:
            return LLMatcher.grammar_from_lark(_lark(wanted.grammar))
        return LLMatcher.grammar_from_json_schema(_schema(wanted), overrides=_whitespace(wanted))
    except ValueError as error:  # not GBNF, or numbers out of bounds
        raise InvalidGrammar.because(kind_of(wanted), str(error)) from None
    except RecursionError:
        raise InvalidGrammar.because(kind_of(wanted), "it is nested too deep") from None


def _lark(grammar: str) -> str:
    one_line_end = grammar.replace("\r\n", "\n").replace("\r", "\n")
    if num_rules := _LITERAL_OF_EITHER.sub("", one_line_end).count("::="):
        grammar = one_line_end
        if num_rules > _MOST_RULES:
            raise ValueError(f"it has {num_rules} rules, and {_MOST_RULES} are allowed")
        if num_rules * len(grammar) > _MOST_WORK:
            most = _MOST_WORK // num_rules
            raise ValueError(
                f"it has {len(grammar)} characters, and {most} are allowed with {num_rules} rules"
            )
        try:
            grammar = gbnf_to_lark(grammar)
        except Exception as error:  # it raises plain ones
            raise ValueError(str(error)) from None
    grammar, rules = _with_schemas(grammar)
    if found := _ONE_WAY.search(rules):
        raise ValueError(
            f"attributes of rules, special tokens and other grammars are not supported: "
            f"{found[0].strip()!r}"
        )
    return grammar


def _with_schemas(grammar: str) -> tuple[str, str]:
    """Return Lark with the schemas after `%json` reworded, and once more without schemas and
    literals."""
    used, rules, at = "", "", 0
    while found := _SCHEMA_IN_LARK.search(grammar, at):
        before, at = grammar[at : found.start()], found.end()
        used, rules = used + before + found[0], rules + before
        if found[0].startswith("%json"):
            schema, at = json.JSONDecoder().raw_decode(grammar, at)
            schema.setdefault("x-guidance", {"whitespace_pattern": _WHITESPACE})
            used += json.dumps(reworded(schema))
    return used + grammar[at:], rules + grammar[at:]


def _schema(wanted: StructuredOutputsParams) -> str:
    if wanted.json is None:
        return '{"type": "object"}'
    assert isinstance(wanted.json, str)
    return json.dumps(reworded(closed(json.loads(wanted.json))))


def _whitespace(wanted: StructuredOutputsParams) -> JsonCompileOptions:
    if wanted.disable_any_whitespace:
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": wanted.whitespace_pattern or _WHITESPACE}
