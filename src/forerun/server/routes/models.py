"""`/v1/models`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.routes.asked import service_of
from forerun.server.service import Service
from forerun.server.streaming import JsonAnswer


async def list_models(request: Request) -> Response:
    service = service_of(request)
    found = [_model(name, service) for name in service.names]
    return JsonAnswer({"object": "list", "data": found})


async def one_model(request: Request) -> Response:
    service = service_of(request)
    name = service.model_named(request.path_params["model"])
    return JsonAnswer(_model(name, service))


def _model(name: str, service: Service) -> dict[str, Any]:
    engine = service.loaded
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "forerun",
        "root": service.names[0],
        "max_model_len": None if engine is None else engine.max_model_len,
    }
