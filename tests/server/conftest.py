"""One server for most tests: a tiny model, several drafters, four requests at once."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.serving import Running

NEEDED = (
    "starlette",
    "uvicorn",
    "prometheus_client",
    "httpx",
    "openai",
    "anthropic",
    "schemathesis",
)
MISSING = [name for name in NEEDED if find_spec(name) is None]
collect_ignore_glob = (
    ["test_[!i]*.py", "test_id*.py", "page/*", "clients/*"] if MISSING else []
)  # test_installed.py reports it

# A fixed depth: guesses must not depend on this machine's speed.
SPECULATION = (
    '{"method": "choice", "methods": ["suffix", "ngram_tables", "random"], "adaptive": false, '
    '"num_speculative_tokens": 4, "num_branches": 2}'
)


@pytest.fixture(scope="session")
def server(tiny_path: Path) -> Iterator[Running]:
    from tests.server.serving import serving

    # Imported early: Python 3.11 may fail to compile it deep inside a running loop (gh-106905).
    import_module("anyio._backends._asyncio")
    options = ("--max-num-seqs", "4", "--kernels", "reference", "--max-num-waiting", "60")
    with serving(tiny_path, "--speculative-config", SPECULATION, *options) as running:
        yield running
