"""2,000 interrupts: at every line of the modules in `BOOKS`, at random lines, at random times."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from forerun.engine import LLM
from tests.soak.interrupted import Patient

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(sys.platform == "win32", reason="no timer signals"),
    pytest.mark.usefixtures("interruptible"),
]
NUM_INTERRUPTS = 1000  # for each of two models
NUM_TIMED = 300  # of them


@pytest.fixture(params=["adaptive", "merge"])
def patient(request: pytest.FixtureRequest, plain: LLM, tiny_draft_path: Path) -> Patient:
    """A draft model, the target's own layers and lookups, chosen by the controller or merged."""
    config: dict[str, Any] = {
        "methods": ["suffix", "draft_model", "own_layers", "bigram"],
        "model": str(tiny_draft_path),
        "num_layers": 2,
        "num_branches": 2,
        "num_speculative_tokens": 3,
    }
    if request.param == "merge":
        return Patient(plain.with_speculation({**config, "method": "merge", "adaptive": False}))
    return Patient(plain.with_speculation({**config, "method": "hybrid"}))


def test_two_thousand_interrupts_leave_nothing_behind(patient: Patient) -> None:
    rng = Random(13)
    lines = patient.each_line(rng)[: NUM_INTERRUPTS - NUM_TIMED]
    rest = NUM_INTERRUPTS - NUM_TIMED - len(lines)
    lines += [rng.randrange(patient.num_lines) for _ in range(rest)]
    for number in lines:
        patient.interrupt_at(number)
    for _ in range(NUM_TIMED):
        patient.interrupt_after(rng.uniform(1e-5, 0.05))
