"""How a question reaches the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from forerun.engine import LLM, AsyncEngine
from forerun.models.text.tokenizer import Tokenizer
from forerun.server.operation.config import Limits
from forerun.server.operation.counters import Counters
from forerun.server.question import Question
from forerun.server.service import Service
from forerun.types import SamplingParams

PARAMS = SamplingParams(max_tokens=4, seed=0, ignore_eos=True)


def test_a_prediction_is_read_beside_the_event_loop(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a hundred kilobytes takes a tenth of a second, in which no stream would go on."""
    llm = LLM(tiny_path, kernels="reference")
    threads: list[str] = []

    def noted(*args: Any, read: Any = llm.input_processor.requests) -> Any:
        threads.append(current_thread().name)
        return read(*args)

    monkeypatch.setattr(llm.input_processor, "requests", noted)

    async def body() -> list[int]:
        async with AsyncEngine(llm) as engine:
            service = Service(("tiny",), Limits(), Counters(lambda: None))
            service.start(engine, "reference")
            lengths = []
            for prediction in (None, "abc"):
                question = Question([(1, 2), (3, 4)], PARAMS, prediction=prediction)
                group = await question.ask(service)
                lengths += [len(delta.tokens) for delta in await group.whole()]
            service.close()
            return lengths

    assert asyncio.run(body()) == [4, 4, 4, 4]
    assert threads[:2] == ["MainThread"] * 2
    assert all(name.startswith("forerun-prompts") for name in threads[2:])
    assert len(threads) == 4


def test_a_prediction_is_encoded_once_for_all_prompts(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(tiny_path, kernels="reference")
    encoded: list[str] = []

    def noted(self: Tokenizer, text: str, *, encode: Any = Tokenizer.encode, **more: Any) -> Any:
        encoded.append(text)
        return encode(self, text, **more)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    prompts, predictions = [(1, 2), (3, 4), (5, 6), (7, 8)], ["ab", "ab", "abc", "ab"]
    pairs = zip(prompts, predictions, strict=True)
    alone = [llm.generate([prompt], PARAMS, prediction=text) for prompt, text in pairs]
    encoded.clear()
    together = llm.generate(prompts, PARAMS, prediction=predictions)
    assert encoded == ["abc", "ab"]  # the first two had the one before them
    assert [o.outputs[0].token_ids for o in together] == [
        one[0].outputs[0].token_ids for one in alone
    ]
