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

    def check(self, path: str, authorization: str | None, api_key: str | None = None) -> None:
        """Whether this path is open, or one of two headers carries one of the keys: `Authorization`
        as OpenAI has it, or Anthropic's `X-Api-Key`."""
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
        """A header's text has a character for each byte; keys are sent as UTF-8."""
        digest = _digest(given.encode("latin-1", "replace"))
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
