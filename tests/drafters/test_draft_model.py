"""A draft model whose embedding has fewer ids than the target's."""

from __future__ import annotations

import pytest

from forerun.drafters import Budget, DraftModel
from forerun.models.llama import LlamaModel
from forerun.types import Verdict
from tests.contracts.kernel_sets import KERNEL_SETS
from tests.contracts.test_drafters import View
from tests.models_llama.tiny import TinyCheckpoint, tiny_config


@pytest.mark.parametrize("kernel_set", ["reference", "cpu-1"])
def test_it_declines_a_text_with_an_id_that_it_lacks(kernel_set: str) -> None:
    kernels = KERNEL_SETS[kernel_set]().kernels
    model = LlamaModel.load(TinyCheckpoint(tiny_config(vocab_size=50, num_layers=1)), kernels)
    drafter = DraftModel(model, vocab_size=60)
    drafter.allocate(64, 4)
    known, unknown = View((3, 49, 7), id=1), View((3, 50, 7), id=2)
    for request in (known, unknown):
        drafter.begin(request)
    guesses = drafter.propose([unknown, known, unknown], [Budget(3)] * 3)
    assert [len(proposal) for proposal in guesses] == [0, 3, 0]
    # The target says what the draft model cannot spell: from then on it declines this text too.
    verdict = Verdict.reached(guesses[1], 1, final_token=55)
    known = known.after(verdict)
    drafter.commit(known, verdict)
    assert [len(proposal) for proposal in drafter.propose([known], [Budget(3)])] == [0]
