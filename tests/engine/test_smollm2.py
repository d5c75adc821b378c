"""The model that newcomers start with: a copied text needs few passes, and no token changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.bench.prompts.named_prompts import named_prompts
from forerun.bench.proof.proof import Method, Proof, proof_methods
from forerun.engine import LLM
from forerun.types import SamplingParams

TEXT = (
    "The harbour town of Elmsworth has two markets. The first opens at dawn beside the old stone "
    "pier, where fishing boats unload cod, mackerel and crab, and the second opens at noon in the "
    "square behind the church, where farmers sell apples, honey, cheese and bread. On Saturdays "
    "the two markets meet on the bridge, and a brass band plays until the evening bell. Visitors "
    "who arrive by train should follow the blue signs from the station, cross the canal, and turn "
    "left at the bakery with the green door. The walk takes about ten minutes. There is no parking "
    "in the centre, but a small bus leaves from the hill every quarter of an hour and costs less "
    "than a cup of tea. Please bring your own bag."
)


def load(path: Path, activations: str | None = None) -> LLM:
    """Load with a fixed depth: the controller's choices depend on the clock, and tests must not.

    One thread: other tests use the other cores.
    """
    fixed = {"adaptive": False}
    return LLM(
        path,
        max_model_len=512,
        speculative_config=fixed,
        activations=activations,
        num_threads=1,
    )


def test_a_repeated_text_needs_few_passes(smollm2_path: Path) -> None:
    smollm2 = load(smollm2_path)
    messages = [{"role": "user", "content": f"Copy the following text word for word.\n\n{TEXT}"}]
    assert len(smollm2.tokenizer.encode(TEXT)) >= 150
    params = SamplingParams(temperature=0, max_tokens=160)
    output = smollm2.chat(messages, params)[0].outputs[0]
    assert output.text.startswith(TEXT[:60])
    assert output.stats["target_passes"] <= 0.35 * output.stats["emitted_tokens"]


@pytest.mark.parametrize("activations", [None, pytest.param("int16", marks=pytest.mark.slow)])
def test_a_sample_of_the_proof(smollm2_path: Path, activations: str | None) -> None:
    """What `make proof` runs by the thousand: here 3 prompts, 12 tokens, depths 1 to 3."""
    llm = load(smollm2_path, activations)
    singles = ("suffix", "own_layers", "random")
    shared = {"method": "choice", "methods": [*singles], "num_layers": 4}
    merge = proof_methods(str(smollm2_path), num_layers=4)["merge"]
    light = {"merge": merge, **{name: Method(shared, name) for name in singles}}
    proof = Proof(llm, named_prompts(3), light, max_depth=3, num_tokens=12, seed=1)
    cells = list(proof.run())
    assert len(cells) >= 12
    assert [cell for cell in cells if cell.first_difference is not None] == []
    assert sum(cell.accepted_tokens for cell in cells) > 0
