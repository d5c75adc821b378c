"""How a question reaches the engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

from forerun.engine import LLM, AsyncEngine
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
