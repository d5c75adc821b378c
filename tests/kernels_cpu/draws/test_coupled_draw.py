"""The fast coupled draw picks the oracle's token, always."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.sampling import Noise, gumbel_argmax
from tests.kernels_cpu.products.test_formats import kernels


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


@pytest.mark.parametrize("spread", [0.0, 1e-15, 1e-12, 1e-9, 1e-6])
def test_the_oracle_decides_where_sums_are_all_but_equal(spread: float) -> None:
    """Logits that cancel the noise leave its last bits, and ties, to decide among 3,000 tokens."""
    draw, tokens = kernels().gumbel_argmax, np.arange(3000)
    for seed in range(10):
        noise = Noise(seed)
        jitter = np.random.default_rng(seed).integers(-2, 3, len(tokens)) * spread
        logits = jitter - noise.gumbel(seed, tokens)
        assert draw(logits, noise, seed) == gumbel_argmax(logits, noise, seed)


@pytest.mark.parametrize("num_alive", [1, 2, 31, 32, 33, 34, 500, 2000])
@pytest.mark.parametrize("first", [0, 511, 512, 900])
def test_survivors_anywhere(num_alive: int, first: int) -> None:
    """Few or many tokens with finite logits: scattered, or in a run next to the kernel's edges."""
    draw, vocab_size = kernels().gumbel_argmax, 3001
    for seed in range(20):
        rng = np.random.default_rng(seed)
        alive = rng.choice(vocab_size, num_alive, replace=False)
        if seed % 2:
            alive = np.arange(first, min(first + num_alive, vocab_size))
        logits = np.full(vocab_size, -np.inf)
        logits[alive] = np.round(rng.normal(0, 2, len(alive)))  # many ties
        noise = Noise(seed)
        assert draw(logits, noise, seed) == gumbel_argmax(logits, noise, seed)


@pytest.mark.parametrize("order", [1, -1])
def test_every_token_may_be_noted_on_the_way(order: int) -> None:
    draw, logits = kernels().gumbel_argmax, np.linspace(-9000.0, 0.0, 3000)[::order]
    for seed in range(20):
        assert draw(logits, Noise(seed), 3) == gumbel_argmax(logits, Noise(seed), 3)


@pytest.mark.parametrize("size", [1e-300, 1e9, 1e16, 1e300, np.finfo(np.float64).max])
def test_extreme_logits(size: float) -> None:
    """Where logits are so large that noise is rounded away, ties go to the lowest id."""
    draw = kernels().gumbel_argmax
    for seed in range(20):
        logits = -size * (np.random.default_rng(seed).integers(0, 3, 700) / 2)
        assert draw(logits, Noise(seed), 1) == gumbel_argmax(logits, Noise(seed), 1)
        lowest = np.full(700, -size)
        lowest[:3] = -np.inf
        assert draw(lowest, Noise(seed), 1) == gumbel_argmax(lowest, Noise(seed), 1)


@pytest.mark.parametrize(
    ("position", "token"),
    [(61681, 8135), (83890, 21853), (141546, 38519), (146775, 30183), (62420, 4107)],
)
def test_the_rarest_words(position: int, token: int) -> None:
    """Random words of all zeros or ones (each once in 2^32) make the largest and least noise."""
    noise, draw = Noise(0), kernels().gumbel_argmax
    mine, other = noise.gumbel(position, np.array([token, 7]))
    assert not -3.1 < mine < 22
    for nudge in (-1.0, -1e-6, 1e-6, 1.0):
        logits = np.full(40_000, -np.inf)
        logits[token], logits[7] = 0.0, mine + nudge - other
        assert draw(logits, noise, position) == (7 if nudge > 0 else token)
