"""How a request's stats count the choices made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine import LLM
from forerun.engine.request.stats import Stats
from forerun.speculation.choice import Choice, Reason
from forerun.speculation.looks import Looks
from forerun.types import SamplingParams


def test_choices_are_counted_by_reason_drafter_and_depth() -> None:
    stats = Stats()
    pays = Choice(Reason.PAYS, "suffix", 4, expected_tokens=2.5, expected_seconds=0.01)
    wide = pays._replace(depth=2, num_branches=3)
    plain = Choice(Reason.NOTHING_PAYS, expected_tokens=1.0, expected_seconds=0.01)
    for choice in (pays, plain, pays, wide, None):
        stats.observe(0, 0, 1, choice)
    assert stats.as_dict()["choices"] == {
        "pays: suffix to 4": 2,
        "nothing pays": 1,
        "pays: suffix to 2 × 3": 1,
    }


def test_rounds_without_a_look_are_counted(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(tiny_path, max_num_seqs=1, num_threads=1)
    monkeypatch.setattr(Looks, "is_due", lambda *_: False)
    params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
    stats = llm.generate([1, 2, 3], params)[0].outputs[0].stats
    assert stats["choices"] == {"not looked": 8}
