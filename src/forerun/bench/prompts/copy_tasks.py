"""Tasks whose answer mostly repeats the prompt: edit code, repeat with one change, extract."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from random import Random
from typing import Final

from forerun.bench.prompts.data_files import endlessly, read_rows

Task = tuple[str, str]  # a name, and what the user says

_VERBS: Final = ("compute", "find", "handle", "process", "resolve", "derive")
_WORDS: Final = ("lantern", "meadow", "harbour", "willow", "copper", "granite")
_NAMES: Final = ("Ada Brandt", "Luis Ortega", "Mei Tanaka", "Omar Haddad", "Nora Lindqvist")
_CITIES: Final = ("Lisbon", "Oslo", "Kyoto", "Cairo", "Quito", "Tallinn")
_NUM_FUNCTIONS: Final = 3  # in a file to edit: about 200 tokens
_MAX_REPEATED: Final = 560  # characters: an answer of about 130 tokens


def edit_code(random: Random) -> Iterator[Task]:
    """Rename a function; the rest of the code stays as it is."""
    rows = endlessly(read_rows("functions"), random)
    while True:
        chosen = [next(rows) for _ in range(_NUM_FUNCTIONS)]
        old = chosen[0]["entry_point"]
        new = f"{random.choice(_VERBS)}_{old}"
        code = "\n\n\n".join(_without_docstring(row["code"]) for row in chosen)
        yield (
            f"{chosen[0]['name']}-as-{new}-{random.randrange(10**6):06d}",
            f"Repeat this code word for word, but write `{new}` instead of `{old}`."
            f"\n\n```python\n{code}\n```",
        )


def repeat_with_change(random: Random) -> Iterator[Task]:
    """A passage word for word, but for one word."""
    for row in endlessly(read_rows("articles"), random):
        passage = _first_sentences(row["text"])
        old = random.choice(sorted(set(re.findall(r"\b[a-z]{6,}\b", passage))))
        new = random.choice(_WORDS)
        yield (
            f"{row['name']}-{old}-{new}",
            f"Repeat the following text word for word, but write '{new}' instead of '{old}'."
            f"\n\n{passage}",
        )


def extract(random: Random) -> Iterator[Task]:
    """The lines of a list that mention one city, copied."""
    while True:
        city = random.choice(_CITIES)
        lines = [_order(random, random.choice(_CITIES)) for _ in range(9)]
        lines += [_order(random, city) for _ in range(3)]
        random.shuffle(lines)
        yield (
            f"orders-from-{city.lower()}-{random.randrange(10**6):06d}",
            f"Here is a list of orders.\n\n{chr(10).join(lines)}\n\n"
            f"Copy all lines from {city}, word for word.",
        )


def _order(random: Random, city: str) -> str:
    return (
        f"- order {random.randrange(10_000, 99_999)}: {random.choice(_NAMES)}, {city}, "
        f"{random.randrange(1, 9)} boxes of {random.choice(_WORDS)}, "
        f"due 2026-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}"
    )


def _without_docstring(code: str) -> str:
    """The functions alone: a docstring that states the task invites small models to solve it."""
    module = ast.parse(code)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if ast.get_docstring(function) is not None:
            function.body = function.body[1:]
    return "\n\n\n".join(map(ast.unparse, functions))


def _first_sentences(text: str) -> str:
    kept = text[:_MAX_REPEATED]
    end = kept.rfind(". ")
    return kept[: end + 1] if end > 0 else kept
