"""What a record must look like before anybody trusts it: names and types, all the way down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Maybe:
    """The value may be null, or absent."""

    shape: Any


@dataclass(frozen=True)
class Each:
    """A list whose items, or an object whose values, all look alike."""

    kind: Any  # list or dict
    shape: Any


_NUMBER: Final = (int, float)
_QUANTILES: Final = Maybe(dict.fromkeys(("p50", "p95", "p99"), _NUMBER))
_INTERVAL: Final = Maybe(dict.fromkeys(("median", "low", "high", "num"), _NUMBER))
_PREDICTION: Final = {
    **dict.fromkeys(("alpha", "draft_step", "predicted", "measured"), _NUMBER),
    **dict.fromkeys(("tokens_expected", "tokens_counted"), _NUMBER),
    "verify": Each(dict, _NUMBER),
    "reason": Maybe(str),
}
_CELL: Final = {
    **dict.fromkeys(("workload", "kind", "contender"), str),
    **dict.fromkeys(("num_pairs", "num_tokens"), int),
    **dict.fromkeys(("tokens_per_second", "tokens_per_pass", "acceptance_rate"), Maybe(_NUMBER)),
    "acceptance_by_position": Each(list, _NUMBER),
    **dict.fromkeys(("ttft_ms", "wait_ms", "answer_ms"), _QUANTILES),
    **dict.fromkeys(("ratio", "ratio_whole", "ratio_ttft"), _INTERVAL),
    "same_tokens": Maybe(_NUMBER),
    "prediction": Maybe(_PREDICTION),
}
_DIVERGENCE: Final = {
    **dict.fromkeys(("workload", "prompt", "contender", "ours", "theirs"), str),
    "at": int,
    "margin": Maybe(_NUMBER),
}
RECORD: Final = {
    "created": str,
    "commit": Maybe(str),
    **dict.fromkeys(("machine", "versions", "model", "settings", "costs"), dict),
    "workloads": Each(dict, {"digest": str}),
    "contenders": Each(dict, dict),
    "runs": Each(list, {"workload": str, "pair": int, "contender": str, "digest": str}),
    "cells": Each(list, _CELL),
    "divergences": Each(list, _DIVERGENCE),
    "is_complete": bool,
}


def misfit(value: Any, shape: Any, place: str = "") -> str | None:
    """Where the value is not what the shape asks for, like `runs.0.digest`; None if it is."""
    match shape:
        case Maybe(inner):
            return None if value is None else misfit(value, inner, place)
        case Each(kind, inner):
            if not isinstance(value, kind):
                return place
            items = value.items() if kind is dict else enumerate(value)
            return _first(misfit(item, inner, _below(place, name)) for name, item in items)
        case Mapping():
            if not isinstance(value, dict):
                return place
            return _first(
                misfit(value.get(name), inner, _below(place, name)) for name, inner in shape.items()
            )
    return None if isinstance(value, shape) else place


def _first(found: Any) -> str | None:
    return next((place for place in found if place is not None), None)


def _below(place: str, name: str | int) -> str:
    return f"{place}.{name}" if place else str(name)
