"""What one request's answer must look like, validated."""

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
    """One of five: names as in vLLM.

    json            a JSON schema, as a mapping or its text
    json_object     True: any JSON object
    regex           a regular expression, in the syntax of Rust's `regex`
    choice          one of these texts
    grammar         a context-free grammar, as Lark or as llama.cpp's GBNF

    Between the parts of JSON there may be a line's end and some space, unless
    `disable_any_whitespace`; `whitespace_pattern` is another regular expression for it.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in _KINDS if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise InvalidOption(
                f"structured_outputs needs one of {', '.join(_KINDS)}; "
                f"{' and '.join(given) if given else 'none'} is given."
            )
        self._check_json()
        for name in ("regex", "grammar", "whitespace_pattern"):
            text = getattr(self, name)
            good = text is None or (isinstance(text, str) and is_unicode(text))
            require(good, f"structured_outputs.{name}", text, "a text")
        self._check_choice()
        for name in ("json_object", "disable_any_whitespace"):
            value = getattr(self, name)
            good = value is None or isinstance(value, bool)
            require(good, f"structured_outputs.{name}", value, "true or false")
        if self.disable_any_whitespace and self.whitespace_pattern is not None:
            raise InvalidOption(
                "structured_outputs has both disable_any_whitespace and whitespace_pattern; "
                "give one."
            )

    def _check_json(self) -> None:
        schema = self.json
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError):
                schema = None
            require(schema is not None, "structured_outputs.json", self.json, "a JSON schema")
        good = schema is None or isinstance(schema, Mapping)
        require(good, "structured_outputs.json", self.json, "a JSON schema: an object")

    def _check_choice(self) -> None:
        texts: Any = self.choice
        if texts is None:
            return
        good = isinstance(texts, list | tuple) and len(texts) > 0
        good = good and all(isinstance(t, str) and t and is_unicode(t) for t in texts)
        require(good, "structured_outputs.choice", texts, "a list of texts, none of them empty")
        object.__setattr__(self, "choice", tuple(texts))  # a frozen value is completed

    @classmethod
    def of(cls, given: Any) -> StructuredOutputsParams | None:
        """From what a caller gave; an unknown name raises and points at the nearest valid one."""
        if given is None or isinstance(given, cls):
            return given
        require_fields("structured_outputs option", cls, given)
        return cls(**given)
