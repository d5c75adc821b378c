"""A drafter that knows the answer, and records what it is asked and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forerun.cache import BlockTable
from forerun.drafters import Budget, RequestView
from forerun.engine import LLM
from forerun.engine.request.output_text import OutputText
from forerun.engine.request.request import Request
from forerun.models.text.tokenizer import Tokenizer
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.types import Proposal, SamplingParams, Verdict
from tests.cache.rows import new_table


class KnownAnswer:
    """Guesses the next tokens of one answer, so that all are accepted."""

    picks = False

    def __init__(self, answer: Sequence[int]) -> None:
        self.answer = tuple(answer)
        self.budgets: list[Budget] = []
        self.num_left: list[int] = []  # tokens left of the answer, at each call of `propose`
        self.told: list[Verdict] = []
        self.outputs: list[tuple[int, ...]] = []  # output of the request, at each call of `commit`
        self.begun: list[int] = []
        self.ended: list[int] = []

    @property
    def num_requests(self) -> int:
        return len({*self.begun} - {*self.ended})

    def begin(self, request: RequestView) -> None:
        self.begun.append(request.id)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        self.budgets += budgets
        pairs = zip(requests, budgets, strict=True)
        return [self._guess(len(request.output), budget) for request, budget in pairs]

    def _guess(self, num_known: int, budget: Budget) -> Proposal:
        self.num_left.append(len(self.answer) - num_known)
        return Proposal.chain(self.answer[num_known : num_known + budget.depth])

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        self.told.append(verdict)
        self.outputs.append(tuple(request.output))

    def end(self, request: RequestView) -> None:
        self.ended.append(request.id)


def knowing(plain: LLM, answer: Sequence[int], depth: int = 4) -> tuple[LLM, KnownAnswer]:
    llm = plain.with_speculation({"method": "random", "adaptive": False})
    core, drafter = llm.engine.core, KnownAnswer(answer)
    drafters = GuardedDrafters({"known": drafter}, core.model.config.vocab_size)
    speculation = Speculation(drafters, None, Budget(depth))
    llm.engine.core = replace(core, speculation=speculation)
    return llm, drafter


def new_request(
    tokenizer: Tokenizer,
    params: SamplingParams,
    prompt: Sequence[int] = (0, 1),
    output: Sequence[int] = (),
    end_ids: Sequence[int] = (),
    table: BlockTable | None = None,
) -> Request:
    """Build a request in the state that it has in the engine after `output`."""
    text = OutputText.start(
        tokenizer, params.stop, include_stop=params.include_stop_str_in_output, skip_special=True
    )
    for num, token in enumerate(output, start=1):
        text = text.push(token, may_stop=num > params.min_tokens)
    request = Request(
        id=0,
        prompt=tuple(prompt),
        params=params,
        seed=1,
        choice=0,
        end_ids=tuple(end_ids),
        max_len=64,
        text=text,
        table=table or new_table()[2],
    )
    request.output += output
    request.tokens += output
    return request
