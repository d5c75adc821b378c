"""The OpenAPI description, from the same lists that requests are read by."""

from __future__ import annotations

from typing import Any, Final

from forerun.server.fields import Endpoint, fields_of
from forerun.server.fields.kinds import or_null

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": or_null(_TEXT),
                "code": or_null(_TEXT),
            },
        }
    },
}
_USAGE: Final = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens", "forerun"],
    "properties": {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
    },
}
_REASON: Final = {"enum": ["stop", "length"]}
_MODEL: Final = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by"],
    "properties": {"id": _TEXT, "object": {"enum": ["model"]}, "created": _COUNT},
}


def _answer(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    properties = {"index": _COUNT, "finish_reason": _REASON, **choice}
    required = ["index", "finish_reason", *choice]
    one = {"type": "object", "required": required, "properties": properties}
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": _TEXT,
            "object": {"enum": [kind]},
            "created": _COUNT,
            "model": _TEXT,
            "choices": {"type": "array", "minItems": 1, "items": one},
            "usage": _USAGE,
        },
    }


_MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["assistant"]}, "content": _TEXT},
}
_RESPONSE: Final = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "output", "usage"],
    "properties": {
        "id": _TEXT,
        "object": {"enum": ["response"]},
        "status": {"enum": ["completed", "incomplete"]},
        "output": {"type": "array", "minItems": 1, "items": {"type": "object"}},
    },
}
_ANSWERS: Final[dict[Endpoint, dict[str, Any]]] = {
    Endpoint.COMPLETIONS: _answer("text_completion", {"text": _TEXT}),
    Endpoint.CHAT: _answer("chat.completion", {"message": _MESSAGE}),
    Endpoint.RESPONSES: _RESPONSE,
    Endpoint.TOKENIZE: {
        "type": "object",
        "required": ["count", "max_model_len", "tokens"],
        "properties": {"count": _COUNT, "tokens": {"type": "array", "items": _COUNT}},
    },
    Endpoint.DETOKENIZE: {
        "type": "object",
        "required": ["prompt"],
        "properties": {"prompt": _TEXT},
    },
}
_STREAMS: Final = (Endpoint.COMPLETIONS, Endpoint.CHAT, Endpoint.RESPONSES)
_REFUSALS: Final = {
    400: "the body cannot be honoured",
    401: "no valid API key",
    404: "no such model or address",
    408: "the body did not arrive in time",
    413: "the body is too long",
    429: "too many requests wait",
    503: "still loading, or shutting down",
}


def body_schema(endpoint: Endpoint) -> dict[str, Any]:
    fields = list(fields_of(endpoint))
    return {
        "type": "object",
        "required": [field.name for field in fields if field.is_required],
        "properties": {
            field.name: field.kind.schema if field.is_required else or_null(field.kind.schema)
            for field in fields
        },
        "additionalProperties": False,
    }


def posted(endpoint: Endpoint) -> dict[str, Any]:
    """What a route's `openapi_extra` adds for a body and its answers."""
    content: dict[str, Any] = {"application/json": {"schema": _ANSWERS[endpoint]}}
    if endpoint in _STREAMS:
        content["text/event-stream"] = {"schema": _TEXT}
    body = {"application/json": {"schema": body_schema(endpoint)}}
    return {
        "requestBody": {"required": True, "content": body},
        "responses": {
            "200": {"description": "The answer; a stream with stream=true.", "content": content},
            **_errors(*_REFUSALS),
        },
    }


def gotten(schema: dict[str, Any], *refusals: int) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    answers = {"200": {"description": "The answer.", "content": content}}
    return {"responses": {**answers, **_errors(401, *refusals)}}


def queried(schema: dict[str, Any]) -> dict[str, Any]:
    """Of /forerun/theory."""
    number = {"type": "number", "minimum": 0}
    parameters = {
        "alpha": {**number, "maximum": 1},
        "cost": {**number, "maximum": 1e6},
        "verify_cost": {**_TEXT, "pattern": r"^(0|[1-9][0-9]{0,2})(\.[0-9]{1,6})?$"},
        "max_depth": {"type": "integer", "minimum": 1, "maximum": 64},
    }
    listed = [
        {"name": name, "in": "query", "required": name == "alpha", "schema": kind}
        for name, kind in parameters.items()
    ]
    return {**gotten(schema, 400), "parameters": listed}


def exposed() -> dict[str, Any]:
    """Of /metrics, which is not JSON."""
    content = {"text/plain": {"schema": _TEXT}}
    answers = {"200": {"description": "Prometheus' text format.", "content": content}}
    return {"responses": {**answers, **_errors(401)}}


def _errors(*statuses: int) -> dict[str, Any]:
    content = {"application/json": {"schema": _ERROR}}
    return {
        str(status): {"description": _REFUSALS[status], "content": content} for status in statuses
    }


STATUS: Final = {"type": "object", "required": ["status"], "properties": {"status": _TEXT}}
VERSION: Final = {"type": "object", "required": ["version"], "properties": {"version": _TEXT}}
MODEL: Final = _MODEL
MODELS: Final = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"data": {"type": "array", "items": _MODEL}},
}
SETTINGS: Final = {
    "type": "object",
    "required": ["model", "version", "max_model_len", "sampling", "speculation"],
    "properties": {
        "model": _TEXT,
        "version": _TEXT,
        "max_model_len": _COUNT,
        "max_answer_tokens": or_null(_COUNT),
        "sampling": {"type": "object", "additionalProperties": {"type": "number"}},
        "speculation": or_null(
            {
                "type": "object",
                "required": ["methods", "num_speculative_tokens", "num_branches", "costs"],
                "properties": {
                    "methods": {"type": "array", "items": _TEXT},
                    "num_speculative_tokens": _COUNT,
                    "num_branches": _COUNT,
                    "adaptive": {"type": "boolean"},
                    "costs": or_null({"type": "object"}),
                },
            }
        ),
    },
}
_ROW: Final = (
    *("expected_tokens", "expected_accepted", "speedup", "operations_factor"),
    *("memory_access_factor", "verify_cost"),
)
THEORY: Final = {
    "type": "object",
    "required": ["alpha", "cost", "verify_cost", "rows", "best_depth", "meaning"],
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["depth", *_ROW],
                "properties": {"depth": _COUNT, **{name: {"type": "number"} for name in _ROW}},
            },
        },
        "best_depth": _COUNT,
        "meaning": _TEXT,
    },
}
