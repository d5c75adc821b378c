"""Reads a request's body, within the server's limits."""

from __future__ import annotations

from typing import Final

from starlette.requests import ClientDisconnect, Request

from forerun.server.errors import ApiError, shutting_down
from forerun.server.service import Service

_SPARE_BYTES: Final = 1 << 20


async def read_body(request: Request, service: Service) -> bytes:
    """Return the body; `ApiError` if it is compressed or too long, or if it does not arrive in time
    or before the server gives up waiting."""
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() != "identity":
        raise ApiError(
            415, f"the body is packed as {packed[:64]}; send it as it is.", "packed_body"
        )
    try:
        async with service.time_for_a_body():
            return await _read_bytes(request, service.limits.max_body_bytes)
    except TimeoutError:
        if service.has_given_up:
            raise shutting_down() from None
        raise ApiError(
            408,
            f"the body did not arrive within {service.limits.body_timeout_s:g} s; send it at once.",
            "body_timeout",
            headers={"Connection": "close"},
            num_dropped_bytes=_SPARE_BYTES,
        ) from None


async def _read_bytes(request: Request, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_long(max_bytes)
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise _too_long(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect:
        raise ApiError(499, "the client left before its body was complete.", "left") from None
    return b"".join(chunks)


def _too_long(max_bytes: int) -> ApiError:
    return ApiError(
        413,
        f"the body is longer than {max_bytes} bytes; send less, or raise --max-body-bytes.",
        "body_too_long",
        headers={"Connection": "close"},
        num_dropped_bytes=max_bytes + _SPARE_BYTES,
    )
