"""`/health`, `/ready`, `/version` and `/metrics`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.errors import unavailable
from forerun.server.routes.asked import service_of
from forerun.server.service import State
from forerun.server.streaming import JsonAnswer
from forerun.version import VERSION


async def health(request: Request) -> Response:
    """Whether the server is alive: 503 only if an engine step hangs, or its thread has ended."""
    service = service_of(request)
    engine = service.loaded
    if engine is not None and not engine.is_healthy and service.state is State.READY:
        raise unavailable("the engine does not come back from a step; restart the server.")
    return JsonAnswer({"status": "ok"})


async def ready(request: Request) -> Response:
    service = service_of(request)
    assert service.engine is not None  # it raises while the server loads or drains
    return JsonAnswer({"status": "ready", "model": service.names[0]})


async def version(_request: Request) -> Response:
    return JsonAnswer({"version": VERSION})


async def metrics(request: Request) -> Response:
    counters = service_of(request).counters
    return Response(counters.exposition(), media_type=counters.content_type)
