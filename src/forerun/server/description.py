"""The OpenAPI description, made from the lists by which requests are parsed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from forerun import version
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
_ERROR_OF_ANTHROPIC: Final = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"enum": ["error"]},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {
                "type": _TEXT,
                "message": _TEXT,
                "details": {"type": "object", "properties": {"error_code": _TEXT}},
            },
        },
        "request_id": _TEXT,
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
_REASON: Final = {"enum": ["stop", "length", "tool_calls"]}
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


def _chunk(kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a stream's chunk: most choices have not finished, and the last chunk may
    have no choice."""
    properties = {"index": _COUNT, "finish_reason": or_null(_REASON), **choice}
    one = {"type": "object", "required": list(properties), "properties": properties}
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices"],
        "properties": {
            "id": _TEXT,
            "object": {"enum": [kind]},
            "created": _COUNT,
            "model": _TEXT,
            "choices": {"type": "array", "items": one},
            "usage": or_null(_USAGE),
        },
    }


_MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["assistant"]},
        "content": or_null(_TEXT),
        "tool_calls": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "reasoning": _TEXT,
        "reasoning_content": _TEXT,
    },
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
_ANTHROPIC_MESSAGE: Final = {
    "type": "object",
    "required": ["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
    "properties": {
        "id": _TEXT,
        "type": {"enum": ["message"]},
        "role": {"enum": ["assistant"]},
        "content": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"enum": ["text", "thinking", "tool_use"]}},
            },
        },
        "stop_reason": {
            "enum": [
                *("end_turn", "max_tokens", "stop_sequence", "tool_use"),
                "model_context_window_exceeded",
            ]
        },
        "stop_sequence": or_null(_TEXT),
        "usage": {
            "type": "object",
            "required": ["input_tokens", "output_tokens", "cache_read_input_tokens"],
            "properties": {"input_tokens": _COUNT, "output_tokens": _COUNT},
        },
    },
}
_ANSWERS: Final[dict[Endpoint, dict[str, Any]]] = {
    Endpoint.COMPLETIONS: _answer("text_completion", {"text": _TEXT}),
    Endpoint.CHAT: _answer("chat.completion", {"message": _MESSAGE}),
    Endpoint.RESPONSES: _RESPONSE,
    Endpoint.INPUT_TOKENS: {
        "type": "object",
        "required": ["object", "input_tokens"],
        "properties": {"object": {"enum": ["response.input_tokens"]}, "input_tokens": _COUNT},
    },
    Endpoint.MESSAGES: _ANTHROPIC_MESSAGE,
    Endpoint.COUNT_TOKENS: {
        "type": "object",
        "required": ["input_tokens"],
        "properties": {"input_tokens": _COUNT},
    },
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
# Which call may follow, with which part of the answer; `operationId` is a handler's name.
_LINKS: Final[dict[Endpoint, dict[str, Any]]] = {
    Endpoint.TOKENIZE: {
        "text": {"operationId": "detokenize", "requestBody": {"tokens": "$response.body#/tokens"}},
        "answer": {
            "operationId": "completions",
            "requestBody": {"prompt": "$response.body#/tokens", "max_tokens": 4},
        },
    },
    Endpoint.DETOKENIZE: {
        "tokens": {"operationId": "tokenize", "requestBody": {"prompt": "$response.body#/prompt"}}
    },
}
_STREAMS: Final[dict[Endpoint, dict[str, Any]]] = {
    Endpoint.COMPLETIONS: _chunk("text_completion", {"text": _TEXT}),
    Endpoint.CHAT: _chunk("chat.completion.chunk", {"delta": {"type": "object"}}),
    Endpoint.RESPONSES: {
        "type": "object",
        "required": ["type", "sequence_number"],
        "properties": {"type": _TEXT, "sequence_number": _COUNT},
    },
    Endpoint.MESSAGES: {"type": "object", "required": ["type"], "properties": {"type": _TEXT}},
}
_ERRORS: Final = dict.fromkeys((Endpoint.MESSAGES, Endpoint.COUNT_TOKENS), _ERROR_OF_ANTHROPIC)
_REFUSALS: Final = {
    400: "the body cannot be honoured",
    401: "no valid API key",
    404: "no such model or address",
    408: "the body did not arrive in time",
    413: "the body is too long",
    415: "the body is packed",
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


Described = tuple[str, Callable[..., Any], dict[str, Any]]  # path, handler, its operation


def whole(gets: Iterable[Described], posts: Iterable[Described], root_path: str) -> dict[str, Any]:
    """Return the document for /openapi.json."""
    paths: dict[str, dict[str, Any]] = {}
    for method, routes in (("get", gets), ("post", posts)):
        for path, handler, described in routes:
            name = handler.__name__
            operation = {"summary": name.replace("_", " "), "operationId": name, **described}
            if said := inspect.getdoc(handler):
                operation["description"] = said
            paths[path.replace(":path}", "}")] = {method: operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Forerun", "version": version.VERSION},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
    }


def posted(endpoint: Endpoint) -> dict[str, Any]:
    """Return the operation of a POST endpoint: its body and its answers."""
    error = _ERRORS.get(endpoint, _ERROR)
    content: dict[str, Any] = {"application/json": {"schema": _ANSWERS[endpoint]}}
    if endpoint in _STREAMS:
        has_end = endpoint not in _ERRORS  # Anthropic's streams end with an event
        content["text/event-stream"] = {"schema": _event(_STREAMS[endpoint], error, has_end)}
    body = {"application/json": {"schema": body_schema(endpoint)}}
    return {
        "requestBody": {"required": True, "content": body},
        "responses": {
            "200": {
                "description": "The answer; a stream with stream=true.",
                "content": content,
                "links": _LINKS.get(endpoint, {}),
            },
            **_errors(*_REFUSALS, schema=error),
        },
    }


def _event(chunk: dict[str, Any], error: dict[str, Any], has_end: bool) -> dict[str, Any]:
    """Return the schema of a server-sent event: a chunk, an error, or `[DONE]` if it `has_end`."""
    told = {
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [chunk, error]},
    }
    data = {"type": "string", "anyOf": [*([{"enum": ["[DONE]"]}] if has_end else []), told]}
    return {"type": "object", "required": ["data"], "properties": {"data": data, "event": _TEXT}}


def gotten(
    schema: dict[str, Any],
    *refusals: int,
    parameters: Sequence[dict[str, Any]] = (),
    links: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    answer = {"description": "The answer.", "content": content, "links": links or {}}
    responses = {"200": answer, **_errors(401, *refusals)}
    return {"parameters": list(parameters), "responses": responses}


def exposed() -> dict[str, Any]:
    """Return the operation of /metrics, whose answer is not JSON."""
    content = {"text/plain": {"schema": _TEXT}}
    answers = {"200": {"description": "Prometheus' text format.", "content": content}}
    return {"responses": {**answers, **_errors(401)}}


def _errors(*statuses: int, schema: dict[str, Any] = _ERROR) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    return {
        str(status): {"description": _REFUSALS[status], "content": content} for status in statuses
    }


STATUS: Final = {"type": "object", "required": ["status"], "properties": {"status": _TEXT}}
VERSION: Final = {"type": "object", "required": ["version"], "properties": {"version": _TEXT}}
TOKENIZER: Final = {
    "type": "object",
    "required": ["bos_token", "eos_token", "chat_template"],
    "additionalProperties": {"type": ["string", "null"]},
}
MODEL: Final = _MODEL
MODELS: Final = {
    "type": "object",
    "required": ["object", "data"],
    "properties": {"data": {"type": "array", "items": _MODEL}},
}
MODEL_NAME: Final = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
}
TO_ONE_MODEL: Final = {
    "one": {"operationId": "one_model", "parameters": {"model": "$response.body#/data/0/id"}}
}
