"""The page in a real Chromium: no error on its console, no request to another host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import chromium
from tests.server.serving import Running, serving

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = chromium.missing()
    if reason:
        pytest.skip(reason)
    with chromium.browser() as found:
        yield found


@pytest.fixture(scope="session")
def guarded(browser: Any, tiny_path: Path) -> Iterator[Running]:
    """A server with the key "secret" and with a controller, which measures; needs a browser."""
    assert browser is not None
    with serving(tiny_path, "--kernels", "reference", "--api-key", "secret", wait=True) as running:
        yield running


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Return a function that opens a URL with browser-context options; the console may print
    nothing but `allow`."""
    contexts, complaints = [], list[str]()

    def opened(url: str, *, path: str = "/", allow: str | None = None, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)

        def hear(message: Any) -> None:
            if message.type in ("error", "warning") and not (allow and allow in message.text):
                complaints.append(message.text)

        def sent(request: Any) -> None:
            if url.startswith("http") and not request.url.startswith((url, "blob:")):
                complaints.append(f"a request to {request.url}")

        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", sent)
        page.goto(url + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(server: Running, open_page: Open) -> Any:
    """The chat page, ready and set to short answers."""
    found = open_page(server.url)
    found.wait_for_selector(".status.ready")
    configure(found)
    return found


def configure(page: Any, **fields: str) -> None:
    """Fill in settings, also in folded panels."""
    values = {"max-tokens": "40", "seed": "7", "temperature": "0.9", **fields}
    page.evaluate(
        "(values) => { for (const id in values) document.getElementById(id).value = values[id]; }",
        values,
    )


def say(page: Any, words: str) -> str:
    """Type, send and wait for the end; return the answer that the page shows."""
    page.fill("#input", words)
    page.press("#input", "Enter")
    wait_for_end(page)
    return answer_of(page)


def wait_for_end(page: Any) -> None:
    page.wait_for_function(
        "() => document.querySelector('#send').textContent === 'Send' "
        "&& document.querySelector('.message.assistant .tools')"
    )


def answer_of(page: Any) -> str:
    return str(page.locator(".answer").last.evaluate("(e) => e.textContent"))
