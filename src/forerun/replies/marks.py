"""How families of models mark what they reason before they answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from forerun.models.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ReasoningMarks:
    """Reasoning stands between these. `is_certain`: there is some even where nobody writes `opens`.
    `is_special`: they are special tokens, which texts leave out."""

    opens: str
    closes: str
    is_certain: bool = False
    is_special: bool = False

    @classmethod
    def of(cls, tokenizer: Tokenizer, parser: str | None) -> ReasoningMarks | None:
        """Those of a parser, or those that the chat template shows; None: the model has none, or
        nobody wants to tell its reasoning apart."""
        template = tokenizer.chat_template or ""
        if parser is None:
            known = (marks for marks in PARSERS.values() if marks is not None)
            found = next((marks for marks in known if marks.closes in template), None)
        else:
            found = PARSERS[parser]
        special = set(map(tokenizer.token, tokenizer.special_ids))
        return found and replace(found, is_special=bool({found.opens, found.closes} & special))


# By the names that vLLM gives their parsers.
PARSERS: Final[dict[str, ReasoningMarks | None]] = {
    "qwen3": ReasoningMarks("<think>", "</think>"),
    "deepseek_r1": ReasoningMarks("<think>", "</think>", is_certain=True),
    "mistral": ReasoningMarks("[THINK]", "[/THINK]"),
    "none": None,
}
