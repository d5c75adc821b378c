"""A block's guesses, each with what the one before it adds, from a few candidates of each place."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import AttentionShape, ChainNoise, MarkovStep, Plan, PlanRow
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.sampling import Noise
from forerun.types import FloatArray, IntArray, Span
from tests.kernels.sources import F32
from tests.kernels_cpu.products.test_formats import kernels

SHAPE = AttentionShape(1, 1, 2)
NUM_PLACES = 4


def picked(
    logits: FloatArray, gates: FloatArray, markov: MarkovStep, noise: ChainNoise
) -> FloatArray:
    k = kernels()
    row = PlanRow(Span.all_wanted(0, (0,) * NUM_PLACES), np.arange(NUM_PLACES))

    def body(batch: CpuBatch, _store: KVStore) -> F32:
        picks = k.new_picks(batch, NUM_PLACES)
        k.pick_block(k.given(batch, 0), k.given(batch, 1), markov, batch, picks)
        return k.finish(picks)

    batch = k.begin(Plan((row,)), SHAPE, np.ones(1), [logits, gates], noise)
    return k.run(body, batch, k.new_store(SHAPE, 1, NUM_PLACES))


def expected(
    logits: FloatArray, gates: FloatArray, markov: MarkovStep, temperature: float, noise: Noise
) -> list[tuple[int, float]]:
    """Of all tokens, in float64."""
    guesses, guess = [], 0
    for place, row in enumerate(logits.astype(np.float64)):
        if place:
            row = row + markov.out @ ((1 + gates[place]) * markov.table[guess])
        values = row if not temperature else row / temperature + noise.gumbel(9 + place, markov.ids)
        guess = int(np.argmax(values))
        share = np.exp(row[guess] - row.max()) / np.exp(row - row.max()).sum()
        guesses.append((int(markov.ids[guess]), float(share)))
    return guesses


def markov_step(rng: np.random.Generator, num: int, rank: int) -> MarkovStep:
    ids: IntArray = np.sort(rng.choice(3 * num, num, replace=False))
    size = 0.5 if num <= 32 else 0.2  # beyond the candidates, what a guess adds is left out
    table, out = (rng.normal(0, size, (num, rank)).astype(np.float32) for _ in range(2))
    k = kernels()
    return MarkovStep(k.load_array(ids), k.load_array(table), out, None)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(("num", "rank"), [(1, 16), (5, 3), (31, 40), (32, 128), (3000, 16)])
def test_all_places_are_as_if_every_token_were_looked_at(
    temperature: float, num: int, rank: int
) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        markov = markov_step(rng, num, rank)
        logits = rng.normal(0, 4, (NUM_PLACES, num)).astype(np.float32)
        gates = rng.normal(0, 1, (NUM_PLACES, rank)).astype(np.float32)
        noise = Noise(seed)
        found = picked(logits, gates, markov, ChainNoise(temperature, noise.key, 9))
        known = expected(logits, gates, markov, temperature, noise)
        assert [int(token) for token, *_ in found] == [token for token, _ in known]
        rtol = 1e-3 if num <= 32 else 0.1
        np.testing.assert_allclose([share for _, share, _ in found], [s for _, s in known], rtol)


def test_the_guess_before_a_place_decides() -> None:
    """Every place would say 0, but a 0 is followed by 1, that by 2 and so on."""
    num = 40
    following = np.zeros((num, num), np.float32)
    following[(np.arange(num) + 1) % num, np.arange(num)] = 9
    k = kernels()
    markov = MarkovStep(
        k.load_array(np.arange(num)), k.load_array(np.eye(num, dtype=np.float32)), following, None
    )
    logits = np.tile(-0.1 * np.arange(num, dtype=np.float32), (NUM_PLACES, 1))
    found = picked(logits, np.zeros((NUM_PLACES, num)), markov, ChainNoise())
    assert [int(token) for token, *_ in found] == [0, 1, 2, 3]
    unlikely = np.full((NUM_PLACES, num), -1, np.float32)  # gates that leave nothing of it
    assert [int(t) for t, *_ in picked(logits, unlikely, markov, ChainNoise())] == [0] * NUM_PLACES
