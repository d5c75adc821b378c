"""Accessibility and layout: labels, contrast, small screens, keyboards, dark mode."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.server.page.conftest import Open, configure, say
from tests.server.page.streams import event, put_before
from tests.server.serving import Running

pytestmark = pytest.mark.browser

AXE = Path(os.environ.get("FORERUN_AXE", ".browser/axe.min.js"))
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
GUESSED = event([("two", "accepted"), (" hats", "recovered")], [(-1, "two"), (0, " three")])


def findings(page: Any) -> list[str]:
    """Return axe's serious and critical violations, by rule and element."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']} at {node['target']}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(("screen", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_axe_finds_nothing_serious(
    server: Running, open_page: Open, screen: str, scheme: str
) -> None:
    if not AXE.exists():
        pytest.skip(f"there is no axe-core at {AXE}; `make test-page` fetches it")
    page = open_page(server.url, color_scheme=scheme, **(PHONE if screen == "phone" else {}))
    page.wait_for_selector(".status.ready")
    found = {"first screen": findings(page)}
    put_before(page, event([("one\n\n```py\nx = 1\n```\n\n- ", "plain")]), GUESSED)
    say(page, "words")
    page.locator(".answer .t.recovered").click()
    if screen == "phone":
        page.click("#open-insight")
    found["answer"] = findings(page)
    if screen == "phone":
        page.click("#insight-close")
        page.click("#open-side")
        found["menu"] = findings(page)
        page.click("#side-close")
    page.unroute("**/v1/chat/completions")
    page.click("#tab-race")
    page.fill("#race-prompt", "abc")
    page.fill("#race-tokens", "8")
    page.click("#race-start")
    page.wait_for_selector(".ratio")
    found["race"] = findings(page)
    page.click("#tab-theory")
    page.wait_for_selector("#curve-mine")
    found["theory"] = findings(page)
    assert {view: said for view, said in found.items() if said} == {}


def test_nothing_is_wider_than_the_screen(page: Any) -> None:
    put_before(page, event([("a" * 300 + "\n\n```\n" + "b" * 300 + "\n```\n", "plain")]), GUESSED)
    say(page, "c" * 300)
    for width in (320, 390, 768, 1100, 1360, 1920):
        page.set_viewport_size({"width": width, "height": 700})
        for view in ("chat", "race", "theory"):
            page.click(f"#tab-{view}")
            widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert widths[0] <= widths[1], (width, view)
        top = page.locator("header.top > *:visible").evaluate_all(
            "(all) => all.map((e) => e.getBoundingClientRect()).map((r) => [r.left, r.right])"
        )
        assert all(a[1] <= b[0] for a, b in pairwise(top)), (width, top)


def test_a_phone_reaches_everything(server: Running, open_page: Open) -> None:
    page = open_page(server.url, **PHONE)
    page.wait_for_selector(".status.ready")
    put_before(page, event([("one ", "plain")]), GUESSED)
    say(page, "words")
    page.locator(".answer .t.recovered").tap()
    assert page.locator("#card s").all_inner_texts() == ["␣three"]
    page.click("#open-insight")
    page.wait_for_function("() => getComputedStyle(insight).transform === 'none'")
    assert page.locator("#round .tree").is_visible()
    page.click("#insight-close")
    page.click("#open-side")
    page.wait_for_function("() => getComputedStyle(side).transform === 'none'")
    page.click("#new")
    assert page.locator("#welcome").is_visible()


def test_it_can_be_used_without_a_mouse(server: Running, open_page: Open) -> None:
    page = open_page(server.url)
    page.wait_for_selector(".status.ready")
    put_before(page, event([("one ", "plain")]), GUESSED)
    assert page.evaluate("document.activeElement.id") == "input"
    page.keyboard.type("words")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.assistant .tools")
    for _ in range(20):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.className") == "answer":
            break
    page.keyboard.press("ArrowLeft")
    assert page.locator("#card s").all_inner_texts() == ["␣three"]
    assert page.locator("#round .tree").is_visible()
    assert (
        "rejected here: ␣three" in page.locator("#announce").inner_text()
    )  # what screen readers announce


def test_nothing_above_moves_while_an_answer_grows(server: Running, open_page: Open) -> None:
    """The input box and the earlier messages stay where they are."""
    page = open_page(server.url)
    page.wait_for_selector(".status.ready")
    configure(page, **{"max-tokens": "60"})
    page.fill("#input", "abc")
    page.press("#input", "Enter")
    page.locator(".answer .t").first.wait_for()
    places = (
        "['.said', '#composer', '#figures']"
        ".map((s) => document.querySelector(s).getBoundingClientRect().top)"
    )
    before = page.evaluate(places)
    page.wait_for_selector(".message.assistant .tools")
    assert page.evaluate(places) == before
