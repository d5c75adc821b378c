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
        self._digests = [_digest(key) for key in keys]

    def check(self, path: str, authorization: str | None) -> None:
        """Whether this path is open, or the header carries one of the keys."""
        if not self._digests or path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return
        scheme, _, given = (authorization or "").partition(" ")
        digest = _digest(given.strip())
        num_equal = sum(hmac.compare_digest(digest, known) for known in self._digests)
        if scheme.lower() != "bearer" or not num_equal:
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as Authorization: Bearer KEY.",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
