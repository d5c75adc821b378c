"""Errors as responses, in OpenAI's shape and in Anthropic's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from forerun.errors import (
    EngineClosed,
    EngineHung,
    EngineOverloaded,
    ForerunError,
    InvalidOption,
    PromptTooLong,
    RequestFailed,
    RequestTooLarge,
    UnusableDrafter,
)

RETRY_SECONDS: Final = 1
_TYPES: Final = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_TYPES_OF_ANTHROPIC: Final = {
    **_TYPES,
    403: "permission_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
_NAMED_VALUE: Final = re.compile(r"(\w+)(?:=| names token | cannot )")


@dataclass(eq=False)
class ApiError(Exception):
    """A response that is an error: one sentence, and the field of the body that caused it.

    If the client still sends its body, up to `num_dropped_bytes` of it are read and dropped: a
    client that is sending when the connection closes may never see the error.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    num_dropped_bytes: int = 0

    @property
    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self._type_in(_TYPES, "server_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def for_anthropic(self, request_id: str) -> dict[str, Any]:
        told: dict[str, Any] = {
            "type": self._type_in(_TYPES_OF_ANTHROPIC, "api_error"),
            "message": self.message,
        }
        if self.code is not None:
            told["details"] = {"error_code": self.code}
        return {"type": "error", "error": told, "request_id": request_id}

    def _type_in(self, types: Mapping[int, str], of_server: str) -> str:
        usual = of_server if self.status >= 500 else "invalid_request_error"
        return types.get(self.status, usual)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, code, param)


def unavailable(message: str) -> ApiError:
    return ApiError(503, message, "unavailable", headers={"Retry-After": str(RETRY_SECONDS)})


def shutting_down() -> ApiError:
    return unavailable("the server is shutting down; ask another one.")


def too_many(message: str) -> ApiError:
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return ApiError(429, message, "rate_limit_exceeded", headers=headers)


def as_api_error(error: Exception) -> ApiError:
    """Return the error for the client; only errors that the client can correct are described."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, EngineOverloaded):
        return too_many(message)
    if isinstance(error, EngineClosed | EngineHung):
        return unavailable(message)
    if isinstance(error, PromptTooLong | RequestTooLarge):
        return bad_request(message, code="context_length_exceeded")
    if isinstance(error, UnusableDrafter):
        return bad_request(message, "speculative.method")
    if isinstance(error, ForerunError) and not isinstance(error, RequestFailed):
        named = _NAMED_VALUE.match(message)
        return bad_request(message, named[1] if named else None)
    if isinstance(error.__cause__, InvalidOption):  # an option that failed in the engine
        return bad_request(str(error.__cause__))
    return ApiError(
        500, "the server failed on this request; its log says why under the X-Request-Id.", "failed"
    )
