"""API keys: who may ask."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from forerun.server.errors import ApiError

OPEN_PATHS: Final = ("/health", "/ready", "/version", "/")  # for those who only watch
OPEN_PREFIX: Final = "/page/"  # files of ours; the page itself asks for the key


class Keys:
    """Keys are compared by digest, each of them every time, so that time tells nothing."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode("utf-8", "surrogateescape")) for key in keys]

    def check(self, path: str, authorization: str | None) -> None:
        """Whether this path is open, or the header carries one of the keys. A header's text has a
        character for each byte; keys are sent as UTF-8."""
        if not self._digests or path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return
        scheme, _, given = (authorization or "").partition(" ")
        digest = _digest(given.strip().encode("latin-1", "replace"))
        num_equal = sum(hmac.compare_digest(digest, known) for known in self._digests)
        if scheme.lower() != "bearer" or not num_equal:
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as Authorization: Bearer KEY.",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
