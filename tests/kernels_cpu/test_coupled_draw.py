"""The fast coupled draw is the oracle's, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.sampling import Noise, gumbel_argmax
from tests.kernels_cpu.test_formats import kernels


@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("vocab_size", [1, 2, 50, 5000])
def test_the_same_token_as_the_oracle(scale: float, vocab_size: int) -> None:
    draw = kernels().gumbel_argmax
    for seed in range(40):
        logits = np.random.default_rng(seed).normal(0, scale, vocab_size)
        noise = Noise(seed)
        for position in (0, 7, 2**31):
            assert draw(logits, noise, position) == gumbel_argmax(logits, noise, position)


def test_tokens_without_probability_are_never_drawn() -> None:
    draw = kernels().gumbel_argmax
    for seed in range(50):
        logits = np.full(300, -np.inf)
        logits[[3, 77, 250]] = [0.0, 1.0, -2.0]
        assert draw(logits, Noise(seed), 5) == gumbel_argmax(logits, Noise(seed), 5)
    only = np.full(300, -np.inf)
    only[123] = -1e9
    assert draw(only, Noise(1), 0) == 123


def test_every_token_wins_sometimes() -> None:
    """Uniform logits: each of 8 tokens is missed by 400 draws with probability 5e-23."""
    draw, logits = kernels().gumbel_argmax, np.zeros(8)
    assert {draw(logits, Noise(seed), 1) for seed in range(400)} == set(range(8))
