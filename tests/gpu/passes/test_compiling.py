"""A start compiles all kernels that answers need, before the first pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_model import write_tiny_model

pytest.importorskip("torch")
knobs = pytest.importorskip("triton.knobs")


@pytest.mark.gpu
def test_no_kernel_is_compiled_inside_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forerun.engine import LLM
    from forerun.types import SamplingParams

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "kernels"))
    late, ahead = list[str](), list[str]()

    def compiled(*, fn: Any, is_manual_warmup: bool, **_: object) -> None:
        (ahead if is_manual_warmup else late).append(fn.name)

    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", compiled)
    path = write_tiny_model(tmp_path / "model", num_layers=2, num_heads=2, hidden_size=72)
    llm = LLM(path, device="cuda", max_model_len=64)
    assert {"attend_split", "rotary_product", "noisy_rows"} <= set(ahead)
    for temperature in (0.0, 1.0):
        params = SamplingParams(temperature=temperature, seed=1, max_tokens=20, ignore_eos=True)
        llm.generate(["ab", "b"], params)
    assert late == []
