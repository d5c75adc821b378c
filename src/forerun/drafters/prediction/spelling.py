"""The same text in other tokens: a model may spell a word otherwise than its tokenizer does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Final

Spell = Callable[[int], bytes]

_MAX_TOKENS: Final = 8  # after so many tokens without an end, the texts count as different


class Spelled(Enum):
    SAME = auto()
    PART = auto()  # undecided: what came is the beginning of what was predicted
    OTHER = auto()


def compare(
    prediction: Sequence[int], start: int, tokens: Sequence[int], spell: Spell
) -> tuple[Spelled, int]:
    """Return whether `tokens` spell the prediction from `start` on, and the end of that part."""
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
    """Return the prediction with `word` replaced by `tokens` at those of `starts` where it occurs.

    `starts` ascend. None if it occurs at none."""
    found, done = list[int](), 0
    for start in starts:
        if start >= done and list(prediction[start : start + len(word)]) == list(word):
            found += [*prediction[done:start], *tokens]
            done = start + len(word)
    return [*found, *prediction[done:]] if done else None
