"""A draft model's own cache: requests admitted, prompts read, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forerun.drafters import Budget, CachedDrafter, DraftModel, Merge, NgramTables, RequestView
from forerun.drafters.law import DraftLaw
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Origin, Proposal, Verdict
from tests.contracts.test_drafters import View
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

V = 9
MODEL = LlamaModel.load(
    TinyCheckpoint(tiny_config(vocab_size=V, num_layers=1, max_len=1024), 3), ReferenceKernels()
)


def draft_model(num_pages: int, page_size: int = 4) -> DraftModel:
    drafter = DraftModel(MODEL, V)
    drafter.allocate(num_pages, page_size)
    return drafter


def views(*lens: int) -> list[View]:
    return [View(tuple((idx + n) % V for n in range(num)), id=idx) for idx, num in enumerate(lens)]


def depths(drafter: DraftModel, asked: Sequence[View], depth: int) -> list[int]:
    return [proposal.depth for proposal in drafter.propose(asked, [Budget(depth)] * len(asked))]


def begun(drafter: Any, asked: Sequence[View]) -> None:
    for view in asked:
        drafter.begin(view)


def test_it_is_seen_to_have_a_cache_before_that_is_made() -> None:
    assert isinstance(DraftModel(MODEL, V), CachedDrafter)


def test_a_full_cache_lets_in_who_fits_and_guesses_as_deep_as_there_is_room() -> None:
    """Of 6 pages the first takes 3; the second needs 4; the third has one, and one row to spare."""
    drafter, asked = draft_model(num_pages=6), views(10, 14, 11)
    begun(drafter, asked)
    assert depths(drafter, asked, depth=3) == [3, 0, 2]
    assert [drafter.is_waiting(view) for view in asked] == [False, True, False]
    assert [drafter.has_room_for(view) for view in asked] == [True, False, True]
    drafter.end(asked[0])
    drafter.end(asked[2])
    assert depths(drafter, asked[1:2], depth=3) == [3]


def test_one_that_was_evicted_is_let_in_again() -> None:
    drafter, asked = draft_model(num_pages=3), views(10)
    begun(drafter, asked)
    (before,) = drafter.propose(asked, [Budget(2)])
    drafter.evict(asked[0])
    assert drafter.num_pages_in_use() == 0
    assert drafter.propose(asked, [Budget(2)])[0].tokens == before.tokens


def sizes_of_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    draw = LlamaModel.draw

    def counting(model: Any, plan: Any, *rest: Any) -> Any:
        sizes.append(len(plan))
        return draw(model, plan, *rest)

    monkeypatch.setattr(LlamaModel, "draw", counting)
    return sizes


def test_long_prompts_are_read_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 known tokens a pass, shortest prompts first; a prompt half read gets no guesses."""
    sizes = sizes_of_passes(monkeypatch)
    drafter, asked = draft_model(num_pages=300), views(300, 20, 250)
    begun(drafter, asked)
    spoke = [depths(drafter, asked, depth=1) for _ in range(3)]
    assert spoke == [[0, 1, 0], [0, 1, 1], [1, 1, 1]]
    assert max(sizes) == 256
    fresh = draft_model(num_pages=300)
    begun(fresh, asked)
    for _ in range(2):
        fresh.propose(asked[:1], [Budget(3)])
    expected = fresh.propose(asked[:1], [Budget(3)])[0]
    assert drafter.propose(asked[:1], [Budget(3)])[0].tokens == expected.tokens


def test_what_was_promised_to_one_half_read_is_not_given_to_another() -> None:
    """The first needs all 75 pages and has read 256 of its 300 tokens when the second comes."""
    drafter, asked = draft_model(num_pages=75), views(300, 40)
    begun(drafter, asked)
    assert depths(drafter, asked[:1], depth=1) == [0]
    assert drafter.is_waiting(asked[0])
    assert drafter.num_pages_in_use() == 64
    assert depths(drafter, asked[1:], depth=1) == [0]
    assert depths(drafter, asked[:1], depth=1) == [1]


class Throws:
    """A drafter that raises for one of the requests."""

    picks = False
    num_requests = 0

    def __init__(self, guilty: int) -> None:
        self._guilty = guilty

    def begin(self, request: RequestView) -> None:
        pass

    def propose(self, requests: Sequence[RequestView], _: Sequence[Budget]) -> list[Proposal]:
        if any(request.id == self._guilty for request in requests):
            raise RuntimeError("no idea")
        return [Proposal.empty() for _ in requests]

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        pass

    def end(self, request: RequestView) -> None:
        pass


def drafters_that_throw(kind: str, guilty: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    model = draft_model(num_pages=64)
    if kind == "merge":
        return Merge([model, NgramTables(V, (2,)), Throws(guilty)])
    served = DraftLaw.served

    def failing(row: FloatArray, request: RequestView, *rest: Any) -> Any:
        if request.id == guilty:
            raise RuntimeError("no idea")
        return served(row, request, *rest)

    monkeypatch.setattr(DraftLaw, "served", failing)
    return model


@pytest.mark.parametrize("kind", ["draft_model", "merge"])
def test_it_can_be_asked_again_after_a_failure(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch raises; one by one, the other requests get the same guesses as without a failure."""
    drafter, twin = (drafters_that_throw(kind, guilty, monkeypatch) for guilty in (2, -1))
    asked, budget = views(5, 6, 7), Budget(3, 2)
    begun(drafter, asked)
    begun(twin, asked)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no idea"):
            drafter.propose(asked, [budget] * 3)
        for idx in (0, 1):
            (found,) = drafter.propose([asked[idx]], [budget])
            (expected,) = twin.propose([asked[idx]], [budget])
            assert (found.tokens, found.tree) == (expected.tokens, expected.tree)
            verdict = Verdict((), (1,), Origin.RECOVERED)
            asked[idx] = asked[idx].after(verdict)
            drafter.commit(asked[idx], verdict)
            twin.commit(asked[idx], verdict)
