"""The same text in other tokens: a model need not spell a word as its tokenizer would."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final

Spell = Callable[[int], bytes]

_MAX_TOKENS: Final = 8  # of a word, or what else is spelled


class Spelled(Enum):
    SAME = auto()
    PART = auto()  # so far: one is the other's beginning
    OTHER = auto()


def compare(
    prediction: Sequence[int], start: int, tokens: Sequence[int], spell: Spell
) -> tuple[Spelled, int]:
    """Whether `tokens` spell what the prediction has from `start` on, and where that ends."""
    came, there, end = b"".join(map(spell, tokens)), b"", start
    while len(there) < len(came) and end < len(prediction):
        there += spell(prediction[end])
        end += 1
    if came and came == there:
        return Spelled.SAME, end
    is_part = there.startswith(came) and len(tokens) < _MAX_TOKENS
    return (Spelled.PART if is_part else Spelled.OTHER), end


def respelled(
    prediction: Sequence[int], word: Sequence[int], tokens: Sequence[int], starts: Iterable[int]
) -> list[int] | None:
    """The prediction with `tokens` wherever it has `word` at one of `starts`, which ascend; None
    if it has it at none."""
    found, done = list[int](), 0
    for start in starts:
        if start >= done and list(prediction[start : start + len(word)]) == list(word):
            found += [*prediction[done:start], *tokens]
            done = start + len(word)
    return [*found, *prediction[done:]] if done else None
