"""Promise 2 on a small model: the same tokens with any drafter, tree, depth, batch and chunking."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM, CompletionOutput
from forerun.types import Origin, SamplingParams

PROMPTS = ["abcabcabc", "a", "the cat sat on the mat. the cat sat"]

SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "top_p": {"temperature": 0.7, "top_p": 0.9},
    "min_p": {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.2},
    "penalties": {
        "temperature": 0.9,
        "logit_bias": {3: 1.0, 7: -2.0},
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
    },
}

METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "adaptive": {
        "adaptive": True,
        "method": "hybrid",
        "methods": ["suffix", "own_layers"],
        "num_layers": 3,
    },
    "prompt_lookup": {"method": "prompt_lookup", "prompt_lookup_min": 1, "prompt_lookup_max": 5},
    "ngram_tables": {"method": "ngram_tables"},
    "unigram": {"method": "unigram"},
    "bigram": {"method": "bigram"},
    "random": {"method": "random"},
    "own_layers": {"method": "own_layers", "num_layers": 2},
    "draft_model": {"method": "draft_model"},
    "hybrid": {"method": "hybrid", "methods": ["ngram", "draft_model"]},
    "merge": {"method": "merge", "methods": ["bigram", "own_layers"], "num_layers": 1},
}

DEEP = ("auto", "adaptive", "draft_model", "hybrid", "merge")

Asked = tuple[str, str]  # a prompt and a sampling
PlainTokens = dict[Asked, tuple[int, ...]]


def params(sampling: str, **changes: Any) -> SamplingParams:
    return SamplingParams(seed=11, max_tokens=16, ignore_eos=True, **SAMPLING[sampling], **changes)


def config(method: str, draft: Path, depth: int, num_branches: int) -> dict[str, Any]:
    chosen = dict(METHODS[method])
    if "draft_model" in (chosen.get("method"), *chosen.get("methods", ())):
        chosen["model"] = str(draft)
    chosen |= {"num_speculative_tokens": depth, "num_branches": num_branches}
    return {"adaptive": False, **chosen}


def tokens(llm: LLM, prompt: str, chosen: SamplingParams) -> tuple[int, ...]:
    return llm.generate(prompt, chosen)[0].outputs[0].token_ids


def outputs(llm: LLM, asked: Iterable[Asked], *, together: bool) -> dict[Asked, CompletionOutput]:
    """The answers to prompts with a sampling each, one after the other or in one batch."""
    asked = list(asked)
    batches = [asked] if together else [[each] for each in asked]
    results = [
        result
        for batch in batches
        for result in llm.generate([p for p, _ in batch], [params(s) for _, s in batch])
    ]
    return {each: result.outputs[0] for each, result in zip(asked, results, strict=True)}


def shaped(method: str, *shape: int) -> Any:
    """Return a test's parameters; not `slow`: trees for every method, deep chains for some."""
    is_fast = shape == (3, 3) or (shape == (8, 1) and method in DEEP)
    return pytest.param(method, *shape, marks=() if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(
    ("method", "depth", "num_branches"),
    [shaped(method, *shape) for method in METHODS for shape in ((8, 1), (3, 3), (1, 1), (4, 1))],
)
def test_speculation_changes_no_token(
    plain: LLM,
    plain_tokens: PlainTokens,
    tiny_draft_path: Path,
    method: str,
    depth: int,
    num_branches: int,
) -> None:
    llm = plain.with_speculation(config(method, tiny_draft_path, depth, num_branches))
    found = outputs(llm, plain_tokens, together=depth in (1, 8))
    assert {asked: output.token_ids for asked, output in found.items()} == plain_tokens
    if method not in ("random", "adaptive"):
        num_accepted = sum(output.stats["accepted_tokens"] for output in found.values())
        assert num_accepted > 0, "nothing was ever accepted: this run proved little"


def test_together_as_alone(plain: LLM, tiny_draft_path: Path) -> None:
    llm = plain.with_speculation(config("draft_model", tiny_draft_path, 3, 2))
    prompts = [*PROMPTS, "hello, world.\n"]
    chosen = [replace(params(name), max_tokens=6 + 5 * i) for i, name in enumerate(SAMPLING)]
    together = llm.generate(prompts, chosen)
    for prompt, each, result in zip(prompts, chosen, together, strict=True):
        assert result.outputs[0].token_ids == tokens(plain, prompt, each)


def test_more_requests_than_run_at_once(tiny_path: Path, plain: LLM) -> None:
    llm = LLM(tiny_path, max_num_seqs=2, num_threads=1)
    prompts = PROMPTS * 3
    for prompt, result in zip(prompts, llm.generate(prompts, params("top_p")), strict=True):
        assert result.outputs[0].token_ids == tokens(plain, prompt, params("top_p"))


@pytest.mark.parametrize("pass_tokens", [8, 9, 13])
def test_any_chunking_of_the_prompt(
    plain: LLM, pass_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.engine.setup.building._PASS_TOKENS", pass_tokens)
    llm = plain.with_speculation({"method": "bigram"})
    for prompt in PROMPTS:
        assert tokens(llm, prompt, params("min_p")) == tokens(plain, prompt, params("min_p"))


def test_choice_0_of_n_is_n_1(plain: LLM) -> None:
    several = plain.generate("abc", params("top_p", n=3))[0].outputs
    assert several[0].token_ids == tokens(plain, "abc", params("top_p"))
    assert len({output.token_ids for output in several}) == 3


def test_choices_and_seeds_do_not_overlap(plain: LLM) -> None:
    """If noise depended on seed + choice, choice 1 of seed 11 would be the text of seed 12."""
    second = plain.generate("abc", params("top_p", n=2))[0].outputs[1].token_ids
    assert second != tokens(plain, "abc", replace(params("top_p"), seed=12))


def test_a_returned_seed_reproduces_the_text(plain: LLM) -> None:
    unseeded = replace(params("top_p"), seed=None)
    first = plain.generate("abc", unseeded)[0].outputs[0]
    again = plain.generate("abc", replace(unseeded, seed=first.seed))[0].outputs[0]
    assert again.token_ids == first.token_ids
    assert plain.generate("abc", unseeded)[0].outputs[0].seed != first.seed


@pytest.mark.parametrize("acceptance", ["rejection", "lenient"])
def test_other_acceptances_are_greedy_at_temperature_0(
    plain: LLM, tiny_draft_path: Path, acceptance: str
) -> None:
    """At temperature 0 rejection, and lenience 1, also reproduce the greedy tokens."""
    llm = plain.with_speculation(config("draft_model", tiny_draft_path, 3, 2))
    chosen = params("greedy", acceptance=acceptance)
    for prompt in PROMPTS:
        assert tokens(llm, prompt, chosen) == tokens(plain, prompt, params("greedy"))


def test_rejection_runs_and_accepts(plain: LLM, tiny_draft_path: Path) -> None:
    llm = plain.with_speculation(config("own_layers", tiny_draft_path, 3, 2) | {"num_layers": 3})
    output = llm.generate("abcabc", params("top_p", acceptance="rejection"))[0].outputs[0]
    assert len(output.token_ids) == 16
    assert output.stats["accepted_tokens"] > 0
    assert Origin.RECOVERED in output.origins or Origin.BONUS in output.origins


def test_a_draft_of_all_layers_is_always_right(plain: LLM) -> None:
    """The target drafts for itself: every guess is accepted, so its cache never falls behind."""
    llm = plain.with_speculation(
        {"method": "own_layers", "num_layers": 3, "num_speculative_tokens": 4, "adaptive": False}
    )
    stats = llm.generate("abc", params("top_p"))[0].outputs[0].stats
    assert stats["acceptance_rate"] == 1
    assert stats["target_passes"] == 1 + -(-15 // 5)
