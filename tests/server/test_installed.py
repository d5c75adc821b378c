"""Without a needed package the other tests of this room are not collected; this one says so."""

from __future__ import annotations

import pytest

from tests.server.conftest import MISSING


def test_what_the_server_needs_is_installed() -> None:
    if MISSING:
        pytest.skip(f"no test of the server runs here; install {', '.join(MISSING)}.")
