"""What every generating route does with a body before its own part."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forerun.server.answers.form import Whole
from forerun.server.body import read_json
from forerun.server.fields import Endpoint, read_fields
from forerun.server.service import Service
from forerun.server.streaming import EventStream, JsonAnswer, left_by

Events = Callable[[Any], AsyncIterator[bytes]]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def read_given(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """The fields of the body, checked."""
    limits = service_of(request).limits
    body = await read_json(request, limits.max_body_bytes, limits.body_timeout_s)
    return read_fields(endpoint, body, lenient=limits.lenient_fields)


def identity(given: Mapping[str, Any], prefix: str, service: Service) -> dict[str, Any]:
    """Of an answer: its id, when, and who."""
    engine = service.engine
    return {
        "id": f"{prefix}{given.get('request_id') or uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": service.model_named(given.get("model")),
        "fingerprint": service.fingerprint,
        "tokenizer": engine.tokenizer,
    }


async def answered(request: Request, form: Whole, *, streams: bool, events: Events) -> Response:
    """Bit by bit, or whole."""
    service, group = service_of(request), form.group
    service.counters.watch(group)
    request.state.group = group  # for the access log
    if streams:
        return EventStream(events(form), group.close, service.limits.reader_timeout_s)
    with left_by(request.receive, group.close):
        return JsonAnswer(form.whole(await group.whole()))
