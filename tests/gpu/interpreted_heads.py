"""Hidden states and heads on the CUDA kernels, on a CPU: `test_interpreter.py` runs this."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import numpy as np

from forerun.drafters import Budget, CachedDrafter, TappedDrafter
from forerun.drafters.heads import Eagle3Head, HeadFolder, LastHidden, MedusaHeads, build_head
from forerun.kernels import ChainKernels, Kernels, Plan, ReferenceKernels, TappedKernels
from forerun.kernels.cuda import CudaKernels
from forerun.kernels.cuda.batch import CudaBatch
from forerun.models.llama import LlamaModel, Taps
from forerun.models.text.compatibility import tokenizer_hash
from forerun.sampling import CoupledDraws, Noise
from forerun.types import Proposal, SamplingParams, Span
from tests.contracts.test_drafters import View
from tests.drafters.heads.random_heads import CONFIGS, eagle3_config, medusa_config, write_head
from tests.gpu.begun_early import Again, Work, loaded
from tests.models_llama.naive import naive_hidden_states
from tests.models_llama.tiny import TinyCheckpoint, tiny_config
from tests.tiny_model import write_tiny_model

PROMPT = (5, 17, 3, 8)
CONFIG = tiny_config(num_layers=2, num_heads=2, num_kv_heads=1, vocab_size=40, hidden_size=24)
CHECKPOINT = TinyCheckpoint(CONFIG)
FOLDER = Path(mkdtemp())
_MANY_LAYERS = ("block", "eagle3")
FLAGS: tuple[dict[str, Any], ...] = (
    {"norm_output": True},
    {"norm_before_residual": True, "fc_norm": False},
)


def main() -> None:
    cuda = CudaKernels("float32", device="cpu")
    assert isinstance(cuda, ChainKernels)
    target = LlamaModel.load(CHECKPOINT, cuda)
    hidden_states_come_out(target)
    hidden_states_are_those_of_their_pass()
    reference = LlamaModel.load(CHECKPOINT, ReferenceKernels())
    for flags in FLAGS:
        folder = write_head(FOLDER / "eagle3", eagle3_config(CONFIG, **flags))
        heads_say_the_same(HeadFolder(folder, "eagle3"), target, reference)
    for kind, config_of in CONFIGS.items():
        head = HeadFolder(write_head(FOLDER / kind, config_of(CONFIG)), kind)
        for temperature in (0.0, 1.0) if kind in _MANY_LAYERS else (1.0,):
            chains_are_equal(head, target, reference, temperature)
    medusa_says_the_same(cuda)
    with tempfile.TemporaryDirectory() as folder_name:
        recorded_passes_change_no_token(Path(folder_name))


class HandingOut(Again):
    """Also puts a replay's hidden states where those of the first run were."""

    def record(
        self, work: Callable[[], Any], batch: CudaBatch, *_: object, **__: object
    ) -> tuple[Work, Any]:
        done, found = super().record(work, batch)
        first = batch.handed_out

        def again() -> Any:
            results = work()
            if first is not None:
                assert batch.handed_out is not None
                first.data.copy_(batch.handed_out.data)
            return results

        done.work = again
        return done, found


def recorded_passes_change_no_token(folder: Path) -> None:
    """The whole engine, with passes that are recorded and then replayed."""
    shape = {"num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "hidden_size": 24}
    path = write_tiny_model(folder / "target", **shape)
    plain = loaded(path, CudaKernels("float32", device="cpu", recorder=HandingOut()))
    config, ours = plain.model.config, tokenizer_hash(plain.tokenizer)
    two: dict[str, Any] = {"layers": (0, 1)}
    heads = {
        kind: write_head(folder / kind, of(config, ours, **(two if kind in _MANY_LAYERS else {})))
        for kind, of in CONFIGS.items()
        if kind in ("block", "eagle3", "pass")
    }
    params = SamplingParams(temperature=0.7, seed=3, max_tokens=9, ignore_eos=True)
    expected = plain.generate("ab", params)[0].outputs[0].token_ids
    for kind, head in heads.items():
        sizes = {"num_speculative_tokens": 2, "adaptive": False}
        llm = plain.with_speculation({"method": kind, "model": str(head), **sizes})
        for _ in range(2):  # sizes are recorded, then replayed
            output = llm.generate("ab", params)[0].outputs[0]
            assert output.token_ids == expected, kind
            assert output.stats["drafter_failures"] == 0
            assert output.stats["draft_tokens"] > 4


def hidden_states_come_out(target: LlamaModel) -> None:
    layers, cache = (0, 1, 2), target.new_cache(8, 5)
    expected = naive_hidden_states(CHECKPOINT, PROMPT)
    plain = target.forward(plan(cache.new_table()), cache)
    taps = Taps(layers)
    found = target.forward(plan(cache.new_table()), cache, taps)
    assert found.tobytes() == plain.tobytes()
    for layer in layers:
        np.testing.assert_allclose(taps.rows[layer], expected[layer], rtol=2e-4, atol=2e-4)


def hidden_states_are_those_of_their_pass() -> None:
    """Even if another pass runs after theirs and before they are asked for."""
    kernels = CudaKernels("float32", device="cpu", recorder=HandingOut())
    target, asked = LlamaModel.load(CHECKPOINT, kernels), kernels.taps
    cache = target.new_cache(8, 5)

    def first_row() -> Any:
        taps, table = Taps((1,)), cache.new_table()
        target.draw(plan(table), cache, [CoupledDraws.greedy(len(PROMPT))], taps)
        table.free()
        return taps.rows[1]

    def taps_of(batch: CudaBatch) -> Any:
        with patch.object(kernels, "taps", asked):
            table = cache.new_table()
            span = Span.all_wanted(table.reserve(len(PROMPT)), PROMPT[::-1])
            greedy = [CoupledDraws.greedy(len(PROMPT))]
            target.draw(Plan.build([(span, table)]), cache, greedy, Taps((1,)))
            table.free()
        return asked(batch)

    expected = [first_row() for _ in range(2)]  # recorded, then replayed
    with patch.object(kernels, "taps", taps_of):
        found = first_row()
    for rows in (*expected, found):
        np.testing.assert_array_equal(rows, expected[0])


def plan(table: object) -> Plan:
    span = Span.all_wanted(table.reserve(len(PROMPT)), PROMPT)  # type: ignore[attr-defined]
    return Plan.build([(span, table)])  # type: ignore[list-item]


def heads_say_the_same(folder: HeadFolder, *targets: LlamaModel) -> None:
    features = np.random.default_rng(1).standard_normal((len(PROMPT), 3 * 24)).astype(np.float32)
    found = []
    for target in targets:
        head = Eagle3Head.load(folder, tapped(target.kernels), target.embedding)
        cache = head.new_cache(8, 5)
        found.append(head.known(plan(cache.new_table()), cache, features))
    for mine, exact in zip(*found, strict=True):
        np.testing.assert_allclose(mine, exact, rtol=1e-4, atol=1e-5)


def chains_are_equal(
    folder: HeadFolder, cuda: LlamaModel, reference: LlamaModel, temperature: float
) -> None:
    """The CUDA kernels' one pass guesses what the reference kernels guess level by level."""
    for seed in range(2):
        params = SamplingParams(temperature=temperature, seed=seed)
        view = View((*PROMPT, seed), params=params, noise=Noise(seed))
        assert proposed(folder, cuda, view).tokens == proposed(folder, reference, view).tokens


def proposed(folder: HeadFolder, target: LlamaModel, view: View) -> Proposal:
    drafter = build_head(folder, target)
    if isinstance(drafter, CachedDrafter):
        drafter.allocate(8, 5)
    drafter.begin(view)
    if isinstance(drafter, TappedDrafter):
        cache, taps = target.new_cache(8, 5), Taps(drafter.layers)
        table, tokens = cache.new_table(), view.tokens[:-1]
        span = Span.all_wanted(table.reserve(len(tokens)), tuple(tokens))
        target.forward(Plan.build([(span, table)]), cache, taps)
        drafter.tapped(view, 0, taps.rows)
    (proposal,) = drafter.propose([view], [Budget(3)])
    assert proposal.depth == 3
    return proposal


def medusa_says_the_same(cuda: TappedKernels) -> None:
    folder = HeadFolder(write_head(FOLDER / "medusa", medusa_config(CONFIG)), "medusa")
    hidden = np.random.default_rng(2).standard_normal((3, 24)).astype(np.float32)
    exact = MedusaHeads(folder, ReferenceKernels()).guesses(hidden)
    heads = MedusaHeads(folder, cuda)
    np.testing.assert_allclose(heads.guesses(hidden), exact, rtol=1e-4, atol=1e-5)
    assert LastHidden(heads).layers == (2,)


def tapped(kernels: Kernels) -> TappedKernels:
    assert isinstance(kernels, TappedKernels)
    return kernels


if __name__ == "__main__":
    main()
