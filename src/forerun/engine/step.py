"""One step of the engine, on one screen.

choose    drafters that pick say what they would guess; then, for each request, which drafter
          guesses and how deep (0 is a valid answer)
schedule  which requests run now, and how many tokens of each: integers only
draft     the drafters that have not been asked yet guess, within what was granted
forward   ONE target pass over all the spans
verify    verdicts from scores, proposals and sampling options
commit    the only place where a request changes, and where drafters, prefixes, metrics and the
          controller are told of it

Each request has one `Round`, which these functions fill in one after the other. Before commit the
scheduler admits, preempts and gives out pages, drafters feed their own caches, and the controller
counts a round, but no request changes. An error that concerns one request is noted in its round
and reaches the request in commit; the other requests go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from forerun.cache import KVCache, next_slots
from forerun.engine.cut import Cut, cut
from forerun.engine.judge import draws_of, judge, shown_log_probs
from forerun.engine.metrics import Metrics
from forerun.engine.request.prompt_logprobs import chunk_of, keep_prompt_logprobs, rows_to_judge
from forerun.engine.request.request import Request
from forerun.engine.scheduling.scheduler import Schedule, Scheduler
from forerun.engine.target_pass import score
from forerun.kernels import Scores
from forerun.models.llama import LlamaModel, TapRows, Taps
from forerun.speculation.choice import Choice
from forerun.speculation.speculation import Speculation
from forerun.speculation.step_times import StepTimes
from forerun.types import IntArray, Proposal, Span, Verdict


@dataclass(frozen=True)
class Core:
    """Everything a step works with; `requests` holds all running and waiting requests by id."""

    model: LlamaModel
    cache: KVCache
    max_len: int  # of a prompt and its answer
    speculation: Speculation | None
    scheduler: Scheduler
    requests: dict[int, Request]
    metrics: Metrics
    clock: Callable[[], float] = time.perf_counter


@dataclass
class Round:
    """One request's way through one step; each function of the step fills in its part."""

    request: Request
    num_tokens: int  # known tokens to run: a chunk of the prompt, or the last emitted token
    choice: Choice | None = None  # None: no drafter may guess for this request
    proposal: Proposal = field(default_factory=Proposal.empty)
    span: Span = field(init=False)
    scores: Scores | None = None  # [1 + N], until commit; empty inside a prompt
    all_scores: Scores | None = None  # of all wanted rows, until commit
    taps: Taps | None = None  # hidden states of the whole span, if a drafter wants them
    verdict: Verdict = field(init=False)  # what is emitted; unset inside a prompt
    cut: Cut | None = None  # until commit: it holds a copy of the whole text
    num_chars: int = 0  # length of the request's text that no later round can take back
    finish_reason: str | None = None
    error: Exception | None = None  # why the request cannot go on

    @property
    def drafter(self) -> str | None:
        """The drafter chosen for this round, if any."""
        return self.choice.drafter if self.choice else None

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The indices of the span's rows that stay in the cache: those of the known tokens, then
        those of the accepted guesses. Needs the verdict."""
        num_certain = len(self.span) - len(self.proposal)
        if self.proposal.tree.is_chain:
            num_accepted = len(self.verdict.path) if self.proposal.tokens else 0
            return tuple(range(num_certain + num_accepted))
        return (*range(num_certain), *(num_certain + node for node in self.verdict.path))


def step(core: Core) -> list[Round]:
    """Advance every scheduled request by a prompt chunk or by at least one emitted token.

    Returns the rounds that emitted tokens.
    """
    times = StepTimes(core.clock)
    choices = choose(core, times)
    scheduled, rounds = schedule(core, choices)
    draft(core, rounds, times)
    forward(core, rounds, times)
    verify(core, rounds)
    return commit(core, scheduled, rounds, times)


def choose(core: Core, times: StepTimes) -> dict[int, Choice]:
    """Return what each running request would spend on guesses, by request id.

    Requests in prefill do not guess; their tokens only make the pass longer.
    """
    if core.speculation is None:
        return {}
    ready, num_prompt_tokens = list[Request](), 0
    for request_id in core.scheduler.running:
        request = core.requests[request_id]
        num_tokens = request.num_uncomputed
        if num_tokens == 1:
            ready.append(request)
        else:
            num_prompt_tokens += num_tokens
    return core.speculation.choose(ready, num_prompt_tokens, times)


def schedule(core: Core, choices: Mapping[int, Choice]) -> tuple[Schedule, list[Round]]:
    """Admit the requests that fit, and open a round for each request that runs.

    When tokens or pages are short, guesses are cut first.
    """
    wanted = {request_id: c.num_guesses for request_id, c in choices.items() if c.depth}
    scheduled = core.scheduler.schedule(wanted)
    rounds = []
    for grant in scheduled.grants:
        choice = choices.get(grant.request_id)
        choice = choice and choice.within(grant.num_guesses)
        rounds.append(Round(core.requests[grant.request_id], grant.num_tokens, choice))
    return scheduled, rounds


def draft(core: Core, rounds: Sequence[Round], times: StepTimes) -> None:
    """Fill in each round's proposal, and the span that the target runs for it."""
    guessing = [(r, r.choice) for r in rounds if r.choice and r.choice.drafter is not None]
    if core.speculation is not None and guessing:
        requests, choices = [r.request for r, _ in guessing], [choice for _, choice in guessing]
        proposals = core.speculation.draft(requests, choices, times)
        for (round_, _), proposal in zip(guessing, proposals, strict=True):
            round_.proposal = proposal
    for round_ in rounds:
        round_.span = _span(round_)


def _span(round_: Round) -> Span:
    request, start = round_.request, round_.request.table.length
    if request.num_uncomputed == 1:
        return Span.verification(start, request.tokens[-1], round_.proposal)
    return chunk_of(request, start, round_.num_tokens)


def forward(core: Core, rounds: Sequence[Round], times: StepTimes) -> None:
    """Run the target once over all spans and put the scores into the rounds.

    Scores are tokens drawn with the pass if the request allows that (`draws_of`), else logits.
    """
    spans, tables = [r.span for r in rounds], [r.request.table for r in rounds]
    for span, table in zip(spans, tables, strict=True):
        table.reserve(len(span.tokens))
    draws = [draws_of(r.request, r.span, r.proposal) for r in rounds]
    layers = core.speculation.layers_for([r.request for r in rounds]) if core.speculation else ()
    if layers:
        for round_ in rounds:
            round_.taps = Taps(layers)
    taps = [r.taps for r in rounds if r.taps]
    times.num_requests, times.num_tokens = len(rounds), sum([len(s.tokens) for s in spans])
    times.num_guesses = sum([len(r.proposal.tokens) for r in rounds])
    began = core.clock()
    following = _next_slots(core, rounds, times.num_guesses)
    scores = score(core.model, core.cache, spans, tables, draws, taps, following)
    times.head_start = core.model.kernels.head_start
    times.pass_seconds = core.clock() - began + times.head_start
    for round_, rows in zip(rounds, scores, strict=True):
        if isinstance(rows, Exception):
            round_.error = rows
        else:
            round_.all_scores = rows
            round_.scores = rows_to_judge(round_.request, round_.span, round_.proposal, rows)


def _next_slots(
    core: Core, rounds: Sequence[Round], num_guesses: int
) -> tuple[IntArray | None, ...] | None:
    """Return the slots of the next pass, so that the kernels can begin it early.

    None if the kernels do not begin such passes, a span ends inside a prompt, or pages are short.
    """
    kernels = core.model.kernels
    is_early = kernels.begins_rounds if num_guesses else kernels.begins_plain
    if not is_early or not all(len(r.span.wanted) == 1 + len(r.proposal) for r in rounds):
        return None
    return next_slots(
        [(r.request.table, len(r.span.wanted)) if r.request.num_left > 1 else None for r in rounds]
    )


def verify(core: Core, rounds: Sequence[Round]) -> None:
    """Judge each proposal against the scores.

    Stop strings and EOS are applied here, so nothing committed is ever taken back.
    """
    for round_ in rounds:
        request, scores = round_.request, round_.scores
        if scores is None or not len(scores):
            continue
        try:
            verdict = judge(request, round_.proposal, scores, core.model.kernels)
            round_.cut = ending = cut(request, verdict)
            round_.verdict = verdict.first(ending.num_tokens)
        except Exception as error:
            round_.error = error


def commit(
    core: Core, scheduled: Schedule, rounds: Sequence[Round], times: StepTimes
) -> list[Round]:
    """Apply all rounds to their requests, and report them to metrics, drafters and controller.

    Returns the rounds that emitted tokens.
    """
    core.metrics.passed(times.num_tokens, num_preempted=len(scheduled.preempted))
    if core.speculation is not None:
        for request_id in scheduled.preempted:
            core.speculation.evict(core.requests[request_id])
        for request_id in scheduled.admitted:
            core.speculation.begin(core.requests[request_id])
    emitting = []
    for round_ in rounds:
        try:
            if _commit_one(core, round_):
                emitting.append(round_)
        except Exception as error:
            round_.request.error = error
        # Readers keep rounds for long, so what is large is dropped.
        round_.scores = round_.all_scores = round_.taps = round_.cut = None
        if round_.proposal.draws:
            round_.proposal = round_.proposal.without_laws()
    times.finish()
    if core.speculation is not None:
        core.speculation.observe(times)
    return emitting


def _commit_one(core: Core, round_: Round) -> bool:
    """Commit one round; return whether it emitted tokens. Inside a prompt all rows just stay."""
    request, scores = round_.request, round_.scores
    if request.num_cached_tokens is None:
        request.num_cached_tokens = round_.span.start
        core.metrics.admitted(len(request.prompt), round_.span.start)
    if round_.error is not None:
        raise round_.error
    assert scores is not None
    assert round_.all_scores is not None
    keep_prompt_logprobs(request, round_.span, round_.all_scores)
    is_emitting = len(scores) > 0
    if is_emitting:
        if request.params.logprobs is not None:
            request.logprobs += shown_log_probs(round_.verdict, scores, request.params.logprobs)
        _commit_tokens(request, round_)
    _commit_taps(core, request, round_)
    core.cache.prefixes.publish(request.table, request.tokens, request.cache_salt)
    if not is_emitting:
        return False
    _commit_speculation(core, request, round_)
    return True


def _commit_tokens(request: Request, round_: Round) -> None:
    """Append the emitted tokens, and drop the cache rows of guesses that were not accepted."""
    emitted, ending = round_.verdict, round_.cut
    assert ending is not None
    if round_.proposal.tokens:
        request.table.keep(round_.span.start, round_.kept)
    request.tokens += emitted.tokens
    request.output += emitted.tokens
    request.origins += emitted.origins
    request.text = ending.text
    request.text_ends += ending.text_ends
    request.finish_reason, request.stop_reason = ending.finish_reason, ending.stop_reason
    request.round_idx += 1
    round_.num_chars, round_.finish_reason = ending.num_chars, ending.finish_reason


def _commit_taps(core: Core, request: Request, round_: Round) -> None:
    """Give drafters that tap hidden states those of the rows that stay."""
    if core.speculation is not None and round_.taps is not None:
        kept = round_.kept
        some = slice(len(kept)) if kept[-1] < len(kept) else list(kept)
        rows = TapRows(round_.taps, some, len(kept))
        core.speculation.tapped(request, round_.span.start, rows)


def _commit_speculation(core: Core, request: Request, round_: Round) -> None:
    choice, proposal, emitted = round_.choice, round_.proposal, round_.verdict
    core.metrics.emitted(choice, proposal, emitted)
    num_guesses = len(proposal.tokens)
    request.stats.observe(num_guesses, len(emitted.path), len(emitted.tokens), choice)
    if core.speculation is not None:
        core.speculation.commit(request, choice, proposal, emitted)
        request.stats.drafter_failures = core.speculation.num_failures(request)
