"""The functions of the class `tools`, and user messages that need one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

_CITIES: Final = ("Lisbon", "Oslo", "Kyoto", "Cairo", "Quito", "Tallinn", "Dakar", "Lima")
_PEOPLE: Final = ("Ada Brandt", "Luis Ortega", "Mei Tanaka", "Omar Haddad", "Nora Lindqvist")
_THINGS: Final = ("the budget", "our trip", "the new office", "the garden", "the exam")
_COINS: Final = ("EUR", "USD", "JPY", "GBP", "NOK")


def _function(name: str, description: str, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool description in which all parameters are required."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_TEXT: Final = {"type": "string"}
_DATE: Final = {"type": "string", "description": "YYYY-MM-DD"}
_CLOCK: Final = {"type": "string", "description": "HH:MM"}
_COUNT: Final = {"type": "integer", "minimum": 1, "maximum": 9}
_COIN: Final = {"type": "string", "enum": list(_COINS)}
FUNCTIONS: Final[Sequence[Mapping[str, Any]]] = (
    _function(
        "get_weather",
        "The forecast for a city on one day.",
        city=_TEXT,
        date=_DATE,
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
    _function(
        "search_flights",
        "Flights between two cities.",
        origin=_TEXT,
        destination=_TEXT,
        departure_date=_DATE,
        passengers=_COUNT,
        cabin={"type": "string", "enum": ["economy", "premium", "business"]},
    ),
    _function(
        "create_event",
        "Put a meeting into the calendar.",
        title=_TEXT,
        date=_DATE,
        start_time=_CLOCK,
        end_time=_CLOCK,
        attendees={"type": "array", "items": _TEXT, "maxItems": 4},
    ),
    _function(
        "send_message", "Send somebody a message.", recipient=_TEXT, subject=_TEXT, body=_TEXT
    ),
    _function(
        "convert_currency",
        "An amount of money in another currency.",
        amount={"type": "number"},
        from_currency=_COIN,
        to_currency=_COIN,
    ),
)
# A call of any of the functions, for contenders without tools.
CALL_SCHEMA: Final = json.dumps(
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": each["function"]["name"]},
                    "arguments": each["function"]["parameters"],
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for each in FUNCTIONS
        ]
    }
)


def wishes(random: Random) -> Iterator[tuple[str, str]]:
    """Yield a name and a user message, for each function in turn."""
    while True:
        for idx, wish in enumerate(_wishes(random)):
            name = FUNCTIONS[idx]["function"]["name"]
            yield f"{name}-{random.randrange(10**6):06d}", wish


def _wishes(random: Random) -> list[str]:
    here, there = random.sample(_CITIES, 2)
    someone, other = random.sample(_PEOPLE, 2)
    coin, wanted = random.sample(_COINS, 2)
    day = f"2026-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}"
    hour, thing = random.randrange(8, 17), random.choice(_THINGS)
    return [
        f"What will the weather be in {here} on {day}? In celsius, please.",
        f"I need {random.randrange(1, 5)} tickets in economy from {here} to {there} on {day}.",
        f"Set up a meeting about {thing} on {day} from {hour:02d}:00 to {hour + 1:02d}:30 with "
        f"{someone} and {other}.",
        f"Tell {someone} that I shall be late for our talk about {thing} in {there}, and that I am "
        f"sorry.",
        f"How much is {random.randrange(5, 2000)} {coin} in {wanted}?",
    ]
