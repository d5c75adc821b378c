"""`/forerun/settings` and `/forerun/theory`: defaults, measured costs, and expected speed-ups."""

from __future__ import annotations

import math
from dataclasses import asdict, fields
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from forerun.errors import InvalidOption
from forerun.server.errors import bad_request
from forerun.server.fields.kinds import or_null
from forerun.server.routes.asked import service_of
from forerun.server.streaming import JsonAnswer
from forerun.speculation.costs import Costs
from forerun.speculation.speculation import Speculation
from forerun.theory.depth_table import DepthRow, depth_table
from forerun.theory.ranges import MOST_COST
from forerun.theory.verify_cost import MeasuredVerifyCost, parse_verify_cost
from forerun.types import SamplingParams
from forerun.version import VERSION

MAX_DEPTH: Final = 64  # of a table
_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p")
_QUERY: Final = ("alpha", "cost", "verify_cost", "max_depth")


async def settings(request: Request) -> Response:
    """The default sampling options, the drafters, and the costs measured on this machine."""
    service = service_of(request)
    speculation = service.engine.speculation
    usual = SamplingParams()
    return JsonAnswer(
        {
            "model": service.names[0],
            "version": VERSION,
            "max_model_len": service.engine.max_model_len,
            "max_answer_tokens": service.limits.max_answer_tokens,
            "sampling": {name: getattr(usual, name) for name in _SAMPLING},
            "speculation": None if speculation is None else _told(speculation),
        }
    )


def _told(speculation: Speculation) -> dict[str, Any]:
    controller = speculation.controller
    return {
        "methods": speculation.methods,
        "num_speculative_tokens": speculation.ceiling.depth,
        "num_branches": speculation.ceiling.num_branches,
        "adaptive": controller is not None,
        "left_out": speculation.left_out,
        "costs": None if controller is None else _costs(controller.costs),
    }


def _costs(costs: Costs) -> dict[str, Any]:
    """Return costs in units of a plain pass; `verify_cost` is as /forerun/theory reads it."""
    plain = costs.target.seconds(1)
    points = [(size - 1, seconds / plain) for size, seconds in costs.target.points if size > 1]
    return {
        "plain_pass_seconds": plain,
        "verify_cost": ",".join(f"{depth}:{cost:.4g}" for depth, cost in points) or None,
        "guesses": costs.guess_costs,
    }


async def theory(request: Request) -> Response:
    """The speed-up that theory expects, a row for each depth from 0, as in `forerun plan`."""
    given = request.query_params
    for name in given:
        if name not in _QUERY:
            raise bad_request(f"{name[:64]} is no parameter; give {', '.join(_QUERY)}.", name[:64])
    alpha, cost = _real(given.get("alpha"), "alpha"), _real(given.get("cost", "0"), "cost")
    spec = given.get("verify_cost", "0")
    verify_cost = parse_verify_cost(spec)
    max_depth = _depth(given.get("max_depth", "16"))
    if isinstance(verify_cost, MeasuredVerifyCost):
        max_depth = min(max_depth, verify_cost.max_depth)
    try:
        table = depth_table(alpha, cost, max_depth, verify_cost)
    except InvalidOption as error:
        named = (name for name in _QUERY if str(error).startswith(f"{name} is"))
        raise bad_request(str(error), next(named, None)) from None
    rows = [{**asdict(row), "verify_cost": verify_cost.at(row.depth)} for row in table.rows]
    return JsonAnswer(
        {
            "alpha": table.alpha,
            "cost": table.cost,
            "verify_cost": spec,
            "rows": rows,
            "best_depth": table.best_depth,
            "meaning": table.meaning(),
        }
    )


def _real(text: str | None, name: str) -> float:
    try:
        found = float(text or "")
    except ValueError:
        found = math.nan
    if text is None:
        raise bad_request(f"{name} is missing; give a number.", name)
    if not abs(found) <= MOST_COST:
        raise bad_request(f"{name} is {text[:64]!r}; give a number, {MOST_COST:g} at most.", name)
    return found


def _depth(text: str) -> int:
    is_short = text.isascii() and text.isdecimal() and len(text) < 3
    if not (is_short and 1 <= int(text) <= MAX_DEPTH):
        raise bad_request(f"max_depth is {text[:64]!r}; give 1 … {MAX_DEPTH}.", "max_depth")
    return int(text)


# Schemas of the two answers, for /openapi.json.
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "number"}


def _object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that always has all of these properties."""
    return {"type": "object", "required": list(properties), "properties": properties}


SETTINGS: Final = _object(
    model=_TEXT,
    version=_TEXT,
    max_model_len=_COUNT,
    max_answer_tokens=or_null(_COUNT),
    sampling=_object(**dict.fromkeys(_SAMPLING, _NUMBER)),
    speculation=or_null(
        _object(
            methods={"type": "array", "items": _TEXT},
            num_speculative_tokens=_COUNT,
            num_branches=_COUNT,
            adaptive={"type": "boolean"},
            left_out={"type": "object", "additionalProperties": _TEXT},
            costs=or_null(
                _object(
                    plain_pass_seconds=_NUMBER,
                    verify_cost=or_null(_TEXT),
                    guesses={"type": "object", "additionalProperties": _NUMBER},
                )
            ),
        )
    ),
)
_ROW: Final = dict.fromkeys((field.name for field in fields(DepthRow)), _NUMBER)
THEORY: Final = _object(
    alpha=_NUMBER,
    cost=_NUMBER,
    verify_cost=_TEXT,
    rows={"type": "array", "items": _object(**_ROW, verify_cost=_NUMBER)},
    best_depth=_COUNT,
    meaning=_TEXT,
)
_ABOVE: Final = {"type": "number", "minimum": 0}
PARAMETERS: Final = [
    {"name": name, "in": "query", "required": name == "alpha", "schema": kind}
    for name, kind in {
        "alpha": {**_ABOVE, "maximum": 1},
        "cost": {**_ABOVE, "maximum": 1e6},
        # Only a slope; docs/serving.md describes points.
        "verify_cost": {**_TEXT, "pattern": r"^(0|[1-9][0-9]{0,2})(\.[0-9]{1,6})?$"},
        "max_depth": {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH},
    }.items()
]
