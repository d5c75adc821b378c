"""The marks that model families write around their reasoning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from forerun.models.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ReasoningMarks:
    """The texts between which a model reasons.

    `is_certain`: an answer begins with reasoning even if neither prompt nor model writes `opens`.
    `is_special`: a mark is a special token, which texts leave out unless asked."""

    opens: str
    closes: str
    is_certain: bool = False
    is_special: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, parser: str | None) -> ReasoningMarks | None:
        """Return the marks of a parser, or without one those in the chat template; None if the
        template has none or the parser is "none"."""
        template = tokenizer.chat_template or ""
        if parser is None:
            known = (marks for marks in PARSERS.values() if marks is not None)
            found = next((marks for marks in known if marks.closes in template), None)
        else:
            found = PARSERS[parser]
        special = set(map(tokenizer.token, tokenizer.special_ids))
        return found and replace(found, is_special=bool({found.opens, found.closes} & special))


# By vLLM's names of the parsers.
PARSERS: Final[dict[str, ReasoningMarks | None]] = {
    "qwen3": ReasoningMarks("<think>", "</think>"),
    "deepseek_r1": ReasoningMarks("<think>", "</think>", is_certain=True),
    "mistral": ReasoningMarks("[THINK]", "[/THINK]"),
    "none": None,
}
