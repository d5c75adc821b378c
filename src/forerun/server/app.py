"""The application: which address leads where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from forerun.errors import ForerunError
from forerun.server import description
from forerun.server.errors import ApiError
from forerun.server.fields import Endpoint
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.front import Front, api_error, http_error
from forerun.server.routes import (
    chat,
    completions,
    insight,
    models,
    page,
    probes,
    responses,
    tokens,
)
from forerun.server.service import Service
from forerun.version import VERSION

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
    ("/tokenize", tokens.tokenize, Endpoint.TOKENIZE),
    ("/detokenize", tokens.detokenize, Endpoint.DETOKENIZE),
)


def build_app(
    service: Service,
    keys: Keys,
    log: AccessLog,
    allowed_origins: Sequence[str] = (),
    *,
    has_page: bool = True,
    root_path: str = "",
) -> ASGIApp:
    """Paths are the same with and without `root_path` before them: some proxies leave it out."""
    app = FastAPI(
        title="Forerun",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": root_path}] if root_path else None,
    )
    app.state.service = service
    posts = [(path, handler, description.posted(endpoint)) for path, handler, endpoint in _POST]
    for method, routes in (("GET", _GET), ("POST", posts)):
        for path, handler, described in routes:
            app.add_api_route(
                path,
                handler,
                methods=[method],
                operation_id=handler.__name__,
                openapi_extra=described,
            )
    if has_page:
        for path, handler in (("/", page.index), ("/page/{name:path}", page.asset)):
            app.add_api_route(path, handler, methods=["GET"], include_in_schema=False)
    for kind in (ApiError, ForerunError, Exception):
        app.add_exception_handler(kind, api_error)
    app.add_exception_handler(HTTPException, http_error)
    front: ASGIApp = Front(app, service, keys, log, root_path)
    if allowed_origins:
        front = CORSMiddleware(
            front,
            allow_origins=list(allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # OpenAI's client for JavaScript sends a dozen of its own
            expose_headers=["x-request-id"],
        )
    return front
