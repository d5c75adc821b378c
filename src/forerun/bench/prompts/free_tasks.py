"""Tasks whose answer is new: chat, story, maths; translation, summaries, long reading."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from forerun.bench.prompts.copy_tasks import Task
from forerun.bench.prompts.data_files import endlessly, read_rows
from forerun.bench.prompts.named_prompts import named_prompts

_CHAT: Final = {"writing", "roleplay", "reasoning", "stem", "humanities", "qa", "coding"}
_HEROES: Final = (("fox", "Tim"), ("girl", "Lily"), ("boy", "Ben"), ("bear", "Max"), ("cat", "Sue"))
_PLACES: Final = ("near a big forest", "by the sea", "in a small house", "on a farm", "by a lake")
_FINDS: Final = ("a shiny red ball", "an old map", "a tiny bird", "a blue box", "a lost puppy")
_NUM_LONG: Final = 4  # articles in a long prompt: about 1300 tokens


def chat(random: Random) -> Iterator[Task]:
    return _from_categories(random, _CHAT)


def maths(random: Random) -> Iterator[Task]:
    return _from_categories(random, {"gsm8k", "math", "math_reasoning"})


def translation(random: Random) -> Iterator[Task]:
    return _from_categories(random, {"translation"})


def story(random: Random) -> Iterator[Task]:
    """The first lines of a children's story, to be continued as plain text."""
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
    """Several articles, and a question about one of them."""
    articles = read_rows("articles")
    while True:
        chosen = random.sample(articles, _NUM_LONG)
        asked = random.randrange(_NUM_LONG)
        reports = "\n\n".join(f"Report {n}. {row['text']}" for n, row in enumerate(chosen, 1))
        yield (
            f"{chosen[asked]['name']}-of-{_NUM_LONG}-{random.randrange(10**6):06d}",
            f"{reports}\n\nWhat happened according to report {asked + 1}? Say who was involved.",
        )


def _from_categories(random: Random, categories: set[str]) -> Iterator[Task]:
    prompts = [prompt for prompt in named_prompts() if prompt.category in categories]
    for prompt in endlessly(prompts, random):
        yield prompt.name, prompt.text
