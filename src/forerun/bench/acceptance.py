"""Tokens per pass (τ) over a file of questions, class by class, as the engine serves them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.files import MAX_TEXT_BYTES, read_text
from forerun.types import SamplingParams

# Spec-Bench (Xia et al. 2024) treats MT-bench's classes as one.
_MT_BENCH: Final = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)


@dataclass(frozen=True)
class Question:
    category: str
    turns: tuple[str, ...]


def read_questions(path: Path) -> list[Question]:
    """Read JSON lines with `category` and `turns`, as in Spec-Bench."""
    try:
        rows = [json.loads(line) for line in read_text(path, MAX_TEXT_BYTES).splitlines() if line]
        found = [Question(str(row["category"]), tuple(map(str, row["turns"]))) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidOption(
            f'cannot read {path} ({error}); give JSON lines with "category" and "turns".'
        ) from None
    if not found or not all(question.turns for question in found):
        raise InvalidOption(f"{path} has a question without turns, or none; give some of each.")
    return [Question("mt_bench" if q.category in _MT_BENCH else q.category, q.turns) for q in found]


def by_class(questions: Sequence[Question], num: int | None) -> dict[str, list[Question]]:
    """Return the first `num` questions of each class, in the order of the file."""
    found: dict[str, list[Question]] = {}
    for question in questions:
        found.setdefault(question.category, []).append(question)
    return {category: rows[:num] for category, rows in found.items()}


def tokens_a_pass(
    llm: LLM, classes: dict[str, list[Question]], params: Sequence[SamplingParams]
) -> Iterator[dict[str, Any]]:
    """Yield a row per class and per item of `params`, over all turns; each turn starts uncached."""
    for options in params:
        for category, questions in classes.items():
            stats = [each for answers in _answers(llm, questions, options) for each in answers]
            num_tokens = sum(each["emitted_tokens"] for each in stats)
            num_passes = sum(each["target_passes"] for each in stats)
            yield {
                "class": category,
                "temperature": options.temperature,
                "num_answers": len(stats),
                "num_tokens": num_tokens,
                "num_passes": num_passes,
                "num_guesses": sum(each["draft_tokens"] for each in stats),
                "tokens_per_pass": num_tokens / max(1, num_passes),
            }


def _answers(
    llm: LLM, questions: Sequence[Question], params: SamplingParams
) -> Iterator[list[dict[str, Any]]]:
    """Yield the stats of the answers to all first turns, then to all second turns, and so on."""
    talks: list[list[dict[str, str]]] = [[] for _ in questions]
    for turn in range(max(len(question.turns) for question in questions)):
        going = [idx for idx, question in enumerate(questions) if turn < len(question.turns)]
        for idx in going:
            talks[idx].append({"role": "user", "content": questions[idx].turns[turn]})
        llm.reset_prefix_cache()
        found = llm.chat([talks[idx] for idx in going], params)
        for idx, answer in zip(going, found, strict=True):
            talks[idx].append({"role": "assistant", "content": answer.outputs[0].text})
        yield [answer.outputs[0].stats for answer in found]
