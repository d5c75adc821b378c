"""Which web pages may send requests."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.requests import Request

from forerun.server.errors import ApiError

_READING: Final = ("GET", "HEAD", "OPTIONS")


class Origins:
    """Refuses requests of pages from other origins than the `allowed` ones and the server's own.

    Browsers send a preflight before another origin's JSON, and refusing that is enough. What a page
    labels as plain text they send at once, only hiding the answer from the page, so its origin is
    checked here.

    `is_local`: the server is for this machine alone, so its own origin must have a loopback name.
    Otherwise a page whose domain was pointed at this machine would pass as the server's own.
    """

    def __init__(self, allowed: Sequence[str], *, is_local: bool = False) -> None:
        self._allowed = frozenset(allowed)
        self._is_local = is_local

    def allow(self, request: Request) -> bool:
        """Whether the page's origin is an allowed one."""
        return not self._allowed.isdisjoint((request.headers.get("origin", ""), "*"))

    def check(self, request: Request) -> None:
        headers = request.headers
        origin, asks_first = headers.get("origin", ""), is_preflight(request)
        is_harmless = request.method in _READING and not asks_first
        if not origin or is_harmless or self.allow(request):
            return
        host = _host(origin.partition("://")[2])  # a proxy may change the scheme
        forwarded = headers.get("x-forwarded-host", "").partition(",")[0]
        is_own = bool(host) and host in map(_host, (headers.get("host", ""), forwarded))
        kind = headers.get("content-type", "").lower()
        is_json = kind.startswith("application/json") and not asks_first
        if is_own and self._is_local and not is_loopback(host):
            is_own = is_json = False
        if is_own or is_json:
            return
        raise ApiError(
            403,
            f"pages of {origin[:200]} may not ask here; allow them with --allowed-origin.",
            "origin_not_allowed",
        )


def is_preflight(request: Request) -> bool:
    """Whether this is a browser's preflight, which never has a key."""
    return request.method == "OPTIONS" and "access-control-request-method" in request.headers


def is_loopback(host: str) -> bool:
    """Whether a host, with or without a port, is a loopback address or name."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host
    name = name.rpartition(":")[0] if name.count(":") == 1 else name
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _host(name: str) -> str:
    """Return a host in lower case, without a default port."""
    return name.strip().lower().removesuffix(":80").removesuffix(":443")
