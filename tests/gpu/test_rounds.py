"""Which rounds are begun early; no kernel runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from forerun.kernels.scores import Scores
from forerun.types import Span

TOKEN = 7


class PagesAreAskedFor(Exception):
    """A round would be begun."""


class Plan(SimpleNamespace):
    @property
    def next_slots(self) -> None:
        raise PagesAreAskedFor


def asked(*tokens: int, is_draft: bool = False) -> Any:
    """A pass over these tokens, drawn greedily, over a cache of its own."""
    row = SimpleNamespace(span=Span.all_wanted(4, tokens))
    draw = SimpleNamespace(changes_logits=False, params=SimpleNamespace(temperature=0.0))
    batch = SimpleNamespace(given=None, plan=Plan(rows=[row], is_draft=is_draft))
    return SimpleNamespace(store=object(), row=row, draws=[draw], batch=batch)


def begins(*passes: Any) -> bool:
    """Whether, after `passes` that each drew TOKEN, a round is begun for a guess of TOKEN."""
    rounds_module = pytest.importorskip("forerun.kernels.cuda.rounds.rounds", reason="needs torch")
    rounds = rounds_module.Rounds(drawing=None, recorder=None, num_splits=None)
    for one in passes:
        rounds.note(one, Scores([None], [TOKEN]))
    try:
        rounds.begin(asked(TOKEN, TOKEN))
    except PagesAreAskedFor:
        return True
    return False


def test_only_a_drafters_pass_is_a_draft() -> None:
    """The same token drawn by the target, or for another engine, is no draft."""
    assert begins(asked(TOKEN, is_draft=True))
    assert not begins(asked(TOKEN))


def test_a_draft_is_good_for_the_next_pass_alone() -> None:
    assert not begins(asked(TOKEN, is_draft=True), asked(TOKEN))
