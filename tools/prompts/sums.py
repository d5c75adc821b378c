"""Word problems: stories of a few steps with random numbers, names and things."""

from __future__ import annotations

from random import Random

from tools.prompts.forms import FORMS


def word_problem(rng: Random, names: list[str]) -> str:
    text = rng.choice(FORMS["stories"])
    while "{S}" in text:
        text = text.replace("{S}", rng.choice(FORMS["steps"]), 1)
    a = rng.choice((rng.randint(20, 100), rng.randint(40, 600), 10 * rng.randint(5, 200)))
    values = {
        "N": rng.choice(names),
        "F": rng.choice(names),
        "t": rng.choice(FORMS["things"]),
        "P": rng.choice(FORMS["places"]),
        "d": rng.choice(FORMS["days"]),
        "a": a,
        "b": rng.randint(3, 48),
        "c": rng.randint(2, 9),
        "p": rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75)),
        "q": rng.randint(5, 40),
    }
    for key, value in {"E": rng.choice(FORMS["ends"]), **values}.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text
