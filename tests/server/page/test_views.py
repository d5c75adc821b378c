"""Race and theory in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.server.page.conftest import Open, configure, say
from tests.server.page.streams import event, put_before, put_before_endless
from tests.server.serving import Running, serving

pytestmark = pytest.mark.browser


def test_a_race_to_its_finish(page: Any) -> None:
    bodies: list[Any] = []
    page.on("request", lambda r: bodies.append(r.post_data_json) if r.method == "POST" else None)
    page.click("#tab-race")
    page.fill("#race-prompt", "abc abc abc")
    page.fill("#race-tokens", "30")
    page.click("#race-start")
    page.wait_for_selector(".ratio")
    assert re.search(r"\d\.\d\d×", page.locator(".ratio").inner_text())
    assert "identical tokens: all" in page.locator("#race-result .same").inner_text()
    assert page.locator(".lane.home").count() == 2
    texts = page.locator(".lane-text").all_inner_texts()
    assert texts[0] == texts[1] != ""
    plain, speculative = bodies
    assert plain.pop("speculative") is False
    assert plain.pop("cache_salt") != speculative.pop("cache_salt")
    assert plain == speculative


def test_an_edit_race(page: Any) -> None:
    bodies: list[Any] = []
    page.on("request", lambda r: bodies.append(r.post_data_json) if r.method == "POST" else None)
    page.click("#tab-race")
    page.check("[name=race][value=edit]")
    page.fill("#race-instruction", "again:")
    page.fill("#race-text", "abc abc abc")
    page.fill("#race-tokens", "30")
    page.click("#race-start")
    page.wait_for_selector(".ratio")
    assert "identical tokens" in page.locator("#race-result .same").inner_text()
    without, with_text = bodies
    assert "prediction" not in without
    assert with_text["prediction"] == {"type": "content", "content": "abc abc abc"}
    assert with_text["messages"][0]["content"] == "again:\n\nabc abc abc"


def test_a_race_that_differs_says_so(page: Any) -> None:
    """If the two texts ever differ, which the promise excludes, the page shows it as a failure."""
    ids = iter(("[1, 2, 3]", "[1, 9, 3]"))

    def answer(route: Any) -> None:
        choice = f'{{"delta": {{"content": "x"}}, "token_ids": {next(ids)}}}'
        body = f'data: {{"choices": [{choice}], "usage": null}}\n\ndata: [DONE]\n\n'
        route.fulfill(content_type="text/event-stream", body=body)

    page.route("**/v1/chat/completions", answer)
    page.click("#tab-race")
    page.click("#race-start")
    page.wait_for_selector(".ratio")
    assert "differ from token 2 on" in page.locator("#race-result .failed").inner_text()


def test_a_race_can_be_stopped(page: Any) -> None:
    put_before_endless(page, event([("token", "plain")], token_ids=[1]))
    page.click("#tab-race")
    page.click("#race-start")
    page.wait_for_selector(".lane-text:has-text('token')")
    page.click("#race-start.stop")
    page.wait_for_selector("text=Stopped before the finish")
    assert page.locator("#race-start").inner_text() == "Start"


def slide(page: Any, name: str, value: str) -> None:
    setter = "(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }"
    page.locator(f"#{name}").evaluate(setter, value)


def test_sliders_move_the_curve(page: Any) -> None:
    page.click("#tab-theory")
    page.wait_for_selector("#curve-mine")
    assert "no v(γ)" in page.locator("#measured").inner_text()
    seen = {page.get_attribute("#curve-mine", "d")}
    for name, value in (("alpha", "0.9"), ("cost", "0.3"), ("slope", "0.5")):
        before = page.get_attribute("#curve-mine", "d")
        slide(page, name, value)
        page.wait_for_function(
            "(d) => document.querySelector('#curve-mine').getAttribute('d') !== d", arg=before
        )
        seen.add(page.get_attribute("#curve-mine", "d"))
    assert len(seen) == 4
    slide(page, "alpha", "0.1")
    page.wait_for_selector("#meaning:has-text('No depth up to 16 helps')")


def test_this_machine_and_this_conversation_are_on_it(open_page: Open, guarded: Running) -> None:
    """The controller gives the measured v(γ); guesses give the conversation its point."""
    page = open_page(guarded.url, allow="401 (Unauthorized)")
    page.fill("#key", "secret")
    page.click("text=Use it")
    page.wait_for_selector(".status.ready")
    page.click("#tab-theory")
    page.wait_for_selector("#curve-machine")
    assert "v(1) = " in page.locator("#measured").inner_text()
    assert page.locator("#here").count() == 0
    page.click("#tab-chat")
    put_before(page, event([("two", "accepted"), (" hats", "recovered")], [(-1, "two"), (0, "x")]))
    say(page, "anything")
    page.click("#tab-theory")
    page.wait_for_selector("#here")
    told = page.locator("#curve-legend .here").inner_text()
    assert told.startswith("this conversation: α 0.50, depth 2: ")
    page.click("#use-alpha")
    page.wait_for_selector("#alpha-out:text-is('0.50')")


def test_it_works_below_a_path_of_a_proxy(browser: Any, tiny_path: Path, open_page: Open) -> None:
    assert browser is not None
    with serving(tiny_path, "--kernels", "reference", "--root-path", "/llm") as running:
        page = open_page(running.url + "/llm")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.wait_for_selector(".status.ready")
        configure(page)
        assert say(page, "abc")
        page.click("#tab-theory")
        page.wait_for_selector("#curve svg")
        assert asked
        assert all(url.startswith(f"{running.url}/llm/") for url in asked), asked


def test_tabs_by_keyboard_and_by_address(server: Running, open_page: Open) -> None:
    page = open_page(server.url, path="/#theory")
    page.wait_for_selector("#curve-mine")
    page.locator("#tab-theory").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#view-chat").is_visible()
    assert page.locator("#view-theory").is_hidden()
    assert page.evaluate("document.activeElement.id") == "tab-chat"
