"""What a shared cache and chunked prompts save, as counts: no clock is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine import LLM
from forerun.engine.request.options import RequestOptions
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

TEXT = [n % 26 for n in range(2000)]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path: Path = write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=3000)
    return LLM(path, max_num_seqs=4, speculative_config=None, num_threads=1)


def num_computed(llm: LLM, prompt: list[int]) -> int:
    """Return how many prompt tokens went through a pass."""
    before = llm.metrics()
    llm.generate(prompt, SamplingParams(temperature=0, max_tokens=1))
    after = llm.metrics()
    grown = {name: after[name] - before[name] for name in ("prompt_tokens", "cached_prompt_tokens")}
    return int(grown["prompt_tokens"] - grown["cached_prompt_tokens"])


def test_a_shared_prefix_is_computed_once(llm: LLM) -> None:
    assert num_computed(llm, [*TEXT[:1000], 1, 2, 3]) == 1003
    assert num_computed(llm, [*TEXT[:1000], 4, 5, 6]) < 32


def test_a_stream_gets_a_token_in_every_step_while_a_long_prompt_is_read(llm: LLM) -> None:
    engine, params = llm.engine, SamplingParams(temperature=0, max_tokens=256, ignore_eos=True)
    (stream,) = llm.input_processor.requests([1, 2, 3], params, RequestOptions())
    salt = RequestOptions(cache_salt="newcomer")
    (newcomer,) = llm.input_processor.requests(TEXT, params.with_(max_tokens=1), salt)
    engine.add([stream])
    while not stream.output:
        engine.step()
    engine.add([newcomer])
    got_token = list[bool]()
    while not newcomer.output:
        rounds = engine.step().rounds
        got_token.append(any(done.request is stream for done in rounds))
    engine.abort(stream)
    assert len(got_token) >= len(TEXT) // 256
    assert all(got_token)
    pool = engine.core.cache.pool
    assert pool.num_free == pool.num_pages
