"""The application: which address leads where."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from forerun.errors import ForerunError
from forerun.server.errors import ApiError
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.front import Front, api_error, http_error
from forerun.server.routes import chat, completions, models, probes
from forerun.server.service import Service
from forerun.version import VERSION


def build_app(
    service: Service, keys: Keys, log: AccessLog, allowed_origins: Sequence[str] = ()
) -> ASGIApp:
    app = FastAPI(
        title="Forerun", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.service = service
    add = app.add_api_route
    add("/health", probes.health, methods=["GET"])
    add("/ready", probes.ready, methods=["GET"])
    add("/version", probes.version, methods=["GET"])
    add("/metrics", probes.metrics, methods=["GET"])
    add("/v1/models", models.list_models, methods=["GET"])
    add("/v1/models/{model:path}", models.one_model, methods=["GET"])
    add("/v1/completions", completions.completions, methods=["POST"])
    add("/v1/chat/completions", chat.chat_completions, methods=["POST"])
    for kind in (ApiError, ForerunError, Exception):
        app.add_exception_handler(kind, api_error)
    app.add_exception_handler(HTTPException, http_error)
    front: ASGIApp = Front(app, service, keys, log)
    if allowed_origins:
        front = CORSMiddleware(
            front,
            allow_origins=list(allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id"],
        )
    return front
