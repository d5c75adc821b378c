"""The ASGI application: which path leads to which handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from forerun.errors import ForerunError
from forerun.server import description
from forerun.server.errors import ApiError
from forerun.server.fields import Endpoint
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.front import Front, api_error, http_error, unforeseen
from forerun.server.operation.origins import Origins, is_preflight
from forerun.server.routes import (
    chat,
    completions,
    insight,
    messages,
    models,
    page,
    probes,
    responses,
    tokens,
)
from forerun.server.service import Service
from forerun.server.streaming import JsonAnswer

Handler = Callable[[Request], Awaitable[Response]]

_GET: Final[tuple[tuple[str, Handler, dict[str, Any]], ...]] = (
    ("/health", probes.health, description.gotten(description.STATUS, 503)),
    ("/ready", probes.ready, description.gotten(description.STATUS, 503)),
    ("/version", probes.version, description.gotten(description.VERSION)),
    ("/metrics", probes.metrics, description.exposed()),
    (
        "/v1/models",
        models.list_models,
        description.gotten(description.MODELS, links=description.TO_ONE_MODEL),
    ),
    (
        "/v1/models/{model:path}",
        models.one_model,
        description.gotten(description.MODEL, 404, parameters=[description.MODEL_NAME]),
    ),
    ("/tokenizer_info", tokens.tokenizer_info, description.gotten(description.TOKENIZER, 503)),
    ("/forerun/settings", insight.settings, description.gotten(insight.SETTINGS, 503)),
    (
        "/forerun/theory",
        insight.theory,
        description.gotten(insight.THEORY, 400, parameters=insight.PARAMETERS),
    ),
)
_POST: Final[tuple[tuple[str, Handler, Endpoint], ...]] = (
    ("/v1/completions", completions.completions, Endpoint.COMPLETIONS),
    ("/v1/chat/completions", chat.chat_completions, Endpoint.CHAT),
    ("/v1/responses", responses.responses, Endpoint.RESPONSES),
    ("/v1/responses/input_tokens", tokens.input_tokens, Endpoint.INPUT_TOKENS),
    ("/v1/messages", messages.messages, Endpoint.MESSAGES),
    ("/v1/messages/count_tokens", messages.count_tokens, Endpoint.COUNT_TOKENS),
    ("/tokenize", tokens.tokenize, Endpoint.TOKENIZE),
    ("/detokenize", tokens.detokenize, Endpoint.DETOKENIZE),
)


def build_app(
    service: Service,
    keys: Keys,
    log: AccessLog,
    allowed_origins: Sequence[str] = (),
    *,
    is_local: bool = False,
    has_page: bool = True,
    root_path: str = "",
) -> ASGIApp:
    """Return the application. Paths work with and without `root_path`, as some proxies strip it.
    `is_local`: the server is for this machine alone, and needs no key."""
    posts = [(path, handler, description.posted(endpoint)) for path, handler, endpoint in _POST]
    described = description.whole(_GET, posts, root_path)

    async def openapi(_request: Request) -> Response:
        return JsonAnswer(described)

    gets = [("/openapi.json", openapi), *((path, handler) for path, handler, _ in _GET)]
    if has_page:
        gets += [("/", page.index), ("/page/{name:path}", page.asset)]
    app = Starlette(
        routes=[
            # The most used come first, as routes are tried in order.
            *(Route(path, handler, methods=["POST"]) for path, handler, _ in posts),
            *(Route(path, handler, methods=["GET"]) for path, handler in gets),
        ],
        exception_handlers={
            **dict.fromkeys((ApiError, ForerunError), api_error),
            Exception: unforeseen,
            HTTPException: http_error,
        },
    )
    app.router.redirect_slashes = False
    app.state.service = service
    origins = Origins(allowed_origins, is_local=is_local)

    def front(behind: ASGIApp) -> ASGIApp:
        return Front(behind, service, keys, origins, log, root_path, app.routes)

    if not allowed_origins:
        return front(app)
    return _shared(front, app, origins, allowed_origins)


def _shared(
    front: Callable[[ASGIApp], ASGIApp],
    app: ASGIApp,
    origins: Origins,
    allowed_origins: Sequence[str],
) -> ASGIApp:
    """Return the application with CORS, for pages of other origins.

    CORS surrounds the front, so that pages can read its errors, too. Preflights go through a front
    first, which logs them and refuses those of origins that are not allowed."""

    def shared(behind: ASGIApp) -> ASGIApp:
        return CORSMiddleware(
            behind,
            allow_origins=list(allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client for JavaScript sends a dozen of its own
            expose_headers=["x-request-id", "request-id", "retry-after"],
        )

    plain, asked_first = front(app), front(shared(app))
    readable = shared(plain)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_preflight(request := Request(scope)):
            await readable(scope, receive, send)
        else:
            await (asked_first if origins.allow(request) else plain)(scope, receive, send)

    return answer
