"""Word problems: a story of a few steps, with numbers, names and things drawn at random."""

from __future__ import annotations

from random import Random
from typing import Final

_THINGS: Final = (
    "apples", "books", "marbles", "stickers", "cookies", "pencils", "toy cars", "eggs", "coins",
    "balloons", "flowers", "muffins", "tickets", "cupcakes", "shells", "stamps", "bottles", "bags of rice",
    "chairs", "candles", "postcards", "oranges", "beads", "bricks", "plants", "chickens", "T-shirts", "boxes",
)  # fmt: skip
_PLACES: Final = (
    "school", "farm", "bakery", "library", "zoo", "garden", "factory", "restaurant", "hotel", "park", "museum",
    "bookstore", "toy shop", "hospital", "theater", "warehouse", "gym", "camp", "market", "harbor",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_STEPS: Final = (
    "{N} buys {b} more {t}.", "{N} gives {b} {t} to {F}.", "{N} then loses {b} of them.",
    "{F} gives {N} {b} more.", "The next day, {N} gets {c} times as many {t} as before.",
    "{N} shares half of the {t} with {F}.", "{F} has {c} times as many {t} as {N}.",
    "{F} has {b} fewer {t} than {N}.", "{N} sells {p}% of the {t}.", "{N} sells each of them for ${c}.",
    "{N} puts them into bags of {c}.", "Each of the {t} costs ${c}.50.", "{b} of them are broken.",
    "On {d}, {N} finds {b} more.", "{N} already had {b} {t} at home.", "{p}% of the {t} are red.",
    "One third of the {t} are blue.", "{N} uses {c} {t} every day.", "{F} takes twice as many as {N}.",
)  # fmt: skip
_ENDS: Final = (
    "How many {t} does {N} have now?", "How many {t} do {N} and {F} have together?",
    "How many {t} are left?", "How much money does {N} make?", "How many {t} does {F} have?",
    "What is the total number of {t}?", "How much does {N} spend in all?",
    "How many more {t} does {F} have than {N}?", "What percentage of the {t} is left?",
)  # fmt: skip
_STORIES: Final = (
    "A {P} has {a} {t}. {S} {S} {E}",
    "{N} has {a} {t}. {S} {E}",
    "{N} has {a} {t}. {S} {S} {E}",
    "{N} and {F} collect {t}. {N} has {a} {t}. {S} {S} {S} {E}",
    "{N} works {c} hours a day for {b} days at a {P} and earns ${q} an hour. How much does {N} earn?",
    "{N} earns ${q} per hour and works {b} hours a week. Each week {N} saves {p}% of the money. How much does "
    "{N} save in {c} weeks?",
    "A {P} is {a} miles away. {N} drives at {q} miles per hour for {c} hours. How far does {N} still have to go?",
    "{N} runs {c} miles on {d} and {b} miles on the other days of the week. How many miles does {N} run in "
    "{c} weeks?",
    "There are {a} people in a {P}. {p}% of them are children, and the rest are adults. An adult's ticket costs "
    "${q} and a child's ticket costs half as much. How much do all tickets cost?",
    "{N} is {b} years old. {F} is {c} times as old as {N}. In {c} years, how old will {F} be?",
    "{N} reads {b} pages a day. The book has {a} pages, and {N} has read it for {c} days. How many pages are left?",
    "A recipe needs {c} cups of flour for {b} {t}. {N} wants to make {a} {t} for the {P}. How many cups of flour "
    "does {N} need?",
    "A {P} sells {t} for ${c} each. On {d} it sold {a} of them, which was {b} more than the day before. How much "
    "money did it make on both days?",
    "{N} buys {c} {t} for ${q} each and {b} bags for $2 each. {N} pays with ${a}. How much change does {N} get?",
    "A rectangular {P} is {b} meters long and {c} meters wide. A fence costs ${q} per meter. What does the fence cost?",
    "{N}'s class has {b} students. Each student needs {c} {t}, and {t} come in boxes of {q}. How many boxes does "
    "the class need?",
    "The price of a ticket to the {P} was ${a}. It went up by {p}%, and then {N} got a discount of ${b}. What did "
    "{N} pay?",
    "{N} can paint a wall in {c} hours, and {F} in {b} hours. How long do they take together for {c} walls?",
    "A tank holds {a} liters of water. {c} liters flow out every minute, and {F} pours in {b} liters every hour. "
    "How much is in the tank after {c} hours?",
    "What is {a} plus {b} times {c}?", "Solve for x: {c}x + {b} = {a}", "If x + y = {b} and x - y = {c}, what is x?",
    "The sides of a triangle are {b}, {b} and {c}. What is its perimeter?",
    "A bag has {b} red, {c} blue and {q} green marbles. What is the chance to draw a blue one?",
    "{N} invests ${a} at {p}% a year. How much is it worth after {c} years?",
    "What is the remainder when {a} is divided by {c}?", "Find the average of {a}, {b}, {c} and {q}.",
)  # fmt: skip


def word_problem(rng: Random, names: list[str]) -> str:
    text = rng.choice(_STORIES)
    while "{S}" in text:
        text = text.replace("{S}", rng.choice(_STEPS), 1)
    a = rng.choice((rng.randint(20, 100), rng.randint(40, 600), 10 * rng.randint(5, 200)))
    values = {
        "N": rng.choice(names), "F": rng.choice(names), "t": rng.choice(_THINGS), "P": rng.choice(_PLACES),
        "d": rng.choice(_DAYS), "a": a, "b": rng.randint(3, 48), "c": rng.randint(2, 9),
        "p": rng.choice((5, 10, 20, 25, 30, 40, 50, 60, 75)), "q": rng.randint(5, 40),
    }  # fmt: skip
    for key, value in {"E": rng.choice(_ENDS), **values}.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text
