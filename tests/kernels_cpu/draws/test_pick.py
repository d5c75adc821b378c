"""A guess picked within a pass is the argmax under the request's noise, and has its probability."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import AttentionShape, ChainNoise, Plan, PlanRow
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.sampling import Noise
from forerun.types import FloatArray, IntArray, Span
from tests.kernels.sources import F32
from tests.kernels_cpu.products.test_formats import kernels

SHAPE = AttentionShape(1, 1, 2)


def picked(logits: FloatArray, ids: IntArray, noise: ChainNoise, place: int) -> tuple[int, float]:
    k = kernels()
    row = PlanRow(Span.all_wanted(0, (0,)), np.zeros(1, np.int64))

    def body(batch: CpuBatch, _store: KVStore) -> F32:
        picks = k.new_picks(batch, place + 1)
        k.pick(k.given(batch, 0), k.load_array(ids), batch, picks, place)
        return k.finish(picks)

    given = [np.asarray(logits, np.float32)[None]]
    batch = k.begin(Plan((row,)), SHAPE, np.ones(1), given, noise)
    token, chance, idx = k.run(body, batch, k.new_store(SHAPE, 1, 1))[place]
    assert ids[int(idx)] == token
    return int(token), float(chance)


@pytest.mark.parametrize("temperature", [0.0, 0.2, 0.8, 2.0])
@pytest.mark.parametrize("num", [1, 2, 100, 5000])
def test_it_is_the_best_under_the_noise_of_its_position(temperature: float, num: int) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 4, num).astype(np.float32)
        ids = np.sort(rng.choice(3 * num, num, replace=False))
        noise = Noise(seed)
        values = logits.astype(np.float64)
        if temperature:
            values = values / temperature + noise.gumbel(11, ids)
        token, chance = picked(logits, ids, ChainNoise(temperature, noise.key, 9), 2)
        assert token == ids[np.argmax(values)]
        weights = np.exp(logits.astype(np.float64) - logits.max())
        expected = weights[ids == token] / weights.sum()
        np.testing.assert_allclose(chance, expected, rtol=1e-3)
