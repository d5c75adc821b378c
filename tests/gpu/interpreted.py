"""The CUDA kernels' logic on a CPU: `test_interpreter.py` runs this with TRITON_INTERPRET=1.

Triton's interpreter is slow and knows no bfloat16 products, so this is a small model in float32.
"""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from triton.runtime.errors import OutOfResources

from forerun.errors import DeviceFailed, UnsupportedModel
from forerun.kernels import Plan
from forerun.kernels.cuda import CudaKernels
from forerun.models.llama import LlamaModel
from forerun.sampling import CoupledDraws
from forerun.training.learning.fused_loss import FusedLaws
from forerun.training.learning.losses import compared
from forerun.types import ROOT, Span, Tree
from tests.models_llama.naive import naive_logits
from tests.models_llama.runs import chain_logits, extend
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

PROMPT = (5, 17, 3)
GUESSES, TREE = (9, 11, 2), Tree((ROOT, 0, 0))


def main() -> None:
    config = tiny_config(num_layers=1, num_heads=2, num_kv_heads=1, vocab_size=40, hidden_size=24)
    checkpoint = TinyCheckpoint(config)
    model = LlamaModel.load(checkpoint, CudaKernels("float32", device="cpu"))
    exact = naive_logits(checkpoint, PROMPT)
    whole = chain_logits(model, PROMPT)
    np.testing.assert_allclose(whole, exact, rtol=0, atol=1e-5 * np.abs(exact).max())
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    for token in PROMPT:
        extend(model, cache, table, (token,))
    found = extend(model, cache, table, GUESSES, TREE)
    for node in range(len(TREE)):
        path = [GUESSES[n] for n in TREE.path_to(node)]
        np.testing.assert_array_equal(found[node], chain_logits(model, (*PROMPT, *path))[-1])
    short_operands_are_near(256, ("float32", "int8", 0.03), ("float16", None, 0.003))
    a_width_without_segments_is_refused(1088)  # by its norms; products take steps of 64
    a_width_without_segments_is_refused(1056)
    it_runs_in_float32(1056)
    tokens_are_drawn(model)
    a_failure_has_a_name(model)
    laws_are_compared()


def laws_are_compared() -> None:
    """The fused comparison that heads are trained by, and its gradient, match the plain one."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 3000, generator=generator).mul(3).requires_grad_()
    probs = torch.randn(5, 3000, generator=generator).mul(3).softmax(-1)
    at = torch.tensor([0, 1, 4, 4, 2, 3, 0])
    ours, theirs = FusedLaws.apply(logits, probs, at), compared(logits, probs, at)
    for found, due in zip(ours, theirs, strict=True):
        assert torch.allclose(found, due, atol=1e-4)
    back = [
        torch.autograd.grad((crossed - alpha.log()).sum(), logits)[0]
        for crossed, alpha, _ in (ours, theirs)
    ]
    assert torch.allclose(*back, atol=1e-6)


def short_operands_are_near(width: int, *forms: tuple[str, str | None, float]) -> None:
    """int8 weights and segments of columns are near float64; rows before a norm do not overflow."""
    checkpoint = wide_checkpoint(width)
    exact = naive_logits(checkpoint, PROMPT)
    for dtype, quantization, bound in forms:
        kernels = CudaKernels(dtype, quantization=quantization, device="cpu")
        found = chain_logits(LlamaModel.load(checkpoint, kernels), PROMPT)
        np.testing.assert_allclose(found, exact, rtol=0, atol=bound * np.abs(exact).max())


def wide_checkpoint(width: int) -> TinyCheckpoint:
    config = tiny_config(
        num_layers=1, num_heads=2, num_kv_heads=1, vocab_size=40, hidden_size=width,
        intermediate_size=width + 32,
    )  # fmt: skip
    return TinyCheckpoint(config)


def a_width_without_segments_is_refused(width: int) -> None:
    checkpoint = wide_checkpoint(width)
    for dtype, quantization in (("float16", None), ("float16", "int8"), ("float32", "int8")):
        kernels = CudaKernels(dtype, quantization=quantization, device="cpu")
        multiple = 64 if quantization is None and width % 64 else 128
        with pytest.raises(UnsupportedModel, match=f"{width} columns, no multiple of {multiple}:"):
            LlamaModel.load(checkpoint, kernels)


def it_runs_in_float32(width: int) -> None:
    checkpoint = wide_checkpoint(width)
    found = chain_logits(LlamaModel.load(checkpoint, CudaKernels("float32", device="cpu")), PROMPT)
    exact = naive_logits(checkpoint, PROMPT)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def tokens_are_drawn(model: LlamaModel) -> None:
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    span = Span.all_wanted(table.reserve(len(PROMPT)), PROMPT)
    plan = Plan.build([(span, table)])
    scores = model.draw(plan, cache, [CoupledDraws.greedy(len(PROMPT))])
    assert scores.tokens == chain_logits(model, PROMPT).argmax(axis=1).tolist()


def a_failure_has_a_name(model: LlamaModel) -> None:
    failures = {
        torch.OutOfMemoryError("none left"): "no memory left for this pass",
        RuntimeError(
            "Triton Error [CUDA]: an illegal address\nmore"
        ): r"an illegal address\); start",
        OutOfResources(2, 1, "shared memory"): "out of resource: shared memory",
    }
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    plan = Plan.build([(Span.all_wanted(table.reserve(1), PROMPT[:1]), table)])
    batch = model.kernels.begin(plan, model.shape, np.ones(model.shape.head_dim // 2))
    for failure, said in failures.items():
        body = Mock(side_effect=failure)
        with pytest.raises(DeviceFailed, match=said):
            model.kernels.draw(body, batch, cache.store, [])


if __name__ == "__main__":
    main()
