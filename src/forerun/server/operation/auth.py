"""API keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from forerun.server.errors import ApiError

OPEN_PATHS: Final = ("/health", "/ready", "/version", "/")  # probes and the page
OPEN_PREFIX: Final = "/page/"  # static files; the page asks its user for the key


class Keys:
    """Compares digests of keys, and always all of them, so that timing reveals nothing."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode("utf-8", "surrogateescape")) for key in keys]

    def check(self, path: str, authorization: str | None, api_key: str | None = None) -> None:
        """Raise `ApiError` unless the path is open or a header has one of the keys: `Authorization`
        as for OpenAI, or Anthropic's `X-Api-Key`."""
        if not self._digests or path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            return
        scheme, _, given = (authorization or "").partition(" ")
        is_bearer = scheme.lower() == "bearer" and self._knows(given.strip())
        if not is_bearer and (api_key is None or not self._knows(api_key)):
            raise ApiError(
                401,
                "the API key is missing or wrong; send it as Authorization: Bearer KEY, "
                "or as X-Api-Key: KEY.",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _knows(self, given: str) -> bool:
        """Whether a header's text, which has a character for each byte of UTF-8, is a key."""
        digest = _digest(given.encode("latin-1", "replace"))
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
