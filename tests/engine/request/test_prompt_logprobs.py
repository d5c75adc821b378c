"""`prompt_logprobs`: the target's log-probabilities of the prompt, however the prompt is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.drafters import SuffixLookup
from forerun.engine import LLM
from forerun.types import SamplingParams

PROMPT = "the quick brown fox jumps over the lazy dog"
ASK = SamplingParams(temperature=0, max_tokens=5, prompt_logprobs=2, ignore_eos=True)


def test_they_are_what_generating_the_prompt_would_show(plain: LLM) -> None:
    """Each token's entry equals the one it gets when it is generated."""
    (result,) = plain.generate(PROMPT, ASK)
    found = result.prompt_logprobs
    assert found is not None
    assert found[0] is None
    assert len(found) == len(result.prompt_token_ids)
    for position in (1, 7, len(found) - 1):
        token = result.prompt_token_ids[position]
        forced = ASK.with_(
            max_tokens=1, allowed_token_ids=(token,), logprobs=2, prompt_logprobs=None
        )
        (before,) = plain.generate([result.prompt_token_ids[:position]], forced)
        shown = before.outputs[0].logprobs
        assert shown is not None
        assert found[position] == shown[0]


def test_neither_the_answer_nor_they_depend_on_what_is_cached(plain: LLM) -> None:
    without = plain.generate(PROMPT, ASK.with_(prompt_logprobs=None))[0].outputs[0].token_ids
    first, second = (plain.generate(PROMPT, ASK)[0] for _ in range(2))
    assert first.outputs[0].token_ids == without
    assert first.prompt_logprobs == second.prompt_logprobs
    assert second.num_cached_tokens == 0


@pytest.mark.parametrize("n", [1, 3])
def test_chunks_and_preemptions_tell_nothing_twice(tiny_path: Path, plain: LLM, n: int) -> None:
    """Every entry is told once, although the prompt is chunked and some requests are preempted."""
    long = (PROMPT + " ") * 2
    alone = plain.generate(long, ASK)[0]
    tight = LLM(
        tiny_path, max_num_seqs=4, kv_cache_memory=300_000, max_model_len=200, num_threads=1
    )
    results = tight.generate([long] * 4, ASK.with_(n=n, max_tokens=100))
    assert tight.metrics()["preemptions"] > 0
    for result in results:
        assert result.prompt_logprobs == alone.prompt_logprobs
        assert result.outputs[0].token_ids[:5] == alone.outputs[0].token_ids


def test_nothing_is_kept_of_what_nobody_can_find_again(tiny_path: Path) -> None:
    """Requests with a salt each of their own must not displace what others can use."""
    llm = LLM(
        tiny_path,
        max_num_seqs=2,
        kv_cache_memory=200_000,
        max_model_len=128,
        num_threads=1,
        speculative_config={"method": "suffix"},
    )
    llm.generate(PROMPT, ASK.with_(prompt_logprobs=None), cache_salt="ours")
    speculation, tree = llm.engine.core.speculation, llm.engine.core.cache.prefixes.tree
    assert speculation is not None
    suffix = speculation.drafters.drafters["suffix"]
    assert isinstance(suffix, SuffixLookup)
    before = len(tree), suffix.num_shared_tokens
    for idx in range(6):
        llm.generate(f"{idx} {PROMPT}", ASK, cache_salt="ours")
    assert (len(tree), suffix.num_shared_tokens) == before
    assert tree.salts == {"ours"}
