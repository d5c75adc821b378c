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
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)

    def check(self, request: Request) -> None:
        headers = request.headers
        origin = headers.get("origin", "").lower()
        if not origin or request.method in _READING or {origin, "*"} & self._allowed:
            return
        if headers.get("content-type", "").lower().startswith("application/json"):
            return
        host = _host(origin.partition("://")[2])  # a proxy may speak another scheme
        forwarded = headers.get("x-forwarded-host", "").partition(",")[0]
        if host and host in map(_host, (headers.get("host", ""), forwarded)):
            return
        raise ApiError(
            403,
            f"pages of {origin[:200]} may not ask here; allow them with --allowed-origin.",
            "origin_not_allowed",
        )


def _host(name: str) -> str:
    """Without a port that need not be said."""
    return name.strip().lower().removesuffix(":80").removesuffix(":443")
