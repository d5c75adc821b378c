"""Take the pictures of the page in docs/images: make pictures (needs SmolLM2 and a Chromium)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from PIL import Image

import chromium

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
_DESKTOP: Final = {"viewport": {"width": 1280, "height": 800}}
_PHONE: Final = {
    "viewport": {"width": 390, "height": 780},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
_PROMPT: Final = "[data-idea^='Write a Python class']"
# Settings that make the pictures reproducible.
_SETTINGS: Final = {"temperature": "0", "max-tokens": "230"}


def main() -> None:
    reason = chromium.missing()
    if reason:
        sys.exit(f"{reason}.")
    FOLDER.mkdir(exist_ok=True)
    serve = [sys.executable, "-m", "forerun", "serve", "--port", "0", "--no-access-log"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("listening on ").strip()
        try:
            with chromium.browser() as browser:
                take_all(browser, url)
        finally:
            process.terminate()


def take_all(browser: Any, url: str) -> None:
    page = opened(browser, url, **_DESKTOP)
    take(page, "page-first")
    answered(page)
    look(page)
    take(page, "page-desktop")
    page.click("#tab-race")
    page.click("#race-start")
    page.wait_for_selector(".ratio", timeout=120_000)
    take(page, "page-race")
    page.click("#tab-theory")
    page.wait_for_selector("#here")
    take(page, "page-theory")
    page = opened(browser, url, color_scheme="dark", **_DESKTOP)
    answered(page)
    look(page)
    take(page, "page-dark")
    page = opened(browser, url, **_PHONE)
    answered(page)
    look(page)
    take(page, "page-phone")


def opened(browser: Any, url: str, **options: Any) -> Any:
    page = browser.new_context(**options).new_page()
    page.goto(url)
    page.wait_for_selector(".status.ready", timeout=120_000, state="attached")
    return page


def answered(page: Any) -> None:
    fill = (
        "(values) => { for (const id in values) document.getElementById(id).value = values[id]; }"
    )
    page.evaluate(fill, _SETTINGS)
    page.click(_PROMPT)
    page.click("#send")
    page.wait_for_selector(".message.assistant .tools", timeout=120_000)


def look(page: Any) -> None:
    """Hover over, or tap, a visible token that replaced a guess."""
    tokens = page.locator(".answer .t.accepted + .t.recovered")
    places = tokens.evaluate_all("(all) => all.map((e) => e.getBoundingClientRect())")
    width, height = page.viewport_size["width"], page.viewport_size["height"]
    seen = [
        at
        for at, place in enumerate(places)
        if place["right"] < min(width, 560) and 60 < place["top"] < 0.62 * height
    ]
    token = tokens.nth(seen[-1])
    token.hover() if width > 600 else token.tap()


def take(page: Any, name: str) -> None:
    page.wait_for_timeout(400)  # until animations have ended
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    with Image.open(path) as picture:  # a third of the size, without a visible difference
        picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
