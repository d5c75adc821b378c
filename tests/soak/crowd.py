"""Many requests in one engine, against the same requests alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from forerun.engine import LLM, CompletionOutput
from forerun.engine.request.request import Request
from tests.engine.leaks import assert_nothing_is_held
from tests.soak.questions import Asked, Question

MAX_OPEN = 24  # running or waiting at once

Tell = Callable[[str], None]


@dataclass
class Alone:
    """Answers each question alone in the engine, without speculation, and keeps the answer.

    Each question has a salt of its own, so that it finds no cached prefix.
    """

    plain: LLM
    answers: dict[str, CompletionOutput] = field(default_factory=dict)
    _salts: Iterator[int] = field(default_factory=count)

    def answer(self, question: Question) -> CompletionOutput:
        key = repr(question)
        if key not in self.answers:
            salt = f"alone {next(self._salts)}"
            result = self.plain.generate([question.prompt], question.params, cache_salt=salt)
            self.answers[key] = result[0].outputs[0]
        return self.answers[key]


class Crowd:
    """Steps the engine, adds requests as there is room, and cancels those that leave."""

    def __init__(self, llm: LLM, rng: Random, tell: Tell) -> None:
        self._llm = llm
        self._rng = rng
        self._tell = tell
        self.num_evicted = 0
        pool = llm.engine.core.cache.pool
        self._forget, pool.on_forget = pool.on_forget, self._count_evicted

    def _count_evicted(self, page: int) -> None:
        self.num_evicted += 1
        self._forget(page)

    def run(self, asked: Sequence[Asked]) -> list[tuple[Asked, CompletionOutput]]:
        """Return the requests that were answered; the others were cancelled."""
        engine, waiting = self._llm.engine, list(asked)[::-1]
        inside: dict[int, tuple[Request, Asked, int]] = {}
        answered: list[tuple[Asked, CompletionOutput]] = []
        for step_idx in count():
            while waiting and len(inside) < MAX_OPEN and self._rng.random() < 0.7:
                one = waiting.pop()
                (request,) = self._llm.input_processor.requests(
                    one.question.prompt, one.params, one.options
                )
                engine.add([request])
                inside[request.id] = request, one, step_idx
                if len(waiting) % max(1, len(asked) // 20) == 0:
                    self._tell(f"{len(asked) - len(waiting)} of {len(asked)} asked")
            for request, one, came in list(inside.values()):
                if one.leaves_after is not None and step_idx - came >= one.leaves_after:
                    engine.abort(request)
                    del inside[request.id]
            if not waiting and not inside:
                return answered
            if engine.is_idle:
                continue
            for request in engine.step().ended:
                if request.error is not None:
                    raise request.error
                _, one, _ = inside.pop(request.id)
                answered.append((one, CompletionOutput.of(request)))
        raise AssertionError


def assert_equal_to_alone(
    llm: LLM, alone: Alone, asked: Sequence[Asked], rng: Random, tell: Tell
) -> dict[str, Any]:
    """Run all requests together, compare each with its answer alone, and check for leaks."""
    crowd = Crowd(llm, rng, tell)
    answered = crowd.run(asked)
    assert_nothing_is_held(llm)
    num_kept = sum(one.leaves_after is None for one in asked)
    assert len(answered) >= num_kept
    for idx, (one, found) in enumerate(answered):
        if one.keeps_bits:
            expected = alone.answer(one.question)
            assert shown(found) == shown(expected), one
        if idx % max(1, len(answered) // 20) == 0:
            tell(f"{idx} of {len(answered)} compared")
    return {**llm.metrics(), "evictions": crowd.num_evicted}


def shown(output: CompletionOutput) -> tuple[Any, ...]:
    """Return all that a caller sees and speculation must not change."""
    ends = output.finish_reason, output.stop_reason
    return output.token_ids, output.text, ends, output.logprobs
