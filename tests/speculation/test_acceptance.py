"""Acceptance: estimates of how far guesses will be accepted."""

from __future__ import annotations

import pytest

from forerun.speculation.acceptance import START_WEIGHT, Acceptance, Rate
from forerun.types import Proposal, Tree
from forerun.types.proposal import Draw


def _own() -> Acceptance:
    return Acceptance(Acceptance())


def _round(acceptance: Acceptance, num_guessed: int, num_accepted: int) -> None:
    """Observe a chain of `num_guessed` guesses, the first `num_accepted` of which are right."""
    text = [7] * num_accepted + [8]
    acceptance.observe(Proposal.chain([7] * num_guessed), text)


def test_a_rate_follows_its_trials_from_its_prior() -> None:
    prior = Rate(0.5)
    rate = Rate(prior)
    assert rate.value == 0.5
    for _ in range(10):
        rate.observe(True)
    assert 0.5 < prior.value < rate.value < 1
    for _ in range(200):
        rate.fade()
    assert rate.value == pytest.approx(prior.value, abs=0.001)


def test_what_is_well_known_takes_more_trials_to_give_up() -> None:
    start = (0.6, 0.6)
    values = []
    for weight in (START_WEIGHT, 12.0):
        shared = Acceptance(start=(*start, weight))
        own = Acceptance(shared)
        for _ in range(8):
            _round(own, 5, 0)
        values.append((own.gains(1)[0], shared.gains(1)[0]))
    (doubted, doubted_by_all), (trusted, trusted_by_all) = values
    assert doubted < 0.1 < 0.2 < trusted < 0.6
    assert doubted_by_all < 0.2 < 0.3 < trusted_by_all < 0.6


def test_gains_never_rise_and_stay_chances() -> None:
    acceptance = _own()
    for num_accepted in (3, 0, 8, 1):
        _round(acceptance, 8, num_accepted)
    gains = acceptance.gains(8)
    assert len(gains) == 8
    assert gains == sorted(gains, reverse=True)
    assert all(0 < gain < 1 for gain in gains)


def test_copying_is_a_rare_start_and_a_long_run() -> None:
    acceptance = _own()
    for _ in range(40):
        for num_accepted in (8, 0, 0, 0):
            _round(acceptance, 8, num_accepted)
    gains = acceptance.gains(8)
    assert gains[0] == pytest.approx(0.33, abs=0.15)
    assert gains[7] / gains[0] > 0.2


def test_after_a_full_accept_the_next_guess_is_another_matter() -> None:
    acceptance = _own()
    for _ in range(40):
        for num_accepted in (0, 0, 0, 4, 4, 4):
            _round(acceptance, 4, num_accepted)
    acceptance.observe(Proposal.chain([7] * 4), [7] * 4)
    after_full = acceptance.gains(1)[0]
    _round(acceptance, 4, 0)
    assert after_full > acceptance.gains(1)[0] + 0.25


def test_what_nobody_looked_at_becomes_average() -> None:
    acceptance = _own()
    for _ in range(40):
        for num_accepted in (0, 0, 0, 4, 4, 4):
            _round(acceptance, 4, num_accepted)
    _round(acceptance, 4, 0)
    after_miss = acceptance.gains(1)[0]
    for _ in range(3):
        acceptance.begin_round()
    assert acceptance.gains(1)[0] > after_miss + 0.05


def test_deeper_guesses_that_were_never_tried_are_taken_for_those_after_an_accepted_one() -> None:
    acceptance = _own()
    for _ in range(200):
        acceptance.observe(Proposal.chain([7]), [7, 8])
    assert acceptance.gains(4)[3] > 0.75


def test_only_the_first_miss_counts() -> None:
    one, other = _own(), _own()
    one.observe(Proposal.chain([7, 9]), [7, 8])
    other.observe(Proposal.chain([7, 9, 9, 9]), [7, 8, 9])
    assert one.gains(8) == other.gains(8)


def test_a_text_that_ends_inside_the_guesses_says_nothing_about_the_rest() -> None:
    one, other = _own(), _own()
    one.observe(Proposal.chain([7, 7]), [7, 7])
    other.observe(Proposal.chain([7, 7, 7, 7]), [7, 7])
    assert one.gains(8) == other.gains(8)


def test_who_makes_fewer_guesses_than_were_asked_for_brings_fewer() -> None:
    guessed = {depth: _own() for depth in (0, 3)}
    for depth, acceptance in guessed.items():
        for _ in range(40):
            acceptance.begin_round()
            acceptance.observe(Proposal.chain([1]), [1, 2], depth=depth)
    whole, short = guessed[0].gains(3), guessed[3].gains(3)
    assert short[0] == whole[0] > 0.9  # the first guess of a round is not affected
    assert short[1] < 0.3 < 0.9 < whole[1]


def test_a_new_request_starts_from_what_others_taught() -> None:
    shared = Acceptance()
    other = Acceptance(shared)
    for _ in range(100):
        _round(other, 8, 0)
    assert Acceptance(shared).gains(1)[0] < 0.05


def test_a_request_may_differ_from_the_others() -> None:
    shared = Acceptance()
    other = Acceptance(shared)
    for _ in range(100):
        _round(other, 8, 0)
    own = Acceptance(shared)
    for _ in range(20):
        _round(own, 8, 7)
    assert own.gains(2)[1] / own.gains(2)[0] > 0.7


def _siblings(*tokens: int) -> Proposal:
    tree = Tree((-1,) * len(tokens))
    return Proposal(tree, tokens, tuple(map(Draw, range(len(tokens)))))


def test_siblings_add_what_the_first_guess_misses() -> None:
    acceptance = _own()
    for _ in range(100):
        acceptance.observe(_siblings(1, 2), [1])
        acceptance.observe(_siblings(1, 2), [2])
    one, two, three = (acceptance.gains(1, num)[0] for num in (1, 2, 3))
    assert one == pytest.approx(0.5, abs=0.2)
    assert two > 0.9
    assert two < three < 1


def test_a_merged_guess_is_right_if_one_of_its_siblings_is() -> None:
    apart, merged = _own(), _own()
    for _ in range(50):
        apart.observe(_siblings(1, 2), [2])
        merged.observe(_siblings(1, 2), [2], is_merged=True)
    assert apart.gains(1)[0] < 0.3
    assert merged.gains(1)[0] > 0.9


def test_below_a_sibling_the_guesses_are_judged_too() -> None:
    tree = Tree((-1, -1, 1))
    proposal = Proposal(tree, (1, 2, 3), tuple(map(Draw, range(3))))
    hit, miss = _own(), _own()
    for _ in range(30):
        hit.observe(proposal, [2, 3])
        miss.observe(proposal, [2, 4])
    assert hit.gains(2)[1] / hit.gains(2)[0] > miss.gains(2)[1] / miss.gains(2)[0] + 0.3


def test_the_drafters_own_chances_are_taken_at_their_word() -> None:
    acceptance = _own()
    for _ in range(50):
        _round(acceptance, 4, 0)
    assert acceptance.gains(3, 1, [0.9, 0.5, 0.5]) == pytest.approx([0.9, 0.45, 0.225])


def test_one_that_was_never_silent_always_speaks() -> None:
    acceptance = _own()
    for _ in range(5):
        acceptance.speaking.observe(True)
    assert acceptance.speaking.value == 1
    for _ in range(50):
        acceptance.speaking.observe(False)
    assert acceptance.speaking.value < 0.15
