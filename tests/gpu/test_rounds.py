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


def asked(store: object, *tokens: int) -> Any:
    """A pass over these tokens, drawn greedily."""
    row = SimpleNamespace(span=Span.all_wanted(4, tokens))
    draw = SimpleNamespace(changes_logits=False, params=SimpleNamespace(temperature=0.0))
    batch = SimpleNamespace(given=None, plan=Plan(rows=[row]))
    return SimpleNamespace(store=store, row=row, draws=[draw], batch=batch)


def begins(draft_store: object, target_store: object) -> bool:
    """Whether a guess behind a pass that drew the same token is taken for a draft model's."""
    rounds_module = pytest.importorskip("forerun.kernels.cuda.rounds.rounds", reason="needs torch")
    rounds = rounds_module.Rounds(drawing=None, recorder=None, num_splits=None)
    rounds.note(asked(draft_store, TOKEN), Scores([None], [TOKEN]))
    try:
        rounds.begin(asked(target_store, TOKEN, TOKEN))
    except PagesAreAskedFor:
        return True
    return False


def test_passes_of_the_target_itself_are_no_draft_models() -> None:
    target = object()
    assert begins(object(), target)
    assert not begins(target, target)
