"""The form that one request's answer must have, validated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import InvalidOption
from forerun.option_checks import is_unicode, known_keywords, require, require_fields

_KINDS: Final = ("json", "json_object", "regex", "choice", "grammar")


@known_keywords
@dataclass(frozen=True)
class StructuredOutputsParams:
    """One of five kinds of constraint; names as in vLLM.

    json            a JSON schema, as a mapping or its text
    json_object     True: any JSON object
    regex           a regular expression, in the syntax of Rust's `regex`
    choice          one of these texts
    grammar         a context-free grammar, as Lark or as llama.cpp's GBNF

    Between the parts of JSON there may be a newline and spaces, unless `disable_any_whitespace`;
    `whitespace_pattern` is a regular expression to use instead.

    With `triggers`, an answer is free until one of these texts occurs; from the first character of
    the trigger on, it must match `grammar` or `regex`. With `reasoning`, a pair of texts, an answer
    may begin with the first and is then free until the second; only what follows is constrained. An
    answer that does not begin so is constrained from its start. The first text is empty if the
    prompt ends with it already.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None
    triggers: tuple[str, ...] | None = None
    reasoning: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        given = [name for name in _KINDS if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise InvalidOption(
                f"structured_outputs needs just one of {', '.join(_KINDS)}; given: "
                f"{' and '.join(given) or 'none'}."
            )
        self._check_json()
        self._complete("triggers")
        if self.triggers and given[0] not in ("grammar", "regex"):
            raise InvalidOption(
                f"structured_outputs has triggers, which go with grammar or regex, and "
                f"{given[0]}; drop one."
            )
        for name in ("regex", "grammar", "whitespace_pattern"):
            text = getattr(self, name)
            good = text is None or (isinstance(text, str) and is_unicode(text))
            require(good, f"structured_outputs.{name}", text, "a text")
        self._complete("choice")
        self._check_reasoning()
        for name in ("json_object", "disable_any_whitespace"):
            value = getattr(self, name)
            good = value is None or isinstance(value, bool)
            require(good, f"structured_outputs.{name}", value, "true or false")
        is_spaced = self.whitespace_pattern is not None
        if self.disable_any_whitespace and is_spaced:
            raise InvalidOption(
                "structured_outputs has both disable_any_whitespace and whitespace_pattern; "
                "give one."
            )
        if (self.disable_any_whitespace or is_spaced) and given[0] not in ("json", "json_object"):
            raise InvalidOption(
                f"structured_outputs says how JSON is spaced, and has {given[0]}; drop one."
            )

    def _check_json(self) -> None:
        """Keep the schema as text, so that a mapping may be changed afterwards."""
        schema: Any = self.json
        if schema is None:
            return
        found, why = None, "it is no object"
        try:
            found = json.loads(schema) if isinstance(schema, str) else schema
            text = json.dumps(found, default=_as_dict, allow_nan=False)
        except RecursionError:
            raise InvalidOption("structured_outputs.json is nested too deep; flatten it.") from None
        except (TypeError, ValueError) as error:
            found, why = None, str(error)
        if not isinstance(found, Mapping):
            raise InvalidOption(
                f"structured_outputs.json is no JSON schema ({why}); give a mapping, or its text."
            )
        object.__setattr__(self, "json", text)  # a frozen value is completed

    def _check_reasoning(self) -> None:
        marks: Any = self.reasoning
        if marks is None:
            return
        good = isinstance(marks, list | tuple) and len(marks) == 2
        good = good and all(isinstance(mark, str) and is_unicode(mark) for mark in marks)
        wanted = "two texts, of which the second is not empty"
        require(good and marks[1] != "", "structured_outputs.reasoning", marks, wanted)
        object.__setattr__(self, "reasoning", tuple(marks))  # a frozen value is completed

    def _complete(self, name: str) -> None:
        """Check a list of texts, and make it a tuple."""
        texts: Any = getattr(self, name)
        if texts is None:
            return
        good = isinstance(texts, list | tuple) and len(texts) > 0
        good = good and all(isinstance(t, str) and t and is_unicode(t) for t in texts)
        require(good, f"structured_outputs.{name}", texts, "a list of texts, none of them empty")
        object.__setattr__(self, name, tuple(texts))  # a frozen value is completed

    @classmethod
    def of(cls, given: Any) -> StructuredOutputsParams | None:
        """Build from what a caller gave; an unknown name raises and suggests the nearest one."""
        if given is None or isinstance(given, cls):
            return given
        require_fields("structured_outputs option", cls, given)
        return cls(**given)


def _as_dict(value: Any) -> dict[Any, Any]:
    """Turn any mapping into a dict, the only one that `json` writes."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
