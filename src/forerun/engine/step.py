"""One step of the engine, on one screen.

plan      how many guesses may each request spend this round (0 is an answer)
propose   drafters return proposals: values; nobody's state is touched
schedule  which spans of tokens run now
forward   ONE target pass over all the spans
accept    verdicts from logits, proposals and sampling options
commit    the only place where state changes: request, cache, drafter, stats
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.cache import KVCache
from forerun.engine.cut import Cut, cut
from forerun.engine.judge import judge, shown_log_probs
from forerun.engine.planner import Ask
from forerun.engine.request import Request
from forerun.engine.speculation import Speculation
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Proposal, Span, Verdict


@dataclass(frozen=True)
class Core:
    """What a step works with."""

    model: LlamaModel
    cache: KVCache
    speculation: Speculation | None
    prompt_chunk: int


@dataclass(frozen=True)
class Round:
    """What one step did for one request."""

    request: Request
    ask: Ask
    proposal: Proposal
    verdict: Verdict
    cut: Cut


def step(core: Core, requests: Sequence[Request]) -> list[Round]:
    """Advance every request: by a prompt chunk, or by at least one token."""
    asks = plan(core, requests)
    proposals = propose(core, requests, asks)
    spans = schedule(core, requests, proposals)
    logits = forward(core, requests, spans)
    verdicts = accept(core, requests, proposals, logits)
    return commit(core, requests, asks, spans, proposals, verdicts, logits)


def plan(core: Core, requests: Sequence[Request]) -> list[Ask]:
    """A prompt is read first; then what each request spends is the planner's to say."""
    if core.speculation is None:
        return [Ask()] * len(requests)
    ready = [request for request in requests if request.num_waiting == 1]
    reading = [request for request in requests if request.num_waiting > 1]
    num_prompt_tokens = sum(min(r.num_waiting, core.prompt_chunk) for r in reading)
    asks = core.speculation.plan(ready, num_prompt_tokens)
    by_id = dict(zip((request.id for request in ready), asks, strict=True))
    return [by_id.get(request.id, Ask()) for request in requests]


def propose(core: Core, requests: Sequence[Request], asks: Sequence[Ask]) -> list[Proposal]:
    if core.speculation is None:
        return [Proposal.empty() for _ in requests]
    return core.speculation.propose(requests, asks)


def schedule(core: Core, requests: Sequence[Request], proposals: Sequence[Proposal]) -> list[Span]:
    spans = []
    for request, proposal in zip(requests, proposals, strict=True):
        start = request.table.length
        if request.num_waiting == 1:
            spans.append(Span.verification(start, request.tokens[-1], proposal))
        else:
            chunk = request.tokens[start : start + core.prompt_chunk]
            is_last = len(chunk) == request.num_waiting
            spans.append(Span.prompt_chunk(start, chunk, is_last=is_last))
    return spans


def forward(core: Core, requests: Sequence[Request], spans: Sequence[Span]) -> list[FloatArray]:
    """The wanted logits of each span, [1 + N, V] each; none for a chunk inside a prompt."""
    for request, span in zip(requests, spans, strict=True):
        request.table.reserve(len(span))
    tables = [request.table for request in requests]
    began = time.perf_counter()
    rows = core.model.forward(Plan.build(zip(spans, tables, strict=True)), core.cache)
    if core.speculation is not None:
        num_tokens, seconds = sum(map(len, spans)), time.perf_counter() - began
        core.speculation.planner.observe_pass(num_tokens, len(requests), seconds)
    logits, first = [], 0
    for span in spans:
        logits.append(rows[first : first + len(span.wanted)])
        first += len(span.wanted)
    return logits


def accept(
    core: Core,
    requests: Sequence[Request],
    proposals: Sequence[Proposal],
    logits: Sequence[FloatArray],
) -> list[Verdict | None]:
    return [
        judge(request, proposal, rows, core.model.kernels) if len(rows) else None
        for request, proposal, rows in zip(requests, proposals, logits, strict=True)
    ]


def commit(
    core: Core,
    requests: Sequence[Request],
    asks: Sequence[Ask],
    spans: Sequence[Span],
    proposals: Sequence[Proposal],
    verdicts: Sequence[Verdict | None],
    logits: Sequence[FloatArray],
) -> list[Round]:
    rounds = []
    for request, ask, span, proposal, verdict, rows in zip(
        requests, asks, spans, proposals, verdicts, logits, strict=True
    ):
        if verdict is None:  # a chunk inside the prompt: its rows simply stay
            continue
        ending = cut(request, verdict)
        emitted = verdict.first(ending.num_tokens)
        if request.params.logprobs is not None:
            request.logprobs += shown_log_probs(emitted, rows, request.params.logprobs)
        _commit_cache(request, span, proposal, emitted)
        _commit_request(request, emitted, ending)
        request.stats.observe(len(proposal), emitted.num_accepted, len(emitted.tokens), ask.choice)
        if core.speculation is not None:
            core.speculation.commit(request, ask, proposal, emitted)
        rounds.append(Round(request, ask, proposal, emitted, ending))
    return rounds


def _commit_cache(request: Request, span: Span, proposal: Proposal, emitted: Verdict) -> None:
    """The span's certain tokens stay; of the guesses behind them, those that held."""
    num_certain = len(span) - len(proposal)
    held = (num_certain + node for node in emitted.path)
    request.table.keep(span.start, (*range(num_certain), *held))


def _commit_request(request: Request, emitted: Verdict, ending: Cut) -> None:
    request.tokens += emitted.tokens
    request.output += emitted.tokens
    request.origins += emitted.origins
    request.text = ending.text
    request.text_ends += ending.text_ends
    request.finish_reason, request.stop_reason = ending.finish_reason, ending.stop_reason
    request.round_idx += 1
