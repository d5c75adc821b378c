"""The service that all routes share, without a server around it."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from forerun.engine import AsyncEngine
from forerun.server.app import build_app
from forerun.server.errors import ApiError
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.config import Limits
from forerun.server.operation.counters import Counters
from forerun.server.service import Lane, Service
from tests.server.test_routes import error_of


def test_a_failure_inside_a_route_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_counters: Counters) -> bytes:
        raise RuntimeError("secret")

    monkeypatch.setattr(Counters, "exposition", broken)
    service = Service(("a",), Limits(), Counters(lambda: None))
    served = build_app(service, Keys(()), AccessLog(None))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get("/metrics", headers={"X-Request-Id": "mine"})

    error_of(asyncio.run(ask()), 500)
    assert caplog.text.count("request mine failed") == 1
    assert caplog.text.count("RuntimeError: secret") == 1


def test_bodies_that_wait_to_be_read_are_bounded() -> None:
    """Two requests may be open, so the third body in a lane gets 429; other lanes have room."""
    service = Service(("a",), Limits(), Counters(lambda: None))
    service.start(cast(AsyncEngine, SimpleNamespace(max_num_open=2)), "")
    read = threading.Event()

    async def ask() -> None:
        waiting = [asyncio.create_task(service.read(read.wait, Lane.SHORT)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="wait to be read") as refused:
            await asyncio.wait_for(service.read(lambda: None, Lane.SHORT), 5)
        assert refused.value.status == 429
        assert await service.read(lambda: 7, Lane.LONG) == 7
        read.set()
        await asyncio.gather(*waiting)
        assert await service.read(lambda: 7, Lane.GRAMMAR) == 7

    try:
        asyncio.run(ask())
    finally:
        read.set()
        service.close()
