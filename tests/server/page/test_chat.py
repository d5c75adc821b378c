"""Chat in a browser: type, stream, look, stop, regenerate, edit, keep, export."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.page.conftest import Open, answer_of, configure, say, wait_for_end
from tests.server.page.streams import event, put_before, put_before_endless
from tests.server.serving import Running

pytestmark = pytest.mark.browser
WORDS = "abc abc abc abc"


def test_the_first_screen_explains_itself(page: Any) -> None:
    shown = page.locator("#welcome").inner_text()
    for word in ("drafter", "one pass", "plain", "accepted", "recovered", "bonus"):
        assert word in shown
    page.click("[data-idea] >> nth=0")
    assert page.input_value("#input")


def test_an_answer_streams_tinted_and_is_the_servers(page: Any, server: Running) -> None:
    configure(page, method="suffix")
    shown = say(page, WORDS)
    messages = [{"role": "user", "content": WORDS}]
    whole = server.ask(
        "/v1/chat/completions",
        messages=messages,
        max_tokens=40,
        seed=7,
        temperature=0.9,
    )
    page.uncheck("#markdown")
    expected = whole["choices"][0]["message"]["content"]
    assert answer_of(page) == expected
    assert len(shown) > 10
    origins = page.locator(".answer .t").evaluate_all("(all) => all.map((one) => one.classList[1])")
    assert set(origins) >= {"accepted", "recovered", "plain"}
    painted = "(e) => getComputedStyle(e).backgroundColor"
    accepted = page.locator(".answer .t.accepted").first
    tint = accepted.evaluate(painted)
    page.uncheck("#tint")
    assert accepted.evaluate(painted) != tint
    saved = page.locator("[data-figure=saved]").inner_text()
    told = whole["usage"]["completion_tokens"]
    assert saved.endswith(f"of {told}")
    assert page.locator(".bars .bar").count() >= 1
    assert page.locator(".depths .depth").count() == 1


def test_a_token_shows_its_round_and_what_was_rejected(page: Any) -> None:
    guesses = [(-1, "two"), (0, " three"), (0, " tree"), (-1, "zwo")]
    put_before(
        page,
        event([("one ", "plain")]),
        event([("two", "accepted"), (" hats", "recovered")], guesses),
    )
    say(page, "anything")
    page.hover(".answer .t.recovered")
    card = page.locator("#card").inner_text()
    assert "round 2" in card
    assert "61 %" in card  # e^-0.5
    assert page.locator("#card s").all_inner_texts() == ["␣three", "␣tree"]
    nodes = page.locator("#round .tree .node")
    assert nodes.count() == 6  # the root, four guesses, the token that replaced them
    assert page.locator("#round .node.accepted").count() == 1
    assert page.locator("#round .node.rejected").count() == 3
    assert page.locator("#round .node.recovered").count() == 1
    page.hover(".answer .t.accepted")
    assert page.locator("#card s").all_inner_texts() == ["zwo"]
    page.locator(".answer").focus()
    page.keyboard.press("ArrowLeft")
    assert "round 1" in page.locator("#card").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()


def test_random_guesses_are_rejected_by_a_real_model(page: Any) -> None:
    configure(page, method="random")
    say(page, WORDS)
    page.locator(".answer .t.recovered").first.hover()
    assert page.locator("#card s").count() >= 1
    assert page.locator("#round .node.rejected").count() >= 1


def test_stop_and_regenerate(page: Any, server: Running) -> None:
    configure(page, **{"max-tokens": "200"})
    page.fill("#input", "abc")
    page.press("#input", "Enter")
    page.locator(".answer .t").first.wait_for()
    page.click("#send")
    wait_for_end(page)
    stopped = answer_of(page)
    server.wait_for("forerun:num_requests_running", 0)
    configure(page, seed="8")
    page.click("text=Regenerate")
    is_other = "(old) => [...document.querySelectorAll('.answer')].pop()?.textContent !== old"
    page.wait_for_function(is_other, arg=stopped)
    wait_for_end(page)
    assert page.locator(".message.assistant").count() == 1
    assert answer_of(page) not in ("", stopped)


def test_markdown_can_be_switched_while_it_streams(page: Any) -> None:
    configure(page, **{"max-tokens": "200"})
    page.fill("#input", "abc")
    page.press("#input", "Enter")
    page.locator(".answer .t").first.wait_for()
    page.uncheck("#markdown")
    wait_for_end(page)
    told = "JSON.parse(localStorage.getItem('forerun.conversations'))[0].messages[1].content"
    assert answer_of(page) == page.evaluate(told) != ""


def test_edit_and_resend(page: Any) -> None:
    say(page, "first words")
    say(page, "second words")
    assert page.locator(".message").count() == 4
    page.click(".message.user >> nth=0 >> text=Edit")
    page.fill(".message.user textarea", "other words")
    page.click("text=Send again")
    wait_for_end(page)
    assert page.locator(".said").all_inner_texts() == ["other words"]


def test_a_question_is_edited_while_it_is_answered(page: Any) -> None:
    put_before_endless(page, event([("token", "plain")]))
    page.fill("#input", "first words")
    page.press("#input", "Enter")
    page.locator(".answer .t").first.wait_for()
    page.click(".message.user >> text=Edit")
    page.fill(".message.user textarea", "other words")
    page.click("text=Send again")
    page.locator(".said:text-is('other words')").wait_for()
    page.locator(".answer .t").first.wait_for()
    assert page.locator(".message").count() == 2
    page.click("#send:text-is('Stop')")
    page.wait_for_selector(".message.assistant >> text=Stopped.")
    assert page.locator(".message").count() == 2
    assert page.locator("#send").inner_text() == "Send"


def test_a_conversation_is_kept_and_exported(page: Any, tmp_path: Path) -> None:
    page.fill("#system", "be brief")
    shown = say(page, WORDS)
    num_tokens = page.locator(".answer .t").count()
    page.reload()
    page.wait_for_selector(".status.ready")
    assert answer_of(page) == shown
    assert page.locator(".answer .t").count() == num_tokens
    assert page.input_value("#system") == "be brief"
    with page.expect_download() as waiting:
        page.click("#export")
    waiting.value.save_as(tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))
    assert [message["role"] for message in kept["messages"]] == ["user", "assistant"]
    assert kept["messages"][0]["content"] == WORDS
    assert kept["messages"][1]["trace"]["rounds"]
    page.click("#new")
    assert page.locator(".message").count() == 0
    page.click(f"#conversations >> text={WORDS}")
    assert answer_of(page) == shown
    page.click(f"#conversations [aria-label='Delete “{WORDS}”']")
    page.reload()
    page.wait_for_selector(".status.ready")
    assert page.locator(".message").count() == 0


def titles(page: Any) -> list[str]:
    found: list[str] = page.locator("#conversations .title").all_inner_texts()
    return found


def test_two_tabs_keep_each_others_conversations(page: Any, server: Running) -> None:
    """Changes in one tab appear in the other; the latest change wins, and deletions count too."""
    other = page.context.new_page()
    other.goto(server.url)
    other.wait_for_selector(".status.ready")
    configure(other)
    say(page, "first here")
    other.wait_for_selector("#conversations >> text=first here")
    say(other, "second there")
    page.wait_for_selector("#conversations >> text=second there")
    assert titles(page)[0] == "second there"
    other.click("#conversations >> text=first here")
    say(other, "and more")
    page.click("#conversations >> text=first here")
    page.wait_for_selector(".message.user:has-text('and more')")
    page.click("#conversations [aria-label='Delete “second there”']")
    other.wait_for_selector("#conversations >> text=second there", state="detached")
    say(other, "once more")
    page.wait_for_selector(".message.user:has-text('once more')")
    for one in (page, other):
        one.reload()
        one.wait_for_selector(".status.ready")
        assert titles(one) == ["first here"]
        assert one.locator(".message.user").count() == 3


def test_an_answer_goes_on_while_another_tab_deletes_it(page: Any, server: Running) -> None:
    """The answer changed the conversation after the deletion, so the conversation is kept."""
    put_before_endless(page, event([("well", "plain")]))
    page.fill("#input", "stay")
    page.press("#input", "Enter")
    page.wait_for_selector(".answer >> text=well")
    other = page.context.new_page()
    other.goto(server.url)
    other.click("#conversations [aria-label='Delete “stay”']")
    page.wait_for_function("() => localStorage.getItem('forerun.deleted') !== null")
    page.click("#send")
    wait_for_end(page)
    other.wait_for_selector("#conversations >> text=stay")
    page.reload()
    page.wait_for_selector(".status.ready")
    assert (titles(page), answer_of(page)) == (["stay"], "well")


@pytest.mark.parametrize("kept", ["{", "[1]", '[{"messages": [{"role": "user"}]}]'])
def test_what_cannot_be_read_is_said_and_left(page: Any, kept: str) -> None:
    page.evaluate("(kept) => localStorage.setItem('forerun.conversations', kept)", kept)
    page.reload()
    page.wait_for_selector(".status.ready")
    assert "could not be read" in page.locator("#notes").inner_text()
    assert page.locator("#welcome").is_visible()


def test_a_full_storage_costs_tints_and_is_said(page: Any) -> None:
    fill = "localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 1500))"
    page.evaluate(fill)
    shown = say(page, WORDS)
    page.wait_for_selector("#notes:has-text('storage is full')")
    page.reload()
    page.wait_for_selector(".status.ready")
    assert answer_of(page) == shown
    assert page.locator(".answer .t").count() == 0
    page.evaluate("localStorage.setItem('more', 'x'.repeat(300))")
    page.click(f"#conversations [aria-label='Delete “{WORDS}”']")
    page.reload()
    page.wait_for_selector(".status.ready")
    assert page.locator(".message").count() == 0


def test_the_system_prompt_and_the_controls_are_sent(page: Any) -> None:
    bodies: list[Any] = []
    page.on("request", lambda r: bodies.append(r.post_data_json) if r.method == "POST" else None)
    page.fill("#system", "be brief")
    configure(page, depth="2", branches="1", acceptance="rejection", method="random")
    say(page, "abc")
    (body,) = bodies
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert (body["temperature"], body["seed"], body["max_completion_tokens"]) == (0.9, 7, 40)
    assert body["speculative"] == {
        "method": "random",
        "num_speculative_tokens": 2,
        "num_branches": 1,
        "acceptance": "rejection",
    }


def test_a_server_that_loads_is_waited_for(server: Running, open_page: Open) -> None:
    page = open_page("about:blank", path="", allow="503")
    answers = iter((503, 503))

    def ready(route: Any) -> None:
        status = next(answers, None)
        route.fulfill(status=status, body="{}") if status else route.continue_()

    page.route("**/ready", ready)
    page.goto(f"{server.url}/#theory")
    page.wait_for_selector(".status:has-text('the model is loading')")
    assert page.locator("#send").is_disabled()
    assert page.locator("#curve-mine").count() == 0
    page.evaluate("document.querySelector('#input').value = 'too early'")
    page.dispatch_event("#input", "keydown", {"key": "Enter"})
    assert page.locator(".message").count() == 0
    page.wait_for_selector(".status.ready")
    page.wait_for_selector("#curve-mine")
    assert page.locator("#send").is_enabled()


def test_it_opens_while_the_server_is_busy(server: Running, open_page: Open) -> None:
    asked = {"prompt": "abc", "max_tokens": 150, "ignore_eos": True}
    with ThreadPoolExecutor(8) as crowd:
        others = [crowd.submit(server.ask, "/v1/completions", **asked) for _ in range(8)]
        page = open_page(server.url, path="/#theory")
        page.wait_for_selector("#curve-mine")
        assert not all(other.done() for other in others), "nobody was busy any more"


def test_a_refusal_is_said(open_page: Open, server: Running) -> None:
    page = open_page(server.url, allow="400 (Bad Request)")
    page.wait_for_selector(".status.ready")
    page.fill("#input", "abc" * 200)
    page.press("#input", "Enter")
    page.wait_for_selector(".message .failed")
    assert "shorten" in page.locator(".message .failed").inner_text()
    bodies: list[Any] = []
    page.on("request", lambda r: bodies.append(r.post_data_json) if r.method == "POST" else None)
    page.fill("#input", "again")
    page.press("#input", "Enter")
    page.wait_for_function("() => document.querySelectorAll('.message .failed').length === 2")
    assert [message["role"] for message in bodies[0]["messages"]] == ["user", "user"]


def test_a_key_is_asked_for_once_and_not_kept(open_page: Open, guarded: Running) -> None:
    page = open_page(guarded.url, allow="401 (Unauthorized)")
    page.fill("#key", "wrong")
    page.click("text=Use it")
    page.wait_for_selector("#key-wrong:visible")
    page.fill("#key", "secret")
    page.click("text=Use it")
    page.wait_for_selector(".status.ready")
    configure(page, **{"max-tokens": "5"})
    assert say(page, "abc")
    assert page.locator(".failed:visible").count() == 0
    kept = "JSON.stringify([localStorage, sessionStorage, document.cookie])"
    assert "secret" not in page.evaluate(kept)
    page.reload()
    page.wait_for_selector("#key-dialog[open]")
