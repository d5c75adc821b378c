"""A headless Chromium for the page's tests and pictures, driven through playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def path() -> str | None:
    given = os.environ.get("FORERUN_CHROMIUM")
    return given or next(filter(None, map(shutil.which, _NAMES)), None)


def missing() -> str | None:
    """Return why there is no browser; None if there is one."""
    if find_spec("playwright") is None:
        return "playwright is not installed; `make test-page` installs it"
    if path() is None:
        return "there is no Chromium; install the package chromium, or set FORERUN_CHROMIUM"
    return None


@contextmanager
def browser() -> Iterator[Any]:
    """Launch playwright's Browser; it is closed afterwards."""
    from playwright.sync_api import sync_playwright

    # The sandbox needs rights that containers and root do not have.
    options = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path(), args=options)
        yield launched
        launched.close()
