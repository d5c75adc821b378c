"""Fixtures and settings that the tests of several rooms share."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import typer.main
import typer.testing
from filelock import FileLock

from forerun.engine import LLM
from forerun.models.download.pull import pull
from tests.contracts.kernel_sets import CACHE_DIR
from tests.tiny_model import JSON_LETTERS, MARKS, write_tiny_model

# The developer's terminal must not decide how wide or colourful printed tables are.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)

# No deadline: shared machines pause for seconds. Half the usual number of examples, as every run
# draws new ones.
hypothesis.settings.register_profile("patient", deadline=None, max_examples=50)
hypothesis.settings.load_profile("patient")

# Building the command tree takes as long as most tests of a command, so it is built once.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """Exempt all imported objects from garbage collection: no later collection scans them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file; downloaded once, then kept in the cache directory."""
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE_DIR / "pull.lock"):  # one test worker downloads, the others wait
        return pull("smollm2-135m")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let ^C raise, as it does in a terminal; a shell ignores it for its background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random target."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "target", seed=0)


@pytest.fixture(scope="session")
def tiny_json_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random target that can write JSON."""
    folder = tmp_path_factory.mktemp("models") / "target"
    return write_tiny_model(folder, seed=0, letters=JSON_LETTERS)


@pytest.fixture(scope="session")
def tiny_reasoning_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random target that can write JSON and has tokens for the reasoning marks."""
    folder = tmp_path_factory.mktemp("models") / "target"
    return write_tiny_model(folder, seed=0, letters=JSON_LETTERS, added=MARKS, max_len=512)


@pytest.fixture(scope="session")
def tiny_draft_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A smaller random model with the target's tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "draft"
    return write_tiny_model(folder, seed=1, num_layers=1)


@pytest.fixture(scope="session")
def plain(tiny_path: Path) -> LLM:
    """The small target without speculation.

    One thread: with passes of microseconds a second one would busy-wait on a core that other
    tests need.
    """
    return LLM(tiny_path, speculative_config=None, num_threads=1)
