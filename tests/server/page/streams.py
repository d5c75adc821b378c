"""Made-up answers: streams in the server's own format, served to the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

PATH = "**/v1/chat/completions"


def event(
    emitted: Sequence[tuple[str, str]], guesses: Sequence[tuple[int, str]] = (), **choice: Any
) -> str:
    """Return one round as an event: tokens with their origins, guesses with their parents."""
    held = [at for at, (_, origin) in enumerate(emitted) if origin == "accepted"]
    content = [
        {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}
        for token, _ in emitted
    ]
    trace = {
        "drafter": "suffix" if guesses else None,
        "choice": "pays: suffix to 2" if guesses else "silent",
        "proposal": {
            "parents": [parent for parent, _ in guesses],
            "token_ids": [0 for _ in guesses],
            "tokens": [token for _, token in guesses],
            "chances": [0.5 for _ in guesses],
        },
        "accepted": held,
        "rejected": [at for at in range(len(guesses)) if at not in held],
        "emitted": [{"token_id": 0, "token": t, "origin": o} for t, o in emitted],
    }
    told = {
        "index": 0,
        "delta": {"content": "".join(token for token, _ in emitted)},
        "logprobs": {"content": content},
        "finish_reason": None,
        "forerun": {"trace": [trace]},
        **choice,
    }
    return f"data: {json.dumps({'choices': [told], 'usage': None})}\n\n"


def put_before(page: Any, *events: str) -> None:
    """Answer the page's next questions with these events."""
    body = "".join(events) + "data: [DONE]\n\n"
    page.route(PATH, lambda route: route.fulfill(content_type="text/event-stream", body=body))


def plain(text: str) -> str:
    """Return a stream in which each word is a round of its own."""
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    return "".join(event([(word, "plain")]) for word in words)


# One token, and no end until the reader cancels.
_ENDLESS = """(event) => {
  const own = window.fetch;
  window.fetch = (path, options) => {
    if (!String(path).endsWith("/completions")) return own(path, options);
    const body = new ReadableStream({ start(controller) {
      controller.enqueue(new TextEncoder().encode(event));
      const left = () => controller.error(new DOMException("left", "AbortError"));
      options.signal.addEventListener("abort", left);
    } });
    return Promise.resolve(new Response(body));
  };
}"""


def put_before_endless(page: Any, first: str) -> None:
    page.evaluate(_ENDLESS, first)
