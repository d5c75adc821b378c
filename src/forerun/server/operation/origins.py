"""Which web pages may ask."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.requests import Request

from forerun.server.errors import ApiError

_READING: Final = ("GET", "HEAD", "OPTIONS")


class Origins:
    """Those that were named, and the server's own. Before a page's JSON is sent the browser asks
    whether it may (a preflight); what a page calls plain text it sends, and only keeps the answer
    from it.

    A name that anyone may point at this machine is not the server's own where it `is_local`, for
    this machine alone: a page whose name was so moved would ask as if it were ours.
    """

    def __init__(self, allowed: Sequence[str], *, is_local: bool = False) -> None:
        self._allowed = frozenset(allowed)
        self._is_local = is_local

    def allow(self, request: Request) -> bool:
        """Whether its page was named."""
        return not self._allowed.isdisjoint((request.headers.get("origin", ""), "*"))

    def check(self, request: Request) -> None:
        headers = request.headers
        origin, asks_first = headers.get("origin", ""), is_preflight(request)
        is_harmless = request.method in _READING and not asks_first
        if not origin or is_harmless or self.allow(request):
            return
        host = _host(origin.partition("://")[2])  # a proxy may speak another scheme
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
    """Whether a browser asks if a page may ask; it never sends a key with that."""
    return request.method == "OPTIONS" and "access-control-request-method" in request.headers


def is_loopback(host: str) -> bool:
    """Whether a host, with a port or without one, is a name of the machine itself."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host
    name = name.rpartition(":")[0] if name.count(":") == 1 else name
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _host(name: str) -> str:
    """Without a port that need not be said."""
    return name.strip().lower().removesuffix(":80").removesuffix(":443")
