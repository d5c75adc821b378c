"""The tasks of the workload classes.

In `edit_code`, `repeat_with_change` and `extract` answers mostly repeat the prompt; in the others
they are new text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from forerun.bench.prompts.data_files import endlessly, read_rows
from forerun.bench.prompts.named_prompts import named_prompts

Task = tuple[str, str]  # a name, and the user's message

_VERBS: Final = ("compute", "find", "handle", "process", "resolve", "derive")
_WORDS: Final = ("lantern", "meadow", "harbour", "willow", "copper", "granite")
_NAMES: Final = ("Ada Brandt", "Luis Ortega", "Mei Tanaka", "Omar Haddad", "Nora Lindqvist")
_CITIES: Final = ("Lisbon", "Oslo", "Kyoto", "Cairo", "Quito", "Tallinn")
_NUM_FUNCTIONS: Final = 3  # in a file to edit, which has about 200 tokens
_MAX_REPEATED: Final = 560  # characters: an answer of about 130 tokens
_HEROES: Final = (("fox", "Tim"), ("girl", "Lily"), ("boy", "Ben"), ("bear", "Max"), ("cat", "Sue"))
_PLACES: Final = ("near a big forest", "by the sea", "in a small house", "on a farm", "by a lake")
_FINDS: Final = ("a shiny red ball", "an old map", "a tiny bird", "a blue box", "a lost puppy")
_NUM_LONG: Final = 4  # articles in a long prompt: about 1300 tokens
RECORD_SCHEMA: Final = json.dumps(
    {
        "type": "object",
        "properties": {
            "headline": {"type": "string"},
            "topic": {"enum": ["politics", "sport", "business", "crime", "culture", "other"]},
            "place": {"type": "string"},
            "people": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "role": {"type": "string"}},
                    "required": ["name", "role"],
                    "additionalProperties": False,
                },
                "maxItems": 4,
            },
            "is_breaking_news": {"type": "boolean"},
            "summary": {"type": "string"},
        },
        "required": ["headline", "topic", "place", "people", "is_breaking_news", "summary"],
        "additionalProperties": False,
    }
)


def edit_code(random: Random) -> Iterator[Task]:
    """Yield tasks to rename a function and copy the rest of the code."""
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
    """Yield tasks to repeat a passage with one word replaced."""
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
    """Yield tasks to copy the lines of a list that mention one city."""
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
    """Return the code without docstrings: they invite small models to solve the task."""
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


def from_categories(*categories: str) -> Callable[[Random], Iterator[Task]]:
    """Return a source of the named prompts of these categories."""

    def tasks(random: Random) -> Iterator[Task]:
        prompts = [prompt for prompt in named_prompts() if prompt.category in categories]
        for prompt in endlessly(prompts, random):
            yield prompt.name, prompt.text

    return tasks


def story(random: Random) -> Iterator[Task]:
    """Yield the first lines of children's stories, to be continued as plain text."""
    while True:
        kind, name = random.choice(_HEROES)
        place, found = random.choice(_PLACES), random.choice(_FINDS)
        yield (
            f"story-{name.lower()}-{random.randrange(10**6):06d}",
            f"Once upon a time, there was a little {kind} named {name}. {name} lived {place}. "
            f"One day, {name} found {found}.",
        )


def summary(random: Random) -> Iterator[Task]:
    for row in endlessly(read_rows("articles"), random):
        yield f"{row['name']}-summary", f"Summarise in three sentences:\n\n{row['text']}"


def long_context(random: Random) -> Iterator[Task]:
    """Yield prompts of several articles and a question about one of them."""
    articles = read_rows("articles")
    while True:
        chosen = random.sample(articles, _NUM_LONG)
        asked = random.randrange(_NUM_LONG)
        reports = "\n\n".join(f"Report {n}. {row['text']}" for n, row in enumerate(chosen, 1))
        yield (
            f"{chosen[asked]['name']}-of-{_NUM_LONG}-{random.randrange(10**6):06d}",
            f"{reports}\n\nWhat happened according to report {asked + 1}? Say who was involved.",
        )


def record(random: Random) -> Iterator[Task]:
    """Yield tasks to write a news text as a record that fits `RECORD_SCHEMA`."""
    for row in endlessly(read_rows("articles"), random):
        yield (
            f"{row['name']}-record",
            "Write a JSON record of this report: its headline, topic, place, people with their "
            "roles, whether it is breaking news, and a summary in one sentence."
            f"\n\n{_first_sentences(row['text'])}",
        )
