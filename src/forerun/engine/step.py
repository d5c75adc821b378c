"""One step of the engine, on one screen.

plan      how many guesses may each request spend this round (0 is an answer)
propose   drafters return proposals: values; nobody's state is touched
schedule  which spans of tokens run now
forward   ONE target pass over all the spans
accept    verdicts from logits, proposals and sampling options
commit    the only place where state changes: request, cache, drafter, stats
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.cache import KVCache
from forerun.drafters import Budget, Drafter
from forerun.engine.cut import Cut, cut
from forerun.engine.judge import judge, shown_log_probs
from forerun.engine.request import Request
from forerun.errors import InvalidProposal
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Proposal, Span, Verdict


@dataclass(frozen=True)
class Speculation:
    """Who guesses, and how much."""

    drafter: Drafter
    depth: int
    num_branches: int
    max_nodes: int  # in one proposal


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
    proposal: Proposal
    verdict: Verdict
    cut: Cut


def step(core: Core, requests: Sequence[Request]) -> list[Round]:
    """Advance every request: by a prompt chunk, or by at least one token."""
    budgets = plan(core, requests)
    proposals = propose(core, requests, budgets)
    spans = schedule(core, requests, proposals)
    logits = forward(core, requests, spans)
    verdicts = accept(requests, proposals, logits)
    return commit(core, requests, spans, proposals, verdicts, logits)


def plan(core: Core, requests: Sequence[Request]) -> list[Budget]:
    """A prompt is read first; then the depth shrinks as the end comes near."""
    if core.speculation is None:
        return [Budget(0)] * len(requests)
    depth, num_branches = core.speculation.depth, core.speculation.num_branches
    return [
        Budget(0 if r.num_waiting > 1 else max(0, min(depth, r.num_left - 1)), num_branches)
        for r in requests
    ]


def propose(core: Core, requests: Sequence[Request], budgets: Sequence[Budget]) -> list[Proposal]:
    proposals = [Proposal.empty() for _ in requests]
    asked = [idx for idx, budget in enumerate(budgets) if budget.depth > 0]
    if core.speculation is None or not asked:
        return proposals
    answers = core.speculation.drafter.propose(
        [requests[idx] for idx in asked], [budgets[idx] for idx in asked]
    )
    for idx, proposal in zip(asked, answers, strict=True):
        _check(proposal, budgets[idx], core.speculation.max_nodes, core.model.config.vocab_size)
        proposals[idx] = proposal
    return proposals


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
    rows = core.model.forward(Plan.build(zip(spans, tables, strict=True)), core.cache)
    logits, first = [], 0
    for span in spans:
        logits.append(rows[first : first + len(span.wanted)])
        first += len(span.wanted)
    return logits


def accept(
    requests: Sequence[Request], proposals: Sequence[Proposal], logits: Sequence[FloatArray]
) -> list[Verdict | None]:
    return [
        judge(request, proposal, rows) if len(rows) else None
        for request, proposal, rows in zip(requests, proposals, logits, strict=True)
    ]


def commit(
    core: Core,
    requests: Sequence[Request],
    spans: Sequence[Span],
    proposals: Sequence[Proposal],
    verdicts: Sequence[Verdict | None],
    logits: Sequence[FloatArray],
) -> list[Round]:
    rounds = []
    for request, span, proposal, verdict, rows in zip(
        requests, spans, proposals, verdicts, logits, strict=True
    ):
        if verdict is None:  # a chunk inside the prompt: its rows simply stay
            continue
        ending = cut(request, verdict)
        emitted = verdict.first(ending.num_tokens)
        if request.params.logprobs is not None:
            request.logprobs += shown_log_probs(emitted, rows, request.params.logprobs)
        _commit_cache(request, span, proposal, emitted)
        _commit_request(request, emitted, ending, len(proposal))
        if core.speculation is not None:
            core.speculation.drafter.commit(request, emitted)
        rounds.append(Round(request, proposal, emitted, ending))
    return rounds


def _commit_cache(request: Request, span: Span, proposal: Proposal, emitted: Verdict) -> None:
    """The span's certain tokens stay; of the guesses behind them, those that held."""
    num_certain = len(span) - len(proposal)
    held = (num_certain + node for node in emitted.path)
    request.table.keep(span.start, (*range(num_certain), *held))


def _commit_request(request: Request, emitted: Verdict, ending: Cut, num_guesses: int) -> None:
    request.tokens += emitted.tokens
    request.output += emitted.tokens
    request.origins += emitted.origins
    request.text = ending.text
    request.text_ends += ending.text_ends
    request.finish_reason, request.stop_reason = ending.finish_reason, ending.stop_reason
    request.stats.observe(num_guesses, emitted.num_accepted, len(emitted.tokens))
    request.round_idx += 1


def _check(proposal: Proposal, budget: Budget, max_nodes: int, vocab_size: int) -> None:
    if proposal.depth > budget.depth or len(proposal) > max_nodes:
        raise InvalidProposal(
            f"a drafter guessed {len(proposal)} tokens to depth {proposal.depth}; "
            f"its budget was {max_nodes} tokens to depth {budget.depth}."
        )
    if proposal.tokens and max(proposal.tokens) >= vocab_size:
        raise InvalidProposal(
            f"a drafter guessed token {max(proposal.tokens)}; ids end at {vocab_size - 1}."
        )
