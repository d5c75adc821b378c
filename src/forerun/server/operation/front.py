"""The outermost layer: request ids, origins, API keys, log lines, and errors without tracebacks.

It is plain ASGI: middleware that wraps responses would hide a client's disconnect from a stream.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.server.errors import ApiError, as_api_error, shutting_down
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.origins import Origins, is_preflight
from forerun.server.operation.protocol import Direct
from forerun.server.service import Service
from forerun.server.streaming import DIRECT, REQUEST_ID, JsonAnswer, LastWords, explained

_ANSWERS: Final = ("/v1/responses/", "/v1/chat/completions/")  # where OpenAI stores answers
_MESSAGES: Final = "/v1/messages"  # here and below, errors have Anthropic's shape
_REQUEST_ID: Final = re.compile(r"[!-~]{1,128}")


class Front:
    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        keys: Keys,
        origins: Origins,
        log: AccessLog,
        root_path: str = "",
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        self._app = app
        self._routes = routes
        self._origins = origins
        self._root = root_path
        self._service = service
        self._keys = keys
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, scope = scope["method"], {**self._routed(scope), DIRECT: Direct(scope, send)}
        request = Request(scope)
        names = (b"x-request-id", b"request-id") if _is_of_anthropic(scope) else (b"x-request-id",)
        visit = Visit(_request_id(request), names, send)
        REQUEST_ID.set(visit.request_id)
        request.state.began = visit.began
        self._service.num_open += 1
        try:
            await self._answer(scope, receive, visit, request)
        finally:
            self._service.num_open -= 1
            seconds = time.perf_counter() - visit.began
            self._service.counters.responded(self._known_path(scope), visit.status)
            self._log.write(request, method, visit.request_id, visit.status, seconds)

    def _routed(self, scope: Scope) -> Scope:
        """Return the scope for the routes: without the root path, and HEAD as GET, whose body
        uvicorn drops."""
        path: str = scope["path"]
        if self._root and path.startswith(f"{self._root}/"):
            path = path.removeprefix(self._root)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        return {**scope, "path": path, "method": method}

    def _known_path(self, scope: Scope) -> str:
        """Return the path of the route that matches, so that clients cannot make up labels."""
        found = (route for route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return str(getattr(next(found, None), "path", "other"))

    async def _answer(self, scope: Scope, receive: Receive, visit: Visit, request: Request) -> None:
        try:
            if self._root and scope["path"] == self._root:  # the page's own links need the slash
                await RedirectResponse(f"{self._root}/")(scope, receive, visit.send)
                return
            self._origins.check(request)
            if not is_preflight(request):
                given = (request.headers.get(name) for name in ("authorization", "x-api-key"))
                self._keys.check(scope["path"], *given)
            await self._app(scope, receive, visit.send)
        except ApiError as error:
            await _error_response(error, scope)(scope, receive, visit.send)
        except asyncio.CancelledError:  # the server ends without waiting
            if not visit.has_begun:
                await _error_response(shutting_down(), scope)(scope, receive, visit.send)
        except Exception as error:
            told = explained(error)
            if not visit.has_begun:
                await _error_response(told, scope)(scope, receive, visit.send)


class Visit:
    """What was sent so far in response to a request. `names` are the headers that carry its id."""

    def __init__(self, request_id: str, names: Sequence[bytes], send: Send) -> None:
        self.request_id = request_id
        self._names = names
        self.began = time.perf_counter()
        self.status = 0
        self.has_begun = False
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun, self.status = True, message["status"]
            own = [(name, self.request_id.encode()) for name in self._names]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await self._send(message)


def _is_of_anthropic(scope: Scope) -> bool:
    return f"{scope['path']}/".startswith(f"{_MESSAGES}/")


def _error_response(error: ApiError, scope: Scope) -> JsonAnswer:
    """Return the error in the shape of the API to which the path belongs."""
    body = error.for_anthropic(REQUEST_ID.get()) if _is_of_anthropic(scope) else error.body
    if error.num_dropped_bytes:
        return LastWords(body, error.status, dict(error.headers), error.num_dropped_bytes)
    return JsonAnswer(body, error.status, dict(error.headers))


async def api_error(request: Request, error: Any) -> JsonAnswer:
    """Starlette's handler for errors of Forerun's own classes."""
    return _error_response(explained(error), request.scope)


async def unforeseen(request: Request, error: Any) -> JsonAnswer:
    """Starlette's handler for all other errors, which it raises again; `Front` then logs them."""
    return _error_response(as_api_error(error), request.scope)


async def http_error(request: Request, error: Any) -> JsonAnswer:
    """Starlette's handler for what it refuses itself: unknown paths and methods."""
    path, headers = request.scope["path"], error.headers or {}
    allowed = "GET" if "GET" in headers.get("Allow", "") else "POST"
    words = {
        404: f"there is nothing at {path[:200]}; {_where(request.app, path)}.",
        405: f"{request.method[:16]} is not for {path[:200]}; send {allowed}.",
    }
    message = words.get(error.status_code, str(error.detail))
    told = ApiError(error.status_code, message, "not_here", headers=headers)
    return _error_response(told, request.scope)


def _where(app: Any, path: str) -> str:
    """Return a hint: the path that may have been meant, or where to look."""
    known = {getattr(route, "path", None) for route in app.routes}
    meant = path.rstrip("/")
    for near in (meant, f"/v1{meant}", meant.replace("/v1/v1/", "/v1/"), meant.replace("//", "/")):
        if near in known:
            return f"it is at {near}"
    if path.startswith(_ANSWERS):
        return "no answer is stored here, so keep what you are sent"
    return "see /openapi.json"


def _request_id(request: Request) -> str:
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
