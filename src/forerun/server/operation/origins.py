"""Which web pages may ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request

from forerun.server.errors import ApiError

_READING: Final = ("GET", "HEAD", "OPTIONS")


class Origins:
    """Those that were named, and the server's own. Before a page's JSON is sent the browser asks
    whether it may; what a page calls plain text it sends, and only keeps the answer from it."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = frozenset(allowed)

    def check(self, request: Request) -> None:
        origin = request.headers.get("origin")
        if origin is None or request.method in _READING or {origin, "*"} & self._allowed:
            return
        if request.headers.get("content-type", "").startswith("application/json"):
            return
        host = origin.partition("://")[2]  # a proxy may speak another scheme than the browser
        if host and host in map(request.headers.get, ("host", "x-forwarded-host")):
            return
        raise ApiError(
            403,
            f"pages of {origin[:200]} may not ask here; allow them with --allowed-origin.",
            "origin_not_allowed",
        )
