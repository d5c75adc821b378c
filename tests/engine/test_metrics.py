"""The engine's counters agree with the answers."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

from forerun.engine import LLM
from forerun.engine.metrics import DrafterCounts, Metrics
from forerun.speculation.choice import NO_ROOM, Choice, Reason
from forerun.types import Origin, Proposal, SamplingParams, Verdict

PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=20, ignore_eos=True)


def test_counts_agree_with_the_answers(plain: LLM) -> None:
    llm = plain.with_speculation(
        {"method": "own_layers", "num_layers": 2, "num_speculative_tokens": 3, "adaptive": False}
    )
    results = llm.generate(["abc", "cab", "abcabc"], PARAMS)
    stats = [result.outputs[0].stats for result in results]
    found = llm.metrics()
    drafted = found["drafters"]["own_layers"]
    assert found["requests"] == {"length": 3}
    assert found["prompt_tokens"] == 3 + 3 + 6
    assert found["emitted_tokens"] == sum(each["emitted_tokens"] for each in stats) == 60
    assert found["rounds"] == sum(each["target_passes"] for each in stats)
    assert found["tokens_per_pass"] == 60 / found["passes"]
    assert drafted["num_draft_tokens"] == sum(each["draft_tokens"] for each in stats)
    assert drafted["num_accepted_tokens"] == sum(each["accepted_tokens"] for each in stats)
    assert sum(drafted["accepted_per_position"]) == drafted["num_accepted_tokens"]
    assert sum(drafted["drafted_per_position"]) == drafted["num_draft_tokens"]
    assert found["num_running"] == found["num_waiting"] == 0
    assert found["num_free_pages"] == found["num_pages"]


def test_outcomes_and_shared_prompts(plain: LLM) -> None:
    llm = plain.with_speculation(None)
    prompt = [1, 2, 3, 4] * 10
    llm.generate(prompt, PARAMS)
    assert llm.generate(prompt, PARAMS)[0].num_cached_tokens == 39
    stream = llm.stream(prompt, PARAMS)
    next(stream)
    stream.close()
    found = llm.metrics()
    assert found["requests"] == {"length": 2, "abort": 1}
    assert (found["prompt_tokens"], found["cached_prompt_tokens"]) == (120, 78)


def test_a_preempted_prompt_counts_once(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, kv_cache_memory="160KB", num_threads=1)
    llm.generate([[idx] * 9 for idx in range(8)], PARAMS.with_(max_tokens=80))
    found = llm.metrics()
    assert found["preemptions"] > 0
    assert found["prompt_tokens"] == 72


def test_a_tree_counts_every_node_at_its_depth() -> None:
    metrics = Metrics()
    proposal = Proposal.chain([1, 2, 3])
    choice = Choice(Reason.PAYS, "x", 3)
    metrics.emitted(choice, proposal, Verdict((0, 1), (1, 2, 9), Origin.RECOVERED))
    metrics.emitted(choice, proposal, Verdict((), (9,), Origin.RECOVERED))
    metrics.emitted(NO_ROOM, Proposal.empty(), Verdict((), (9,), Origin.PLAIN))
    metrics.emitted(None, Proposal.empty(), Verdict((), (9,), Origin.PLAIN))
    found = metrics.snapshot()
    assert found["drafters"]["x"] == {
        "num_drafts": 2,
        "num_draft_tokens": 6,
        "num_accepted_tokens": 2,
        "drafted_per_position": [2, 2, 2],
        "accepted_per_position": [1, 1, 0],
    }
    assert (found["rounds"], found["emitted_tokens"]) == (4, 6)
    assert found["rounds_by_depth"] == {0: 2, 3: 2}
    assert found["choices"] == {"pays": 2, "no_room": 1}


def test_a_snapshot_is_a_copy(plain: LLM) -> None:
    before = plain.metrics()
    before["requests"]["stop"] = -1
    assert plain.metrics()["requests"].get("stop") != -1


def test_a_request_that_ends_while_a_snapshot_is_taken_waits_for_nobody() -> None:
    """The garbage collector may end a dropped stream's request in the middle of a snapshot."""
    metrics = Metrics()

    class Collected(DrafterCounts):
        def as_dict(self) -> dict[str, Any]:
            metrics.ended("abort", 0)
            return super().as_dict()

    metrics._drafters["suffix"] = Collected()
    reader = Thread(target=metrics.snapshot, daemon=True)
    reader.start()
    reader.join(30)
    assert not reader.is_alive()
    assert metrics.snapshot()["requests"]["abort"] == 1
