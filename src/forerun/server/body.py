"""A request's body, as far as limits allow."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from forerun.server.errors import ApiError

_SPARE_BYTES: Final = 1 << 20


async def read_body(request: Request, max_bytes: int, timeout_s: float) -> bytes:
    """A body that is too long or never ends is cut off."""
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() != "identity":
        raise ApiError(
            415, f"the body is packed as {packed[:64]}; send it as it is.", "packed_body"
        )
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_bytes(request, max_bytes)
    except TimeoutError:
        raise ApiError(
            408,
            f"the body did not arrive within {timeout_s:g} s; send it at once.",
            "body_timeout",
            headers={"Connection": "close"},
        ) from None


async def _read_bytes(request: Request, max_bytes: int) -> bytes:
    """What goes on a little past the limit is read and dropped: a client that still sends when
    the connection closes never sees why."""
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes <= max_bytes:
                chunks.append(chunk)
            elif num_bytes > 2 * max_bytes + _SPARE_BYTES:
                break
    except ClientDisconnect:
        raise ApiError(499, "the client left before its body was complete.", "left") from None
    if num_bytes > max_bytes:
        raise ApiError(
            413,
            f"the body is longer than {max_bytes} bytes; send less, or raise --max-body-bytes.",
            "body_too_long",
            headers={"Connection": "close"},
        )
    return b"".join(chunks)
