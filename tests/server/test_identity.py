"""Same request, same seed: the same text, whatever guesses, streams or runs beside it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.serving import Running

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "abc abc abc hello"}],
    "seed": 77,
    "temperature": 0.9,
    "top_p": 0.95,
    "max_tokens": 60,
    "ignore_eos": True,
}
PATH = "/v1/chat/completions"


def ask(server: Running, **more: Any) -> str:
    answer = server.ask(PATH, **{**ASKED, **more})
    return str(answer["choices"][0]["message"]["content"])


@pytest.fixture(scope="module")
def expected(server: Running) -> str:
    return ask(server, speculative=False)


@pytest.mark.parametrize(
    "speculative",
    [
        {"method": "suffix"},
        {"method": "ngram_tables", "num_branches": 2},
        {"method": "random", "num_speculative_tokens": 3},
        {"method": "auto"},
        {"num_speculative_tokens": 1},
        True,
    ],
    ids=str,
)
def test_with_any_method(server: Running, expected: str, speculative: Any) -> None:
    assert ask(server, speculative=speculative) == expected


def test_with_a_prediction(server: Running, expected: str) -> None:
    for text in (expected, expected[10:], "nothing like it"):
        content = [{"type": "text", "text": text}]
        assert ask(server, prediction={"type": "content", "content": content}) == expected


def streamed(server: Running) -> str:
    lines = server.stream(PATH, **ASKED)
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    return "".join(delta.get("content", "") for delta in deltas)


def test_streaming_beside_15_others(server: Running, expected: str) -> None:
    """More than run at once, so that some wait, with other lengths, drafters and tenants."""

    def other(idx: int) -> str:
        return ask(
            server,
            seed=idx,
            max_tokens=5 + 2 * idx,
            cache_salt=f"tenant {idx % 3}",
            priority=idx % 4,
            speculative={"method": ("suffix", "random", "ngram_tables")[idx % 3]},
        )

    with ThreadPoolExecutor(16) as crowd:
        others = [crowd.submit(other, idx) for idx in range(15)]
        assert streamed(server) == expected
        crowded = [found.result() for found in others]
    assert crowded == [other(idx) for idx in range(15)]


def test_methods_that_are_not_here_are_refused(server: Running) -> None:
    response = server.post(PATH, **ASKED, speculative={"method": "sufix"})
    assert response.status_code == 400
    assert "did you mean 'suffix'?" in response.json()["error"]["message"]
