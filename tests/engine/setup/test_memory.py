"""Memory and lengths are limits: never exceeded, and what cannot fit is refused at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.drafters import DraftModel
from forerun.engine import LLM
from forerun.engine.request.options import RequestOptions
from forerun.engine.setup.memory import CacheMemory, parse_bytes
from forerun.engine.step import Core
from forerun.errors import InvalidOption, PromptTooLong, RequestTooLarge
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(temperature=0.8, seed=1, max_tokens=30, ignore_eos=True)


def draft_models(core: Core) -> list[DraftModel]:
    drafters = core.speculation.drafters.drafters.values() if core.speculation else ()
    parts = [part for drafter in drafters for part in getattr(drafter, "parts", (drafter,))]
    return [part for part in parts if isinstance(part, DraftModel)]


def cache_bytes(llm: LLM) -> int:
    """Return the bytes of all K and V arrays that the engine holds."""
    core = llm.engine.core
    stores = [core.cache.store, *(model._cache.store for model in draft_models(core))]
    return sum(int(store.k.nbytes + store.v.nbytes) for store in stores)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("backend", ["paged", "slotted"])
@pytest.mark.parametrize("method", ["none", "two drafts"])
def test_the_caches_stay_within_the_memory(
    tiny_path: Path, tiny_draft_path: Path, kernels: str, backend: str, method: str
) -> None:
    config = {
        "method": "merge", "methods": ["draft_model", "own_layers"], "num_layers": 2,
        "model": str(tiny_draft_path), "adaptive": False,
    }  # fmt: skip
    llm = LLM(
        tiny_path,
        kernels=kernels,
        speculative_config=None if method == "none" else config,
        kv_cache_memory="700 KB",
        kv_cache_backend=backend,
    )
    core = llm.engine.core
    page_bytes = cache_bytes(llm) // core.cache.pool.num_pages
    assert 700_000 - page_bytes < cache_bytes(llm) <= 700_000
    assert len(llm.generate(["abc", "cab"], PARAMS)[1].outputs[0].token_ids) == 30
    assert len(draft_models(core)) == (0 if method == "none" else 2)
    assert_nothing_is_held(llm)


def test_a_slot_is_a_row(tiny_path: Path, plain: LLM) -> None:
    llm = LLM(tiny_path, kv_cache_backend="slotted", max_num_seqs=3, num_threads=1)
    assert llm.engine.core.cache.pool.num_pages == 3
    prompts = ["abc", "abcabc", "cab", "b"]
    for prompt, result in zip(prompts, llm.generate(prompts, PARAMS), strict=True):
        alone = plain.generate(prompt, PARAMS)[0].outputs[0]
        assert result.outputs[0].token_ids == alone.token_ids


def test_without_a_length_the_context_is_what_the_memory_holds(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, kv_cache_memory="25KB", kernels="reference")
    assert llm.max_model_len == llm.engine.core.cache.pool.num_pages * 16 < 256
    output = llm.generate("abc", PARAMS.with_(max_tokens=None))[0].outputs[0]
    assert len(output.token_ids) == llm.max_model_len - 3


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"kv_cache_memory": "25KB"}, "shorten it, or raise kv_cache_memory."),
        ({"kv_cache_memory": "25KB", "max_model_len": 32}, "shorten it, or raise max_model_len."),
        ({"max_model_len": 32}, "shorten it, or raise max_model_len."),
        ({}, "context length is 256 tokens, and the prompt has 256; shorten it."),
    ],
)
def test_a_prompt_that_is_too_long_is_told_what_limits_it(
    tiny_path: Path, options: dict[str, Any], advice: str
) -> None:
    llm = LLM(tiny_path, speculative_config=None, kernels="reference", **options)
    with pytest.raises(PromptTooLong, match=f"{re.escape(advice)}$"):
        llm.generate("a" * 256)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"kv_cache_memory": "lots"}, "kv_cache_memory='lots'"),
        ({"kv_cache_memory": 0}, "kv_cache_memory=0"),
        ({"kv_cache_memory": -5}, "kv_cache_memory=-5"),
        ({"kv_cache_memory": 1.5}, "kv_cache_memory=1.5"),
        ({"kv_cache_memory": True}, "kv_cache_memory=True"),
        ({"kv_cache_memory": "10"}, "holds nothing"),
        ({"kv_cache_backend": "page"}, "did you mean 'paged'"),
    ],
)
def test_memory_that_cannot_be(tiny_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        LLM(tiny_path, **options)


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
@pytest.mark.parametrize("max_num_seqs", [10**13, 10**18])
def test_a_cache_beyond_all_memory_is_told_in_one_sentence(
    tiny_path: Path, kernels: str, max_num_seqs: int
) -> None:
    with pytest.raises(InvalidOption, match=f"no memory for {max_num_seqs} × 256 tokens; lower"):
        LLM(tiny_path, max_num_seqs=max_num_seqs, kernels=kernels)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("512MB", 512_000_000),
        ("1.5 GiB", 3 << 29),
        ("64k", 64_000),
        (" 7 b ", 7),
        (12, 12),
        (np.int64(9), 9),
    ],
)
def test_bytes_as_people_write_them(text: str | int, num_bytes: int) -> None:
    assert parse_bytes(text, "x") == num_bytes


def test_more_than_the_context_is_refused(plain: LLM) -> None:
    prompt = [3] * 200
    with pytest.raises(RequestTooLarge, match="has 200 and max_tokens is 57"):
        plain.generate(prompt, PARAMS.with_(max_tokens=57))
    with pytest.raises(RequestTooLarge):
        plain.stream(prompt, PARAMS.with_(max_tokens=57))
    output = plain.generate(prompt, PARAMS.with_(max_tokens=56))[0].outputs[0]
    assert len(output.token_ids) == 56


def test_one_that_is_refused_leaves_no_other_behind(plain: LLM) -> None:
    with pytest.raises(RequestTooLarge):
        plain.generate(["abc", "b"], [PARAMS, PARAMS.with_(max_tokens=999)])
    assert plain.engine.is_idle
    assert plain.engine.core.scheduler.is_idle


def test_a_length_that_the_memory_cannot_hold_is_refused_at_start(tiny_path: Path) -> None:
    options: dict[str, Any] = {"kv_cache_memory": "25KB", "kernels": "reference"}
    for backend in ("paged", "slotted"):
        with pytest.raises(InvalidOption, match="max_model_len=256 does not fit"):
            LLM(tiny_path, max_model_len=256, kv_cache_backend=backend, **options)
    llm = LLM(tiny_path, max_model_len=60, **options)
    output = llm.generate("abc", PARAMS.with_(max_tokens=None))[0].outputs[0]
    assert len(output.token_ids) == 57


@pytest.mark.parametrize("config", [None, {"method": "bigram", "adaptive": False}])
def test_without_a_length_a_slot_is_what_the_memory_holds(tiny_path: Path, config: Any) -> None:
    llm = LLM(
        tiny_path,
        speculative_config=config,
        kv_cache_memory="25KB",
        kv_cache_backend="slotted",
        kernels="reference",
    )
    pool = llm.engine.core.cache.pool
    assert pool.num_pages == 1
    assert llm.max_model_len == pool.page_size == 25_000 // llm.model.row_bytes
    results = llm.generate(["abc", "b"], PARAMS.with_(max_tokens=None))
    lens = [len(result.outputs[0].token_ids) for result in results]
    assert lens == [llm.max_model_len - 3, llm.max_model_len - 1]


@pytest.fixture(scope="module")
def short_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model with a context of 40 tokens."""
    folder = tmp_path_factory.mktemp("models") / "short"
    return write_tiny_model(folder, seed=0, max_len=40)


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_draft_of_shorter_context_stops_at_its_limit(
    plain: LLM, short_path: Path, is_adaptive: bool
) -> None:
    config = {"model": str(short_path), "num_speculative_tokens": 3, "adaptive": is_adaptive}
    with pytest.warns(RuntimeWarning, match="context of draft_model is 40 tokens and the target's"):
        llm = plain.with_speculation(config)
    params = PARAMS.with_(max_tokens=80)
    events = list(llm.stream("abc", params))
    output = events[-1].output
    assert output is not None
    assert output.token_ids == plain.generate("abc", params)[0].outputs[0].token_ids
    guessed = [len(event.round.proposal) > 0 for event in events]
    if not is_adaptive:
        assert sum(guessed) >= 10
        assert output.stats["acceptance_rate"] == 1
    num_tokens = 3
    for event, has_guessed in zip(events, guessed, strict=True):
        assert not has_guessed or num_tokens <= 40
        num_tokens += len(event.tokens)
    long = plain.generate("ab" * 40, PARAMS)[0].outputs[0]
    assert llm.generate("ab" * 40, PARAMS)[0].outputs[0].token_ids == long.token_ids


def test_beyond_its_limit_another_drafter_is_chosen(plain: LLM, short_path: Path) -> None:
    config = {"method": "hybrid", "methods": ["draft_model", "bigram"], "model": str(short_path)}
    with pytest.warns(RuntimeWarning, match="longer texts go on without its guesses"):
        llm = plain.with_speculation(config)
    speculation = llm.engine.core.speculation
    assert speculation is not None
    for num_tokens, names in ((40, ["draft_model", "bigram"]), (41, ["bigram"])):
        (request,) = llm.input_processor.requests([1] * num_tokens, PARAMS, RequestOptions())
        assert list(speculation.drafters.names_for(request)) == names


def test_a_cache_takes_no_more_than_a_device_has_free() -> None:
    assert CacheMemory(4).size(64, [6, 4]).num_rows == 256
    assert CacheMemory(4).size(64, [6, 4], free_bytes=2560).num_rows == 256
    assert CacheMemory(4).size(64, [6, 4], free_bytes=2559).num_rows == 240
    assert CacheMemory(4, num_bytes=1000).size(64, [10], free_bytes=1000).num_rows == 96
    with pytest.raises(InvalidOption, match=r"the device has 999 for it .* lower it"):
        CacheMemory(4, num_bytes=1000).size(64, [10], free_bytes=999)
