"""One step of the engine, on one screen.

plan      how many guesses may each request spend this round (0 is an answer)
schedule  which requests run now, and how many tokens of each: integers only
propose   drafters return proposals: values; nobody's state is touched
forward   ONE target pass over all the spans
accept    verdicts from logits, proposals and sampling options
commit    the only place where state changes: request, cache, drafter, metrics

What goes wrong for one request is a value too, in the place of its logits or its verdict: commit
writes it down, the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.cache import KVCache
from forerun.engine.cut import Cut, cut
from forerun.engine.judge import judge, shown_log_probs
from forerun.engine.metrics import Metrics
from forerun.engine.planner import NO_ASK, Ask
from forerun.engine.prompt_logprobs import chunk_of, keep_prompt_logprobs, rows_to_judge
from forerun.engine.request import Request
from forerun.engine.scheduling.next_pass import Grant
from forerun.engine.scheduling.scheduler import Scheduler
from forerun.engine.speculation import Speculation
from forerun.engine.target_pass import Scores, score
from forerun.models.llama import LlamaModel
from forerun.planning.choice import Company
from forerun.types import FloatArray, Proposal, Span, Verdict


@dataclass(frozen=True)
class Core:
    """What a step works with; `requests` are all that the scheduler knows, by id."""

    model: LlamaModel
    cache: KVCache
    max_len: int  # of a prompt and its answer
    speculation: Speculation | None
    scheduler: Scheduler
    requests: dict[int, Request]
    metrics: Metrics


@dataclass(frozen=True)
class Round:
    """What one step did for one request."""

    request: Request
    ask: Ask
    proposal: Proposal
    verdict: Verdict
    cut: Cut


def step(core: Core) -> list[Round]:
    """Advance whoever is scheduled: by a prompt chunk, or by at least one token."""
    began = time.perf_counter()
    wishes = plan(core)
    grants = schedule(core, wishes)
    requests = [core.requests[grant.request_id] for grant in grants]
    asks = [wishes.get(grant.request_id, NO_ASK).within(grant.num_guesses) for grant in grants]
    proposals = propose(core, requests, asks)
    spans = spans_of(requests, grants, proposals)
    scores = forward(core, requests, spans)
    verdicts = accept(core, requests, spans, proposals, scores)
    rounds = commit(core, requests, asks, spans, proposals, verdicts, scores)
    if core.speculation is not None:
        num_guesses, seconds = sum(map(len, proposals)), time.perf_counter() - began
        core.speculation.observe_step(len(requests), num_guesses, seconds)
    return rounds


def plan(core: Core) -> dict[int, Ask]:
    """What each running request would spend; a prompt is read first."""
    if core.speculation is None:
        return {}
    running = [core.requests[request_id] for request_id in core.scheduler.running]
    ready = [request for request in running if request.num_waiting == 1]
    num_prompt_tokens = sum(request.num_waiting for request in running if request.num_waiting > 1)
    asks = core.speculation.plan(ready, Company(num_prompt_tokens=num_prompt_tokens))
    return dict(zip((request.id for request in ready), asks, strict=True))


def schedule(core: Core, wishes: Mapping[int, Ask]) -> Sequence[Grant]:
    """Admit whoever fits; guesses are the first thing to shrink when room is short."""
    chosen = core.scheduler.schedule({idx: ask.num_nodes for idx, ask in wishes.items()})
    core.metrics.preempted(len(chosen.preempted))
    if core.speculation is not None:
        for request_id in chosen.preempted:
            core.speculation.unseat(core.requests[request_id])
    for request in (core.requests[request_id] for request_id in chosen.admitted):
        if request.num_cached_tokens is None:
            request.num_cached_tokens = request.table.length
            core.metrics.admitted(len(request.prompt), request.table.length)
        if core.speculation is not None:
            core.speculation.begin(request)
    return chosen.grants


def propose(core: Core, requests: Sequence[Request], asks: Sequence[Ask]) -> list[Proposal]:
    if core.speculation is None:
        return [Proposal.empty() for _ in requests]
    return core.speculation.propose(requests, asks)


def spans_of(
    requests: Sequence[Request], grants: Sequence[Grant], proposals: Sequence[Proposal]
) -> list[Span]:
    spans = []
    for request, grant, proposal in zip(requests, grants, proposals, strict=True):
        start = request.table.length
        if request.num_waiting == 1:
            spans.append(Span.verification(start, request.tokens[-1], proposal))
        else:
            spans.append(chunk_of(request, start, grant.num_tokens))
    return spans


def forward(core: Core, requests: Sequence[Request], spans: Sequence[Span]) -> list[Scores]:
    """The wanted logits of each span, [1 + N, V] each; none for a chunk inside a prompt."""
    for request, span in zip(requests, spans, strict=True):
        request.table.reserve(len(span))
    began = time.perf_counter()
    scores = score(core.model, core.cache, spans, [request.table for request in requests])
    if core.speculation is not None:
        num_tokens, seconds = sum(map(len, spans)), time.perf_counter() - began
        core.speculation.observe_pass(num_tokens, len(requests), seconds)
    return scores


def accept(
    core: Core,
    requests: Sequence[Request],
    spans: Sequence[Span],
    proposals: Sequence[Proposal],
    scores: Sequence[Scores],
) -> list[Verdict | Exception | None]:
    return [
        rows if isinstance(rows, Exception) else _accept_one(core, request, span, proposal, rows)
        for request, span, proposal, rows in zip(requests, spans, proposals, scores, strict=True)
    ]


def _accept_one(
    core: Core, request: Request, span: Span, proposal: Proposal, rows: FloatArray
) -> Verdict | Exception | None:
    try:
        logits = rows_to_judge(request, span, proposal, rows)
        return judge(request, proposal, logits, core.model.kernels) if len(logits) else None
    except Exception as error:
        return error


def commit(
    core: Core,
    requests: Sequence[Request],
    asks: Sequence[Ask],
    spans: Sequence[Span],
    proposals: Sequence[Proposal],
    verdicts: Sequence[Verdict | Exception | None],
    scores: Sequence[Scores],
) -> list[Round]:
    core.metrics.passed(sum(map(len, spans)))
    rounds = []
    for request, ask, span, proposal, verdict, rows in zip(
        requests, asks, spans, proposals, verdicts, scores, strict=True
    ):
        try:
            if isinstance(verdict, Exception):
                raise verdict
            assert not isinstance(rows, Exception)
            keep_prompt_logprobs(request, span, rows)
            if verdict is None:  # a chunk inside the prompt: its rows simply stay
                core.cache.prefixes.publish(request.table, request.tokens, request.cache_salt)
            else:
                logits = rows_to_judge(request, span, proposal, rows)
                rounds.append(_commit_one(core, request, ask, span, proposal, verdict, logits))
        except Exception as error:
            request.error = error
    return rounds


def _commit_one(
    core: Core,
    request: Request,
    ask: Ask,
    span: Span,
    proposal: Proposal,
    verdict: Verdict,
    logits: FloatArray,
) -> Round:
    ending = cut(request, verdict)
    emitted = verdict.first(ending.num_tokens)
    if request.params.logprobs is not None:
        request.logprobs += shown_log_probs(emitted, logits, request.params.logprobs)
    _commit_cache(request, span, proposal, emitted)
    _commit_request(request, emitted, ending)
    core.cache.prefixes.publish(request.table, request.tokens, request.cache_salt)
    request.stats.observe(
        len(proposal), emitted.num_accepted, len(emitted.tokens), ask.choice, ask.drafter
    )
    core.metrics.emitted(ask.drafter, proposal, emitted)
    if core.speculation is not None:
        core.speculation.commit(request, ask, proposal, emitted)
    return Round(request, ask, proposal, emitted, ending)


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
