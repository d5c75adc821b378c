"""Trained heads through the whole engine: the same bits, and the hidden states that they need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forerun.drafters import RequestView
from forerun.drafters.heads import FedBack
from forerun.engine import LLM
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel, Taps
from forerun.models.text.compatibility import tokenizer_hash
from forerun.types import FloatArray, Span
from tests.drafters.heads.random_heads import CONFIGS, write_head
from tests.engine.leaks import assert_nothing_is_held
from tests.engine.test_bits import PROMPTS, PlainTokens, outputs, params, tokens

METHODS: dict[str, dict[str, Any]] = {
    **{kind: {"method": kind} for kind in CONFIGS},
    "adaptive": {"method": "hybrid", "methods": ["suffix", "eagle3"], "adaptive": True},
    "hybrid": {"method": "hybrid", "methods": ["prompt_lookup", "eagle3"]},
    "merge": {"method": "merge", "methods": ["bigram", "medusa"]},
}


@pytest.fixture(scope="module")
def heads(plain: LLM, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, config = tmp_path_factory.mktemp("heads"), plain.model.config
    ours = tokenizer_hash(plain.tokenizer)
    return {kind: write_head(folder / kind, of(config, ours)) for kind, of in CONFIGS.items()}


def config(method: str, heads: dict[str, Path], depth: int, num_branches: int) -> dict[str, Any]:
    chosen = METHODS[method]
    (kind,) = {chosen["method"], *chosen.get("methods", ())} & set(heads)
    size = {"num_speculative_tokens": depth, "num_branches": num_branches}
    return {"adaptive": False, "model": str(heads[kind]), **size, **chosen}


def shaped(method: str, *shape: int) -> Any:
    """Return a test's parameters; not `slow`: trees for every method, and single guesses for one of
    each sort."""
    is_fast = shape == (3, 3) or (shape == (1, 1) and method in ("eagle3", "medusa", "adaptive"))
    return pytest.param(method, *shape, marks=() if is_fast else pytest.mark.slow)


@pytest.mark.parametrize(
    ("method", "depth", "num_branches"),
    [shaped(method, *shape) for method in METHODS for shape in ((1, 1), (3, 3), (4, 1))],
)
def test_heads_change_no_token(
    plain: LLM,
    plain_tokens: PlainTokens,
    heads: dict[str, Path],
    method: str,
    depth: int,
    num_branches: int,
) -> None:
    llm = plain.with_speculation(config(method, heads, depth, num_branches))
    found = outputs(llm, plain_tokens, together=depth == 1)
    assert {asked: output.token_ids for asked, output in found.items()} == plain_tokens
    assert not any(output.stats["drafter_failures"] for output in found.values())
    num_guessed = sum(output.stats["draft_tokens"] for output in found.values())
    assert num_guessed > 0 or method == "adaptive"
    assert_nothing_is_held(llm)


def test_random_heads_are_right_at_times(plain: LLM, heads: dict[str, Path]) -> None:
    """Some guesses of random heads are accepted, so the other tests cover accepted paths and the
    hidden states of their rows."""
    for method in CONFIGS:
        llm = plain.with_speculation(config(method, heads, 3, 3))
        for prompt in PROMPTS * 3:
            llm.generate(prompt, params("top_p", n=4))
            if (num := llm.metrics()["drafters"][method]["num_accepted_tokens"]) > 5:
                break
        assert num > 5


@pytest.mark.parametrize(
    ("method", "memory"),
    [
        ("block", 400_000),
        ("eagle3", 300_000),
        ("medusa", 200_000),
        ("pass", 400_000),
        # A second head of a sort: it keeps rows and waits by the same code as the first.
        pytest.param("blockwise", 200_000, marks=pytest.mark.slow),
        pytest.param("distilled", 400_000, marks=pytest.mark.slow),
        pytest.param("mtp", 300_000, marks=pytest.mark.slow),
    ],
)
def test_together_preempted_and_in_chunks(
    tiny_path: Path,
    plain: LLM,
    heads: dict[str, Path],
    method: str,
    memory: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forerun.engine.setup.building._PASS_TOKENS", 9)
    chosen = config(method, heads, 3, 2)
    llm = LLM(
        tiny_path,
        speculative_config=chosen,
        kv_cache_memory=memory,
        max_num_seqs=4,
        kernels=plain.model.kernels,
    )
    prompts = [prompt * 3 for prompt in PROMPTS] * 3
    asked = params("min_p").with_(max_tokens=60)
    for prompt, result in zip(prompts, llm.generate(prompts, asked), strict=True):
        assert result.outputs[0].token_ids == tokens(plain, prompt, asked)
    assert llm.metrics()["preemptions"] > 0
    assert_nothing_is_held(llm)


def test_one_that_leaves_holds_nothing(plain: LLM, heads: dict[str, Path]) -> None:
    llm = plain.with_speculation(config("eagle3", heads, 3, 2))
    streams = [llm.stream(prompt, params("greedy")) for prompt in PROMPTS]
    for stream in streams:
        next(stream)
    for stream in streams:
        stream.close()
    assert_nothing_is_held(llm)


Heard = list[tuple[int, int, dict[int, FloatArray]]]  # request, first position, rows by layer


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Record all hidden states that `FedBack` drafters are told of from here on."""
    found: Heard = []
    tapped = FedBack.tapped

    def listening(
        self: FedBack, request: RequestView, start: int, rows: Mapping[int, FloatArray]
    ) -> None:
        found.append((request.id, start, dict(rows)))
        tapped(self, request, start, rows)

    monkeypatch.setattr(FedBack, "tapped", listening)
    return found


def states(model: LlamaModel, text: tuple[int, ...], layers: tuple[int, ...]) -> Taps:
    cache, taps = model.new_cache(64, 16), Taps(layers)
    table = cache.new_table()
    span = Span.all_wanted(table.reserve(len(text)), text)
    model.forward(Plan.build([(span, table)]), cache, taps)
    return taps


def test_drafters_hear_the_hidden_states_of_the_text_and_of_nothing_else(
    tiny_path: Path,
    plain: LLM,
    heads: dict[str, Path],
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A head hears the hidden states of the finished text, bit for bit, whatever was rejected: with
    trees, chunked prompts, other requests in the pass and preemptions."""
    monkeypatch.setattr("forerun.engine.setup.building._PASS_TOKENS", 9)
    chosen = config("eagle3", heads, 3, 3)
    llm = LLM(
        tiny_path,
        speculative_config=chosen,
        kv_cache_memory=300_000,
        max_num_seqs=4,
        kernels=plain.model.kernels,
    )
    prompts = [(*range(n, n + 20), 3) for n in range(6)]
    results = llm.generate(prompts, params("top_p").with_(max_tokens=60))
    assert llm.metrics()["preemptions"] > 0
    expected = {}
    for idx, result in enumerate(results):
        text = (*prompts[idx], *result.outputs[0].token_ids)
        expected[text[:20]] = states(plain.model, text, (0, 2, 3)).rows
    assert len(heard) > 100
    first_states = {rows[0][0].tobytes(): rows for rows in expected.values()}
    by_request: dict[int, dict[int, FloatArray]] = {}
    for request_id, start, rows in heard:
        if start == 0:
            by_request[request_id] = first_states[rows[0][0].tobytes()]
        whole = by_request[request_id]
        for layer, found in rows.items():
            assert found.tobytes() == whole[layer][start : start + len(found)].tobytes()


def test_a_known_prefix_is_not_computed_again_for_a_head(
    plain: LLM, heads: dict[str, Path], heard: Heard
) -> None:
    """The head's cache begins after the target's cached prefix, and the head still guesses."""
    llm = plain.with_speculation(config("eagle3", heads, 2, 1))
    prompt, asked = [idx % 30 for idx in range(100)], params("greedy")
    first = llm.generate(prompt, asked)[0].outputs[0]
    heard.clear()
    again = llm.generate(prompt, asked)[0].outputs[0]
    assert again.token_ids == first.token_ids
    assert heard[0][1] > 64
    assert again.stats["draft_tokens"] > 10


def test_nothing_is_handed_out_where_nobody_asks(
    plain: LLM, heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tapped: list[bool] = []
    draw = LlamaModel.draw

    def counting(model: Any, plan: Any, cache: Any, draws: Any, taps: Any = None) -> Any:
        tapped.append(taps is not None)
        return draw(model, plan, cache, draws, taps)

    monkeypatch.setattr(LlamaModel, "draw", counting)
    options = config("hybrid", heads, 3, 1) | {"method": "choice"}
    llm = plain.with_speculation(options)
    asked = params("greedy")
    llm.generate("abcabc", asked, speculation={"drafter": "prompt_lookup"})
    assert tapped
    assert not any(tapped)
    llm.generate("abcabc", asked, speculation={"drafter": "eagle3"})
    assert any(tapped)


def test_only_the_latest_hidden_states_are_kept_where_nobody_guesses(
    plain: LLM, heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text without a proposal, then one: memory stays bounded, and the head guesses."""
    monkeypatch.setattr("forerun.drafters.heads.feature_cache._MAX_PENDING", 16)
    llm = plain.with_speculation(config("eagle3", heads, 2, 1))
    prompt = [idx % 30 for idx in range(80)]
    output = llm.generate(prompt, params("greedy"))[0].outputs[0]
    assert output.token_ids == plain.generate(prompt, params("greedy"))[0].outputs[0].token_ids
    assert output.stats["draft_tokens"] > 10
