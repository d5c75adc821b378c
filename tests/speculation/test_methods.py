"""A new method is one entry in the table: no other code knows its drafter, even with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from forerun.drafters import Budget, RequestView
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.speculation.config import SpeculativeConfig
from forerun.speculation.methods import METHODS, Method
from forerun.types import Proposal, SamplingParams, Verdict

PARAMS = SamplingParams(temperature=0.8, seed=1, max_tokens=40, ignore_eos=True)


class Head:
    """Guesses the last token again; it has a cache with pages that nothing reads."""

    picks = False
    max_len = 1000
    row_bytes = 64
    num_requests = 0

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.num_pages = 0

    def allocate(self, num_pages: int, page_size: int) -> None:  # noqa: ARG002
        self.num_pages = num_pages

    def num_pages_in_use(self) -> int:
        return 0

    def begin(self, request: RequestView) -> None:  # noqa: ARG002
        self.calls.append("begin")

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        pairs = zip(requests, budgets, strict=True)
        return [Proposal.chain([request.tokens[-1]] * budget.depth) for request, budget in pairs]

    def commit(self, request: RequestView, verdict: Verdict) -> None: ...

    def end(self, request: RequestView) -> None:  # noqa: ARG002
        self.calls.append("end")

    def has_room_for(self, request: RequestView) -> bool:  # noqa: ARG002
        return True

    def is_waiting(self, request: RequestView) -> bool:  # noqa: ARG002
        return False

    def evict(self, request: RequestView) -> None:  # noqa: ARG002
        self.calls.append("evict")


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    head = Head()
    entry: Any = METHODS
    monkeypatch.setitem(entry, "head", Method("a trained head", lambda *_: head, {"model": "-m"}))
    return head


def test_one_entry_is_all_it_takes(head: Head, plain: LLM) -> None:
    llm = plain.with_speculation({"method": "head", "model": "x", "adaptive": False})
    output = llm.generate("abc", PARAMS)[0].outputs[0]
    assert output.token_ids == plain.generate("abc", PARAMS)[0].outputs[0].token_ids
    assert output.stats["draft_tokens"] > 0
    assert llm.metrics()["drafters"]["head"]["num_drafts"] > 0
    assert head.num_pages == llm.engine.core.cache.pool.num_pages
    assert head.calls == ["begin", "end"]


def test_its_cache_takes_its_share_of_the_memory(head: Head, tiny_path: Path, plain: LLM) -> None:
    def num_pages(config: dict[str, Any] | None) -> int:
        memory = 30 * 16 * plain.model.row_bytes
        kernels = plain.model.kernels
        llm = LLM(tiny_path, speculative_config=config, kv_cache_memory=memory, kernels=kernels)
        return llm.engine.core.cache.pool.num_pages

    head.row_bytes = plain.model.row_bytes
    assert num_pages(None) == 30
    assert num_pages({"method": "head", "model": "x", "adaptive": False}) == 15


def test_a_preempted_request_is_evicted_and_begins_again(
    head: Head, tiny_path: Path, plain: LLM
) -> None:
    head.row_bytes = 0
    llm = LLM(
        tiny_path,
        speculative_config={"method": "head", "model": "x", "adaptive": False},
        max_model_len=100,
        kv_cache_memory=7 * 16 * plain.model.row_bytes,
        kernels=plain.model.kernels,
    )
    prompts = [[idx, idx + 1, idx + 2] for idx in range(4)]
    params = PARAMS.with_(max_tokens=60)
    for prompt, result in zip(prompts, llm.generate(prompts, params), strict=True):
        alone = plain.generate(prompt, params)[0].outputs[0].token_ids
        assert result.outputs[0].token_ids == alone
    assert head.calls.count("evict") == llm.metrics()["preemptions"] > 0
    assert head.calls.count("begin") == 4 + head.calls.count("evict")
    assert head.calls.count("end") == 4


def test_what_it_needs_must_be_given(head: Head) -> None:  # noqa: ARG001
    with pytest.raises(InvalidOption, match='method "head" needs "model"; give -m'):
        SpeculativeConfig("head")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"method": "suffix", "num_layers": 2, "ngram_orders": [1], "prompt_lookup_max": 3},
            '"suffix" has no use for num_layers, prompt_lookup_max, ngram_orders; drop them.',
        ),
        ({"prompt_lookup_max": 3}, '"auto" has no use for prompt_lookup_max; drop it.'),
        ({"method": "bigram", "ngram_orders": [2]}, '"bigram" has no use for ngram_orders; '),
        ({"method": "draft_model", "model": "m", "suffix_min_match": 2}, "suffix_min_match"),
        (
            {"method": "hybrid", "methods": ["suffix", "ngram"], "num_layers": 2},
            '"suffix or ngram" has no use for num_layers; drop it.',
        ),
    ],
)
def test_an_option_that_no_method_uses_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        SpeculativeConfig.from_dict(options)


@pytest.mark.parametrize("method", ["hybrid", "merge", "choice"])
def test_options_of_one_part_are_enough(method: str) -> None:
    options = {"num_layers": 2, "suffix_min_match": 2}
    config = SpeculativeConfig.from_dict(
        {"method": method, "methods": ["suffix", "own_layers", "bigram"], **options}
    )
    assert config.own_options("suffix") == {"suffix_min_match": 2}
    assert config.own_options("own_layers") == {"num_layers": 2}
    assert config.own_options("bigram") == {}


def test_auto_takes_the_options_of_suffix() -> None:
    assert SpeculativeConfig.from_dict({"suffix_max_match": 9}).parts == ("suffix",)


def test_every_option_of_a_method_is_one_of_the_config() -> None:
    known = {field.name for field in fields(SpeculativeConfig)}
    common = {"method", "methods", "num_speculative_tokens", "num_branches", "adaptive"}
    assert {name for method in METHODS.values() for name in method.options} == known - common


@pytest.mark.parametrize(
    ("given", "lens"),
    [
        ({}, (2, 5)),
        ({"prompt_lookup_max": 1}, (1, 1)),
        ({"prompt_lookup_min": 7}, (7, 7)),
        ({"prompt_lookup_min": 3, "prompt_lookup_max": 4}, (3, 4)),
    ],
)
def test_a_lookup_of_one_length_needs_one_number(
    given: dict[str, int], lens: tuple[int, int], plain: LLM
) -> None:
    options = {"method": "ngram", "adaptive": False, **given}
    assert SpeculativeConfig.from_dict(options).prompt_lookup_lens == lens
    plain.with_speculation(options)


def test_every_single_method_can_be_built() -> None:
    combined = {"auto", "hybrid", "merge", "choice"}
    assert {name for name, method in METHODS.items() if method.build is None} == combined
