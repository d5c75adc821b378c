"""A pass that was begun early is used only for exactly the pass asked for; no kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forerun.kernels.base import ChainNoise
from forerun.kernels.plan import Plan, PlanRow
from forerun.sampling import Context, CoupledDraws, Noise
from forerun.types import ROOT, IntArray, Proposal, SamplingParams, Span, Tree

pytest.importorskip("torch")
pytest.importorskip("triton")

from forerun.kernels.cuda.heads.given import Given
from forerun.kernels.cuda.passes.ahead import Ahead, Next
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.rounds.begun import Begun
from forerun.kernels.cuda.rounds.buffers import Follow
from forerun.kernels.cuda.rounds.drafts import HeadDraft, ModelDraft, Settled

PARAMS, NOISE = SamplingParams(temperature=0.7, seed=3), Noise(3)
GREEDY = SamplingParams(temperature=0)
BODY, STORE = object(), object()


class Table:
    """A block table whose slots follow one another, from `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def slots(self, length: int) -> IntArray:
        return np.arange(self.first, self.first + length)


TARGET, DRAFT = Table(100), Table(500)


@dataclass(frozen=True)
class Pass:
    """The fields of a pass; each test changes one."""

    start: int
    tokens: tuple[int, ...]
    position: int
    table: Table = TARGET
    params: SamplingParams = PARAMS
    noise: Noise = NOISE
    body: object = BODY
    store: object = STORE
    num_written: int = 0
    tree: Tree | None = None
    wanted: tuple[int, ...] | None = None
    slots_from: int | None = None  # None: those of its table
    is_drawn: bool = True
    num_rows: int = 1
    given: ChainNoise | None = None

    @property
    def asked(self) -> Asked:
        num = len(self.tokens)
        wanted = tuple(range(num)) if self.wanted is None else self.wanted
        span = Span(self.start, self.tokens, self.tree or Tree.chain(num), wanted)
        slots = (self.table if self.slots_from is None else Table(self.slots_from)).slots(
            self.start + num
        )
        row = PlanRow(span, slots, self.num_written, self.table)
        others = [
            PlanRow(Span.all_wanted(0, (1,)), np.array([900 + idx]), 0, Table(900 + idx))
            for idx in range(self.num_rows - 1)
        ]
        proposal = Proposal.chain((0,) * (len(wanted) - 1))
        draw = CoupledDraws(self.params, self.noise, self.position, Context(), (), proposal)
        given = None if self.given is None else Given(tuple, self.given, is_chain=True)
        batch: Any = SimpleNamespace(plan=Plan((row, *others)), given=given)
        draws = [draw if self.is_drawn else None] * self.num_rows
        return Asked(self.body, batch, self.store, draws)  # type: ignore[arg-type]


Change = Callable[[Pass], Pass]


def to(**changes: Any) -> Change:
    return lambda one: replace(one, **changes)


BRANCHES = Tree((ROOT, 0, 0))
VERIFIED = Pass(4, (7, 1, 2), 5)  # two guesses after four tokens
DRAWN = [1, 9, 5]  # the first guess was accepted
NEXT = Pass(6, (9, 3, 4), 7)


def begun(guesses: tuple[int, ...] | None = (3, 4), drawn: list[int] | None = DRAWN) -> Begun:
    follow = Follow(
        (1, 2), (3, 5), (DRAFT.slots(20), TARGET.slots(20)), (7, 10), ChainNoise(0.0, 0, 0)
    )
    nothing: Any = None
    one = Begun(nothing, VERIFIED.asked, follow, nothing, nothing, nothing, None)
    if drawn is not None:
        one.settle(drawn)
    one.guesses = guesses
    return one


def test_the_round_that_was_begun_is_taken() -> None:
    assert begun().is_for(NEXT.asked)
    assert begun().is_for(replace(NEXT, tokens=(9, 3)).asked)  # fewer of its guesses


@pytest.mark.parametrize(
    "change",
    {
        "another body": to(body=object()),
        "another cache": to(store=object()),
        "another request": to(table=Table(100)),
        "written before": to(num_written=1, wanted=(1, 2)),
        "a tree": to(tree=BRANCHES),
        "another place": to(start=7),
        "another token": to(tokens=(8, 3, 4)),
        "another guess": to(tokens=(9, 3, 5)),
        "more guesses": to(tokens=(9, 3, 4, 4)),
        "a page that moved": to(slots_from=200),
        "not all wanted": to(wanted=(0, 1)),
        "other options": to(params=SamplingParams(temperature=0.7, seed=3)),
        "other noise": to(noise=Noise(3)),
        "another position": to(position=8),
        "logits": to(is_drawn=False),
        "two requests": to(num_rows=2),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_round_that_was_begun_is_for_no_other(change: tuple[str, Change]) -> None:
    assert not begun().is_for(change[1](NEXT).asked)


def test_a_round_that_nobody_waited_for_is_not_taken() -> None:
    assert not begun(guesses=None).is_for(NEXT.asked)
    assert not begun(drawn=None).is_for(NEXT.asked)
    assert not begun(drawn=[1, 2, 5]).is_for(NEXT.asked)  # both guesses were accepted


HEAD_NOISE = ChainNoise(0.7, 11, 5)
# A head that saw four rows and guessed three tokens after the last two of them.
HEAD = Pass(2, (6, 7, 7, 7), 0, DRAFT, given=HEAD_NOISE)
SETTLED = Settled(DRAWN, 1, 4, DRAFT.slots(20))
HEAD_NEXT = Pass(4, (1, 9, 9, 9), 0, DRAFT, given=ChainNoise(0.7, 11, 7))


def head_repeats(one: Pass) -> bool:
    draft = HeadDraft(HEAD.asked, np.zeros((3, 3), np.float32))
    return draft.is_repeated(one.asked, SETTLED)


def test_a_head_that_is_asked_again_has_guessed_already() -> None:
    assert head_repeats(HEAD_NEXT)


@pytest.mark.parametrize(
    "change",
    {
        "another body": to(body=object()),
        "another cache": to(store=object()),
        "another request": to(table=Table(500)),
        "another place": to(start=5),
        "another depth": to(tokens=(1, 9, 9)),
        "another token": to(tokens=(1, 8, 8, 8)),
        "a page that moved": to(slots_from=700),
        "another temperature": to(given=ChainNoise(0.8, 11, 7)),
        "another key": to(given=ChainNoise(0.7, 12, 7)),
        "another position": to(given=ChainNoise(0.7, 11, 8)),
        "no hidden states": to(given=None),
        "two requests": to(num_rows=2),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_head_that_is_asked_otherwise_has_not(change: tuple[str, Change]) -> None:
    assert not head_repeats(change[1](HEAD_NEXT))


MODEL = Pass(2, (6, 7), 0, DRAFT, params=GREEDY, wanted=(1,))
GUESSES = (3, 4, 5)
FIRST = Pass(4, (1, 9), 0, DRAFT, params=GREEDY, wanted=(1,))  # what it has not seen of the text
LATER = Pass(6, (3, 4), 0, DRAFT, params=GREEDY, wanted=(1,), num_written=1)


def model_repeats(one: Pass) -> int | None:
    draft = ModelDraft(MODEL.asked, (1, 2, 8))
    return draft.is_repeated(one.asked, SETTLED, GUESSES)


def test_a_draft_model_that_is_asked_again_has_guessed_already() -> None:
    assert model_repeats(FIRST) == 0
    assert model_repeats(replace(FIRST, start=5, tokens=(9,), wanted=(0,))) == 0
    assert model_repeats(replace(LATER, tokens=(3,), num_written=0, wanted=(0,))) == 1
    assert model_repeats(LATER) == 2


@pytest.mark.parametrize("base", [FIRST, LATER], ids=["first", "later"])
@pytest.mark.parametrize(
    "change",
    {
        "another body": to(body=object()),
        "another cache": to(store=object()),
        "another request": to(table=Table(500)),
        "with noise": to(params=PARAMS),
        "logits": to(is_drawn=False),
        "another place": to(start=7),
        "another token": to(tokens=(3, 8)),
        "a page that moved": to(slots_from=700),
        "two requests": to(num_rows=2),
        "a tree": to(tree=Tree((ROOT, ROOT))),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_draft_model_that_is_asked_otherwise_has_not(
    base: Pass, change: tuple[str, Change]
) -> None:
    assert model_repeats(change[1](base)) is None


def test_a_draft_model_guesses_no_deeper_than_it_did() -> None:
    assert model_repeats(replace(LATER, tokens=GUESSES, num_written=2, wanted=(2,))) is None
    assert model_repeats(replace(LATER, num_written=0, wanted=(1,))) is None


GOING_ON = Pass(4, (1, 2), 0, DRAFT, params=GREEDY, wanted=(1,), num_written=1)


def goes_on(one: Pass) -> bool:
    return ModelDraft(MODEL.asked, (1, 2)).goes_on(one.asked)


def test_a_draft_goes_on_with_a_pass_over_its_latest_guess() -> None:
    assert goes_on(GOING_ON)


@pytest.mark.parametrize(
    "change",
    {
        "another cache": to(store=object()),
        "another request": to(table=Table(500)),
        "more than the latest": to(num_written=0),
        "another guess": to(tokens=(1, 3)),
        "another place": to(start=5),
        "two requests": to(num_rows=2),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_draft_does_not_go_on_otherwise(change: tuple[str, Change]) -> None:
    assert not goes_on(change[1](GOING_ON))


@dataclass
class Plain:
    """A plain pass of two requests, and the next one, which was begun after it."""

    before: tuple[Pass, Pass] = (Pass(4, (7,), 5), Pass(9, (3,), 10, DRAFT))
    next: tuple[Pass, Pass] = (Pass(5, (8,), 6), Pass(10, (2,), 11, DRAFT))
    body: object = BODY
    parts: list[Next] = field(default_factory=list)
    is_drawn: bool = True

    def rows_for(self, *asked: Pass) -> list[int] | None:
        parts = []
        for drawn, one in enumerate(self.before):
            (row,), (draw,) = one.asked.batch.plan.rows, one.asked.draws
            assert draw is not None
            slot = int(one.table.slots(one.start + 2)[-1])
            parts.append(Next(row, draw, drawn, slot))
        nothing: Any = None
        started = object() if self.is_drawn else None
        ahead = Ahead(BODY, parts, started, nothing, nothing, nothing, None, [8, 2])  # type: ignore[arg-type]
        rows = tuple(row for one in asked for row in one.asked.batch.plan.rows)
        draws = [draw for one in asked for draw in one.asked.draws]
        return ahead.rows_for(asked[0].body, Plan(rows), draws)  # type: ignore[arg-type]


def test_a_plain_pass_that_was_begun_is_taken() -> None:
    first, second = Plain().next
    assert Plain().rows_for(first, second) == [0, 1]
    assert Plain().rows_for(second, first) == [1, 0]
    assert Plain().rows_for(second) == [1]  # the other one has ended


def test_what_was_drawn_already_is_for_none_whose_logits_are_changed() -> None:
    some = SamplingParams(temperature=0, allowed_token_ids=(1, 2))
    one, other = Plain.before
    before = replace(one, params=some), replace(other, params=some)
    first, second = (replace(one, params=some) for one in Plain.next)
    assert Plain(before, is_drawn=True).rows_for(first, second) is None
    assert Plain(before, is_drawn=False).rows_for(first, second) == [0, 1]


def test_a_row_for_nobody_is_drawn_from_as_it_is() -> None:
    nothing: Any = None
    ahead = Ahead(BODY, [nothing] * 3, None, nothing, nothing, nothing)  # type: ignore[arg-type]
    draws = [one.asked.draws[0] for one in Plain.next]
    found = ahead.draws_for([2, 0], draws)
    assert (found[2], found[0]) == tuple(draws)
    assert found[1] is not None
    assert len(found[1]) == 1
    assert not found[1].changes_logits


@pytest.mark.parametrize(
    "change",
    {
        "another body": to(body=object()),
        "another request": to(table=Table(100)),
        "guesses": to(tokens=(8, 1)),
        "another token": to(tokens=(9,)),
        "another place": to(start=6, slots_from=99),  # and yet the same slot
        "a page that moved": to(slots_from=200),
        "a branch": to(start=3, tokens=(7, 7, 8), tree=BRANCHES, num_written=2, wanted=(2,)),
        "other options": to(params=SamplingParams(temperature=0.7, seed=3)),
        "other noise": to(noise=Noise(3)),
        "another position": to(position=7),
        "logits": to(is_drawn=False),
    }.items(),
    ids=lambda item: item[0],
)
def test_a_plain_pass_that_was_begun_is_for_no_other(change: tuple[str, Change]) -> None:
    first, second = Plain().next
    assert Plain().rows_for(change[1](first), second) is None
