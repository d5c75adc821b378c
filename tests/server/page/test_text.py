"""A model's output is shown as text, never as markup, and word for word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.page.conftest import Open, answer_of, say
from tests.server.page.streams import event, plain, put_before
from tests.server.serving import Running

pytestmark = pytest.mark.browser

EVIL = (
    "<script>window.broken = 1</script> <img src=x onerror='window.broken = 1'> "
    "[a](javascript:window.broken=1) [c](javascript://%0Awindow.broken=1) "
    "![b](https://example.org/x.png) &lt;b&gt; "
    "`<svg onload=window.broken=1>`"
)


def test_markup_is_shown_and_never_run(page: Any) -> None:
    put_before(page, plain(EVIL))
    shown = say(page, EVIL)
    for words in ("<script>window.broken = 1</script>", "<img src=x onerror=", "&lt;b&gt;"):
        assert words in shown
    page.uncheck("#markdown")
    assert answer_of(page) == EVIL
    page.reload()
    page.wait_for_selector(".status.ready")
    page.click("#conversations .title")
    assert page.evaluate("window.broken") is None
    assert page.locator("#thread script, #thread img, #thread svg").count() == 0
    assert page.locator("#thread a[href^='javascript']").count() == 0


def test_a_script_that_gets_in_is_stopped_by_the_policy(server: Running, open_page: Open) -> None:
    """If the page ever made an element of a model's words, the browser itself would refuse."""
    page = open_page(server.url, allow="TrustedHTML")
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<img>'; return false } catch { return true } }"
    )
    assert refused


def test_tokens_that_split_characters_and_special_ones(page: Any) -> None:
    """Half a character waits for its other half; a token without text takes no space."""
    heart = list("❤".encode())

    def tokens(*found: list[int]) -> dict[str, Any]:
        content = [{"token": "�", "logprob": -0.1, "bytes": one} for one in found]
        return {"logprobs": {"content": content}}

    first = event([("�", "plain")], delta={"content": ""}, **tokens(heart[:2]))
    second = event([("�", "plain")], delta={"content": "❤"}, **tokens(heart[2:]))
    special = event([("<|special|>", "plain")], delta={"content": ""})
    rest = (event([(" it", "accepted")], [(-1, " it")]), event([(" all", "plain")]))
    put_before(page, event([("I ", "plain")]), first, second, special, *rest, special)
    assert say(page, "x") == "I ❤ it all"
    assert page.locator(".answer .t").all_inner_texts() == ["I ", "❤", " it", " all"]
    assert page.locator(".answer .t.accepted").inner_text() == " it"


MARKDOWN = """# Title

Some *slanted*, **bold** and `code * here`, 2 * 3 * 4 and snake_case_name.
A [link](https://example.org/a_b).

- one
- two
  - inside
1. first
2. second

> said
> before

| a | b |
|---|---|
| 1 | **2** |

---
```python
def f(x):
    return x ** 2  # `not` *this*
```
The end \\*really\\*.
"""


def rendered(page: Any, text: str, *, steps: int) -> str:
    """Return the HTML of a text that arrives in pieces of `steps` characters."""
    return str(
        page.evaluate(
            """async ([text, steps]) => {
              const { Markdown } = await import("/page/text/markdown.js");
              const box = document.createElement("div");
              const paint = (parent, a, b) => parent.append(text.slice(a, b));
              const markdown = new Markdown(box, paint);
              for (let end = steps; end < text.length; end += steps) {
                markdown.update(text.slice(0, end), false);
              }
              markdown.update(text, true);
              box.normalize();
              return box.innerHTML;
            }""",
            [text, steps],
        )
    )


def test_markdown(page: Any) -> None:
    found = rendered(page, MARKDOWN, steps=10**6)
    for expected in (
        "<h3>Title</h3>",
        "<em>slanted</em>, <strong>bold</strong> and <code>code * here</code>",
        "2 * 3 * 4 and snake_case_name",
        '<a href="https://example.org/a_b" rel="noopener noreferrer nofollow" target="_blank">link',
        '<ul><li class="in0">one</li><li class="in0">two</li><li class="in1">inside</li></ul>',
        '<ol><li class="in0">first</li><li class="in0">second</li></ol>',
        "<blockquote>said\nbefore</blockquote>",
        "<tr><th> a </th><th> b </th></tr><tr><td> 1 </td><td> <strong>2</strong> </td></tr>",
        "<hr>",
        "return x ** 2  # `not` *this*",
        "<p>The end *really*.</p>",
    ):
        assert expected in found, (expected, found)


LONG = "Words and **more of them** with `ticks` and * lone stars, _on and on_ 1 * 2. " * 12
LONG += (
    "An *asterisk that is closed too late, " + "as it were, and more, " * 40 + "is none*. " + LONG
)


@pytest.mark.parametrize("steps", [1, 7, 100])
def test_coming_in_pieces_changes_nothing(page: Any, steps: int) -> None:
    text = MARKDOWN + LONG
    assert rendered(page, text, steps=steps) == rendered(page, text, steps=10**6)


# 4,000 tokens: 3,000 at once, then 1,000 at 200 a second, while frame times and the number of added
# nodes are recorded.
LONG_STREAM = """() => {
  const told = (token, origin) => ({
    index: 0, delta: { content: token }, finish_reason: null,
    logprobs: { content: [{ token, logprob: -0.5, bytes: [...new TextEncoder().encode(token)] }] },
    forerun: { trace: [{ drafter: null, choice: "silent", accepted: [], rejected: [],
      proposal: { parents: [], token_ids: [], tokens: [], chances: [] },
      emitted: [{ token_id: 1, token, origin }] }] },
  });
  const word = (n) => WORD;
  const line = (n) => new TextEncoder().encode("data: " + JSON.stringify(
    { choices: [told(word(n), ["plain", "accepted"][n % 2])], usage: null }) + "\\n\\n");
  const pause = (ms) => new Promise((go) => setTimeout(go, ms));
  const noted = window.noted = { frames: [], built: [] };
  const observer = new MutationObserver((all) => noted.built.push(
    all.reduce((sum, one) => sum + one.addedNodes.length, 0)));
  async function send(controller) {
    let n = 0;
    for (; n < 3000; n++) controller.enqueue(line(n));
    await pause(1500);
    observer.observe(document.querySelector("#thread"), { childList: true, subtree: true });
    let last = null;
    const tick = (now) => {
      if (last !== null) noted.frames.push(now - last);
      last = now;
      if (n < 4000) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
    const start = performance.now();
    while (n < 4000) {
      const due = Math.min(4000, 3000 + (performance.now() - start) / 5);
      for (; n < due; n++) controller.enqueue(line(n));
      await pause(5);
    }
    observer.disconnect();
    await pause(100);
    noted.boxes = BOXES;
    controller.close();
  }
  const own = window.fetch;
  window.fetch = (path, options) => String(path).endsWith("/completions")
    ? Promise.resolve(new Response(new ReadableStream({ start: (c) => void send(c) })))
    : own(path, options);
}"""


# The stream's words: prose, or lines of code.
WORDS = {
    "text": """n % 97 === 96 ? "\\n\\n" : n % 11 === 10 ? " **bold**" : ` word${n}`""",
    "code": """n === 0 ? "```python\\n" : n % 9 === 8 ? "\\n" : ` word${n}`""",
}
# [number of boxes, how many are on the screen or near it, nodes in the fullest box]
BOXES = """(() => {
  const boxes = [...document.querySelectorAll(".growing > p, .growing .lines")];
  const shown = boxes.filter((box) =>
    box.firstElementChild.checkVisibility({ contentVisibilityAuto: true }));
  return [boxes.length, shown.length, Math.max(...boxes.map((box) => box.childNodes.length))];
})()"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORDS)
def test_a_long_answer_costs_little_for_each_frame(page: Any, capsys: Any, kind: str) -> None:
    """The nodes added in one frame are bounded, and so are those to lay out again: boxes far from
    the screen are skipped, and no box is long. Frame times are only printed, since they depend on
    the machine and its load."""
    page.evaluate(LONG_STREAM.replace("WORD", WORDS[kind]).replace("BOXES", BOXES))
    shown = say(page, "a lot")
    num_boxes, num_shown, longest = page.evaluate("noted.boxes")
    frames, built = sorted(page.evaluate("noted.frames")), max(page.evaluate("noted.built"))
    with capsys.disabled():
        middle = frames[len(frames) // 2]
        print(f"\n{kind}: {len(frames)} frames, median {middle:.0f}, longest {frames[-1]:.0f} ms")
    assert "word3999" in shown
    assert page.locator(".answer .t").count() >= 3900
    assert page.locator(".growing").count() == 0
    assert built < 400
    assert num_boxes >= 10
    assert num_shown < 0.7 * num_boxes
    assert longest < 450
