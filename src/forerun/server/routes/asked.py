"""What all routes share: reading a body before their own part, and sending the answer after it."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.answers.form import Whole
from forerun.server.answers.group import Group
from forerun.server.body import read_body
from forerun.server.fields import Endpoint, read_fields
from forerun.server.json_text import parse_json
from forerun.server.operation.protocol import Direct
from forerun.server.question import Question
from forerun.server.service import Lane, Service
from forerun.server.streaming import COMMENT, DIRECT, EventStream, JsonAnswer, left_by, made
from forerun.server.structured import may_take_long

Result = TypeVar("Result")
Given = Mapping[str, Any]  # the fields of a body, checked
Read = Callable[[Given, Service, AsyncEngine], tuple[Question, Callable[[Group], Whole]]]
Events = Callable[[Any, Direct], AsyncIterator[bytes]]


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def made_of(
    request: Request, endpoint: Endpoint, make: Callable[[Given, Service, AsyncEngine], Result]
) -> Result:
    """Return what `make` returns for the body's fields. Parsing and `make` run in worker threads: a
    body of some megabytes takes seconds, in which no stream would advance."""
    service = service_of(request)
    engine, limits = service.engine, service.limits
    body = await read_body(request, service)

    given: Given = {}

    def read() -> Result | None:
        nonlocal given
        given = read_fields(endpoint, parse_json(body), lenient=limits.lenient_fields)
        service.model_named(given.get("model"))
        return None if may_take_long(given) else make(given, service, engine)

    found = await service.read(read, Lane.of(body))
    if found is None:
        found = await service.read(lambda: make(given, service, engine), Lane.GRAMMAR)
    return found


def identity(given: Given, prefix: str, service: Service, engine: AsyncEngine) -> dict[str, Any]:
    """Return what identifies an answer: its id, its time, and the model."""
    return {
        "id": f"{prefix}{given.get('request_id') or uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": service.model_named(given.get("model")),
        "fingerprint": service.fingerprint,
        "tokenizer": engine.tokenizer,
    }


async def answered(
    request: Request, endpoint: Endpoint, read: Read, events: Events, ping: bytes = COMMENT
) -> Response:
    """Answer a request, as a stream or whole. `ping` is an event without meaning."""
    service = service_of(request)
    engine = service.engine
    question, form_of = await made_of(request, endpoint, read)
    group = question.ask(engine, service.limits.request_timeout_s)
    form = form_of(group)
    service.counters.watch(group, request.state.began)
    request.state.group = group  # for the access log
    if question.streams:
        told = events(form, request.scope[DIRECT])
        limits = service.limits
        times = limits.reader_timeout_s, ping, limits.sse_ping_interval_s
        return EventStream(told, group.close, *times)
    with left_by(request.receive, group.close):
        deltas = await group.whole()
        # Log-probabilities of a long text are megabytes of JSON.
        return await made(lambda: JsonAnswer(form.whole(deltas)), is_long=form.shows_more)
