"""Same request, same seed: the same text, whatever the drafter, streamed or not, in any batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import block_config, write_block
from tests.server.serving import Running, serving

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


@pytest.mark.parametrize("method", ["suffix", "random"])
def test_a_prediction_is_followed_whatever_method_is_named(
    server: Running, expected: str, method: str
) -> None:
    prediction = {"type": "content", "content": expected}
    answer = server.ask(PATH, **ASKED, prediction=prediction, speculative={"method": method})
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 30


def streamed(server: Running, **more: Any) -> str:
    lines = server.stream(PATH, **{**ASKED, **more})
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines[:-1]]
    return "".join(delta.get("content", "") for delta in deltas)


def test_streaming_beside_15_others(server: Running, expected: str) -> None:
    """More requests than run at once, so that some wait; lengths, drafters and callers differ."""

    def other(idx: int) -> str:
        return ask(
            server,
            seed=idx,
            max_tokens=5 + 2 * idx,
            cache_salt=f"caller {idx % 3}",
            priority=idx % 4,
            speculative={"method": ("suffix", "random", "ngram_tables")[idx % 3]},
        )

    with ThreadPoolExecutor(16) as crowd:
        others = [crowd.submit(other, idx) for idx in range(15)]
        assert streamed(server) == expected
        crowded = [found.result() for found in others]
    assert crowded == [other(idx) for idx in range(15)]


EVERY_METHOD = (
    *("suffix", "draft_model", "own_layers", "prompt_lookup", "ngram", "ngram_tables"),
    *("unigram", "bigram", "random"),
)


@pytest.fixture(scope="module")
def tight(tiny_path: Path, tiny_draft_path: Path) -> Iterator[Running]:
    """A server for sixteen requests at once, every method, and pages for only a few requests."""
    speculation = {
        "method": "choice",
        "methods": EVERY_METHOD,
        "model": str(tiny_draft_path),
        "num_layers": 1,
        "adaptive": False,
        "num_speculative_tokens": 3,
        "num_branches": 2,
    }
    options = ("--max-num-seqs", "16", "--kernels", "reference", "--kv-cache-memory", "400KB")
    with serving(tiny_path, "--speculative-config", json.dumps(speculation), *options) as running:
        yield running


@pytest.mark.parametrize("method", EVERY_METHOD)
def test_with_every_method_of_another_server(tight: Running, expected: str, method: str) -> None:
    assert ask(tight, speculative={"method": method}) == expected


@pytest.fixture(scope="module")
def headed(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a trained drafter whose weights are random: its guesses are only worse."""
    llm = LLM(tiny_path, kernels="reference", speculative_config=None)
    config = block_config(llm.model.config, tokenizer_hash(llm.tokenizer))
    head = write_block(tmp_path_factory.mktemp("heads") / "block", config)
    speculation = {
        "method": "choice",
        "methods": ["block", "suffix"],
        "model": str(head),
        "adaptive": False,
        "num_speculative_tokens": 3,
    }
    options = ("--max-num-seqs", "4", "--kernels", "reference")
    with serving(tiny_path, "--speculative-config", json.dumps(speculation), *options) as running:
        yield running


def test_with_a_trained_drafter(headed: Running, server: Running, expected: str) -> None:
    """Whole, streamed, and in a crowd of requests with other drafters."""
    answer = headed.ask(PATH, **ASKED, speculative={"method": "block"})
    assert answer["choices"][0]["message"]["content"] == expected
    assert answer["usage"]["forerun"]["draft_tokens"] > 60
    methods: list[Any] = [{"method": "block"}, False, {"method": "suffix"}, None]

    def one(idx: int) -> str:
        tell = streamed if idx % 2 else ask
        return tell(headed, speculative=methods[idx // 2 % 4], seed=idx)

    with ThreadPoolExecutor(8) as crowd:
        crowded = list(crowd.map(one, range(8)))
    assert crowded == [ask(server, speculative=False, seed=idx) for idx in range(8)]


def test_a_request_that_is_preempted_says_the_same(server: Running, tight: Running) -> None:
    """Pages run out, so some requests give theirs up and begin again. Half of them stream."""

    def one(idx: int) -> str:
        method = {"method": EVERY_METHOD[idx % len(EVERY_METHOD)]} if idx % 5 else False
        return (streamed if idx % 2 else ask)(tight, speculative=method, seed=idx)

    alone = [ask(server, speculative=False, seed=idx) for idx in range(16)]
    num_before = tight.metric("forerun:num_preemptions_total")
    with ThreadPoolExecutor(16) as crowd:
        assert list(crowd.map(one, range(16))) == alone
    assert tight.metric("forerun:num_preemptions_total") > num_before
    assert [one(idx) for idx in range(4)] == alone[:4]


def test_methods_that_are_not_here_are_refused(server: Running) -> None:
    response = server.post(PATH, **ASKED, speculative={"method": "sufix"})
    assert response.status_code == 400
    assert "did you mean 'suffix'?" in response.json()["error"]["message"]
