"""The generator itself: known answers, uniformity, independence, finiteness."""

from __future__ import annotations

import fractions
import functools
import hashlib
import itertools
import math
import operator
import struct

import numpy as np
import numpy.typing as npt
import pytest

from forerun.sampling import Noise, Stream, fresh_seed
from forerun.sampling.noise import derive_key, gumbel_from_words, uniform_from_words
from forerun.sampling.philox import philox
from tests.statistics import FALSE_ALARM_RATE, chi2_p_value

NUM_TOKENS = 1 << 16
ALL_ONES = 2**32 - 1


def words(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (ALL_ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_published_answers(
    key: int, counter: tuple[int, int, int, int], answer: tuple[int, ...]
) -> None:
    """The vectors published with the Philox paper's reference code."""
    c0, c1, c2, c3 = (words(value) for value in counter)
    assert tuple(int(word[0]) for word in philox(key, (c0, c1, c2, c3))) == answer


def gumbel_quantiles(noise: Noise, position: int) -> npt.NDArray[np.float64]:
    """Back to uniforms by the Gumbel distribution function exp(−exp(−g))."""
    return np.exp(-np.exp(-noise.gumbel(position, np.arange(NUM_TOKENS))))


def test_gumbel_noise_is_gumbel() -> None:
    counts = np.histogram(gumbel_quantiles(Noise(1), 0), bins=64, range=(0, 1))[0]
    assert chi2_p_value(counts, np.full(64, NUM_TOKENS / 64)) > FALSE_ALARM_RATE


@pytest.mark.parametrize("stream", [Stream.DRAFT, Stream.TEST, Stream.FINAL])
def test_uniforms_are_uniform(stream: Stream) -> None:
    noise = Noise(2)
    drawn = [noise.uniform(stream, r, d) for r in range(64) for d in range(64)]
    counts = np.histogram(drawn, bins=32, range=(0, 1))[0]
    assert chi2_p_value(counts, np.full(32, 64 * 64 / 32)) > FALSE_ALARM_RATE


PAIRS = {
    "positions": (Noise(3), 10, Noise(3), 11),
    "choices": (Noise(3, choice=0), 10, Noise(3, choice=1), 10),
    "seeds": (Noise(3), 10, Noise(4), 10),
    "seed + 1 and choice + 1": (Noise(3, choice=1), 10, Noise(4, choice=0), 10),
    "position 0 and 2^31": (Noise(3), 0, Noise(3), 2**31),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_independent_across(pair: str) -> None:
    one, at_one, other, at_other = PAIRS[pair]
    x, y = gumbel_quantiles(one, at_one), gumbel_quantiles(other, at_other)
    table = np.histogram2d(x, y, bins=16, range=((0, 1), (0, 1)))[0]
    assert chi2_p_value(table, np.full(256, NUM_TOKENS / 256)) > FALSE_ALARM_RATE


def test_independent_across_neighbouring_tokens() -> None:
    x = gumbel_quantiles(Noise(5), 0)
    table = np.histogram2d(x[:-1:2], x[1::2], bins=16, range=((0, 1), (0, 1)))[0]
    assert chi2_p_value(table, np.full(256, NUM_TOKENS / 512)) > FALSE_ALARM_RATE


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(Stream, 2)))
def test_independent_across_streams(one: Stream, other: Stream) -> None:
    noise = Noise(6)

    def uniforms(stream: Stream) -> list[float]:
        return [noise.uniform(stream, r, d) for r in range(50) for d in range(50)]

    table = np.histogram2d(uniforms(one), uniforms(other), bins=8, range=((0, 1), (0, 1)))[0]
    assert chi2_p_value(table, np.full(64, 2500 / 64)) > FALSE_ALARM_RATE


def test_same_place_same_noise_whatever_else_is_asked() -> None:
    tokens = np.arange(1000)
    whole = Noise(7).gumbel(3, tokens)
    assert np.array_equal(whole[500:], Noise(7).gumbel(3, tokens[500:]))
    assert np.array_equal(whole[[9, 2]], Noise(7).gumbel(3, np.array([9, 2])))


def test_keys_are_hashed_not_added() -> None:
    keys = {derive_key(seed, choice) for seed in range(-50, 50) for choice in range(50)}
    assert len(keys) == 100 * 50
    assert derive_key(-1) == derive_key(2**64 - 1)  # the same 64 bits


def test_every_bit_of_a_seed_counts() -> None:
    for bit in range(64):
        assert derive_key(5 ^ (1 << bit)) != derive_key(5), bit
        assert derive_key(5, 3 ^ (1 << min(bit, 62))) != derive_key(5, 3), bit


def test_fresh_seeds_have_53_random_bits() -> None:
    """So that clients whose only numbers are floats can send them back. False alarms: two of 1,000
    equal in 1 of 10^10 runs; a bit that never changes, in none."""
    seeds = [fresh_seed() for _ in range(1000)]
    assert len(set(seeds)) == 1000
    assert functools.reduce(operator.or_, seeds) == 2**53 - 1
    assert functools.reduce(operator.and_, seeds) == 0


# Any two numbers up to 90,000 apart are as far apart as two of these.
APART = sorted({*range(300), *range(0, 90_000, 300)})


@pytest.mark.parametrize("stream", Stream)
def test_no_uniform_comes_back_in_another_round_or_draw(stream: Stream) -> None:
    """Two of 1,200 numbers of 53 bits would be equal by chance for 1 seed in 10^10."""
    noise = Noise(8)
    drawn = [noise.uniform(stream, round_idx, 1) for round_idx in APART]
    drawn += [noise.uniform(stream, 100_001, draw_idx) for draw_idx in APART]
    assert len(set(drawn)) == len(drawn)


def test_no_gumbel_noise_comes_back_at_another_token_or_position() -> None:
    """With 32 bits, 15 pairs of these 350,000 would be equal."""
    num = 175_000
    at_one = Noise(9).gumbel(3, np.arange(num))
    positions = np.arange(100, 100 + num, dtype=np.uint64)
    of_one = Noise(9).gumbel(positions, np.full(num, 7))  # type: ignore[arg-type]
    assert of_one[5] == Noise(9).gumbel(105, np.array([7]))[0]
    assert len(np.unique(np.concatenate((at_one, of_one)))) == 2 * num


@pytest.mark.parametrize("stream", Stream)
def test_uniforms_have_53_bits(stream: Stream) -> None:
    """The lowest bits are as random as the highest."""
    noise = Noise(10)
    drawn = [noise.uniform(stream, round_idx, 0) * 2**53 for round_idx in range(2000)]
    assert all(value == int(value) for value in drawn)
    counts = np.bincount([int(value) % 16 for value in drawn], minlength=16)
    assert chi2_p_value(counts, np.full(16, 2000 / 16)) > FALSE_ALARM_RATE


def test_where_a_value_comes_from() -> None:
    """Key, counter and words are as documented: kernels that make the same noise elsewhere, and
    answers that were kept with their seed, depend on it."""
    packed = struct.pack("<QQ", 77, 3)
    digest = hashlib.blake2b(packed, digest_size=8, person=b"forerun.noise").digest()
    noise = Noise(77, choice=3)
    assert noise.key == derive_key(77, 3) == int.from_bytes(digest, "little")
    assert Noise(77).key == Noise(77, 0).key == derive_key(77) == derive_key(77, 0)
    high, low, _, _ = philox(noise.key, (5, 9, int(Stream.FINAL), 0))
    assert noise.uniform(Stream.FINAL, 5, 9) == (high * 2**21 + low // 2**11) / 2**53
    high, low, _, _ = philox(noise.key, (5, words(9), int(Stream.TARGET), 0))
    assert noise.gumbel(5, np.array([9])) == gumbel_from_words(high, low)


def test_words_become_the_numbers_they_stand_for() -> None:
    assert uniform_from_words(1 << 31, 0) == 0.5
    assert uniform_from_words(0, 1 << 11) == 2.0**-53
    assert uniform_from_words(ALL_ONES, ALL_ONES) == 1 - 2.0**-53
    for high, low in ((1 << 31, 0), (1 << 20, 77), (0, 0), (0, 1 << 31), (ALL_ONES, ALL_ONES)):
        u = fractions.Fraction(high, 2**32) + fractions.Fraction(2 * low + 1, 2**65)
        u = min(u, 1 - fractions.Fraction(1, 2**53))
        exact = -math.log(-math.log1p(-float(u)))
        assert gumbel_from_words(words(high), words(low))[0] == pytest.approx(exact, rel=1e-12)


def check_words_are_finite(high: npt.NDArray[np.uint64]) -> None:
    for low in (0, ALL_ONES):
        low_words = np.full_like(high, low)
        assert np.isfinite(gumbel_from_words(high, low_words)).all()
        uniforms = uniform_from_words(high, low_words)
        assert uniforms.min() >= 0
        assert uniforms.max() < 1


@pytest.mark.parametrize("start", [0, 2**31 - 2**19, 2**32 - 2**20])
def test_finite_at_the_edges(start: int) -> None:
    """Every word within 2^20 of each end and of the middle; all 2^32 run in `make soak`."""
    check_words_are_finite(np.arange(start, start + 2**20, dtype=np.uint64))


def test_finite_across_the_range() -> None:
    check_words_are_finite(np.arange(0, 2**32, 4099, dtype=np.uint64))


@pytest.mark.soak
def test_finite_for_all_words() -> None:
    for start in range(0, 2**32, 2**24):
        check_words_are_finite(np.arange(start, start + 2**24, dtype=np.uint64))


def test_rare_tokens_keep_their_share() -> None:
    """32 bits of noise would cap at 22.9 and starve tokens rarer than 10^-10; ours goes to 45."""
    assert gumbel_from_words(words(0), words(0))[0] > 45
    assert gumbel_from_words(words(ALL_ONES), words(ALL_ONES))[0] > -4
