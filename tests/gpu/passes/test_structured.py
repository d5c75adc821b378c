"""On a GPU, a grammar's mask is applied on the device, where the logits are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM
from tests.engine.test_structured import FITS, PROMPTS, params


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", ["greedy", "top_p", "min_p"])
def test_masks_are_applied_on_the_device(tiny_json_path: Path, sampling: str) -> None:
    plain = LLM(tiny_json_path, device="cuda", dtype="float32", speculative_config=None)
    kernels: Any = plain.model.kernels
    chosen = params(sampling, "json")
    found = []
    for config in (None, {"method": "suffix", "adaptive": False, "num_speculative_tokens": 4}):
        before = kernels.drawing.num_asked
        outputs = [r.outputs[0] for r in plain.with_speculation(config).generate(PROMPTS, chosen)]
        found.append([output.token_ids for output in outputs])
        assert all(isinstance(json.loads(output.text), dict) for output in outputs)
        num_tokens = sum(len(output.token_ids) for output in outputs)
        num_drawn = kernels.drawing.num_asked - before - kernels.drawing.num_left
        assert num_drawn > 0.8 * num_tokens, "most were left to the host"
    assert found[0] == found[1]


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", ["greedy", "top_p"])
def test_a_pass_that_began_before_a_trigger_is_not_used(
    tiny_json_path: Path, sampling: str
) -> None:
    """Before a trigger, passes begin early without a mask; after it, every token is masked."""
    plain = LLM(tiny_json_path, device="cuda", dtype="float32", speculative_config=None)
    suffix = {"method": "suffix", "adaptive": False, "num_speculative_tokens": 4}
    num_bound = 0
    for seed in range(8):
        chosen = params(sampling, "triggers", seed=seed)
        prompts = [prompt + "fghij"[seed % 5] for prompt in PROMPTS]
        found = []
        for config in (None, suffix):
            outputs = [
                r.outputs[0] for r in plain.with_speculation(config).generate(prompts, chosen)
            ]
            found.append([output.token_ids for output in outputs])
            for output in outputs:
                is_cut = output.finish_reason == "length"
                assert is_cut or FITS["triggers"](output.text), output.text
                num_bound += any(letter in output.text for letter in "abcde")
        assert found[0] == found[1]
    assert num_bound > 8
