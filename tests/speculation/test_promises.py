"""Which head `auto` takes, and when it takes none."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from forerun.drafters import Drafter
from forerun.drafters.heads import Card, HeadFolder
from forerun.drafters.heads.folder import HISTORY
from forerun.engine import LLM
from forerun.engine.setup.trial import Trial
from forerun.errors import InvalidWeights
from forerun.kernels.cpu import CpuKernels
from forerun.models.text.compatibility import tokenizer_hash
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.heads.card_check import CardCheck
from forerun.speculation.heads.promises import best_head, num_weights, promised
from forerun.types import SamplingParams
from tests.drafters.heads.random_heads import (
    CONFIGS,
    eagle3_config,
    medusa_config,
    write_eagle3,
    write_medusa,
)
from tests.engine.leaks import assert_nothing_is_held

FLAT, STEEP = PassCost(((1, 1.0), (16, 1.05))), PassCost(((1, 1.0), (2, 2.0), (16, 16.0)))
ASKED = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True)


def with_card(folder: Path, alpha: list[float], greedy: list[float] | None = None) -> Path:
    call = {"alpha": alpha, "greedy": greedy or alpha}
    (folder / HISTORY).write_text(json.dumps({"calls": [{}, call]}))
    return folder


@pytest.fixture(scope="module")
def eagle3(plain: LLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = eagle3_config(plain.model.config, tokenizer_hash(plain.tokenizer))
    folder = write_eagle3(tmp_path_factory.mktemp("heads") / "e", config)
    return with_card(folder, [0.99] * 7)


@pytest.fixture(scope="module")
def medusa(plain: LLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = medusa_config(plain.model.config, tokenizer_hash(plain.tokenizer))
    folder = write_medusa(tmp_path_factory.mktemp("heads") / "m", config)
    return with_card(folder, [0.3, 0.1], [0.2, 0.15])


def test_the_one_that_promises_most_where_guesses_are_cheap(
    plain: LLM, eagle3: Path, medusa: Path
) -> None:
    with_card(medusa, [0.99, 0.4])
    best, left_out = best_head([medusa, eagle3], plain.model.config, FLAT)
    with_card(medusa, [0.3, 0.1], [0.2, 0.15])
    assert best is not None
    assert best.folder.path == eagle3
    assert set(left_out) == {"m"}
    assert "another one promises more" in left_out["m"]


def test_none_where_a_pass_over_more_tokens_costs_what_it_brings(
    plain: LLM, eagle3: Path, medusa: Path
) -> None:
    best, left_out = best_head([eagle3, medusa], plain.model.config, STEEP)
    assert best is None
    assert left_out["e"].startswith("on this machine, as measured at start, it promises 0.")
    assert "with 1 guess a round" in left_out["m"]


def test_its_own_weights_count_once_a_round_or_once_a_guess(
    plain: LLM, eagle3: Path, medusa: Path
) -> None:
    config = plain.model.config
    for folder, num_reads in ((eagle3, 3), (medusa, 1)):
        card = Card.of(with_card(folder, [1.0, 1.0, 1.0]))
        assert card is not None
        best = promised(HeadFolder(folder), card, config, FLAT)
        share = best.folder.num_weights / num_weights(config)
        times = {d: (1 + d) / (FLAT.seconds(1 + d) + share * min(d, num_reads)) for d in (1, 2, 3)}
        assert best.speed == pytest.approx(max(times.values()))
    with_card(eagle3, [0.99] * 7)
    with_card(medusa, [0.3, 0.1], [0.2, 0.15])


@pytest.mark.parametrize("kind", ["mtp", "pass"])
def test_what_it_reads_of_the_target_counts_as_well(plain: LLM, tmp_path: Path, kind: str) -> None:
    config = plain.model.config
    head = CONFIGS[kind](config, tokenizer_hash(plain.tokenizer))
    folder = HeadFolder(with_card(write_medusa(tmp_path / kind, head), [1.0]))
    card = Card.of(folder.path)
    assert card is not None
    share = 1.0
    if kind == "mtp":
        num_shared = config.vocab_size * config.hidden_size
        share = (folder.num_weights + num_shared) / num_weights(config)
    found = promised(folder, card, config, FLAT)
    assert found.speed == pytest.approx(2 / (FLAT.seconds(2) / FLAT.seconds(1) + share))


def test_a_card_says_the_better_of_drawn_and_best_guesses(medusa: Path) -> None:
    assert Card.of(medusa) == Card((0.3, 0.15))


@pytest.mark.parametrize(
    "calls", [[], {}, [1], [{"alpha": [0.5]}], [{"alpha": [2.0], "greedy": [0.1]}], [{"alpha": []}]]
)
def test_a_damaged_card_is_named(tmp_path: Path, calls: Any) -> None:
    (tmp_path / HISTORY).write_text(json.dumps({"calls": calls}))
    with pytest.raises(InvalidWeights, match=r"training\.json is damaged; delete it"):
        Card.of(tmp_path)
    (tmp_path / HISTORY).unlink()
    assert Card.of(tmp_path) is None


Started = Callable[[PassCost, list[Path]], LLM]


@pytest.fixture
def started(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    """Return a function that starts a default engine, given pass costs and shipped heads."""

    def start(passes: PassCost, heads: list[Path]) -> LLM:
        monkeypatch.setattr("forerun.engine.setup.drafting.calibrate", lambda *_: deepcopy(passes))
        monkeypatch.setattr("forerun.engine.api.llm.shipped_heads", lambda _: heads)
        return LLM(tiny_path, num_threads=1)

    return start


def test_auto_asks_the_trained_head_where_nothing_repeats(
    plain: LLM, started: Started, eagle3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's time is set to next to nothing, so that the machine's load does not matter."""
    timed = "forerun.engine.setup.drafting.timed_head"
    monkeypatch.setattr(timed, lambda *_: DraftCost(0.0, 1e-3))
    monkeypatch.setattr(Trial, "seconds", lambda _, *guesses: 1.1 if guesses else 1.0)
    llm = started(FLAT, [eagle3])
    (result,) = llm.generate("hello", ASKED)
    assert result.outputs[0].token_ids == plain.generate("hello", ASKED)[0].outputs[0].token_ids
    made = llm.metrics()["drafters"]
    assert made["eagle3"]["num_drafts"] > 0
    assert max(len(d["drafted_per_position"]) for n, d in made.items() if n == "eagle3") <= 5
    assert "e" not in llm.metrics()["left_out"]
    assert_nothing_is_held(llm)


def test_auto_loads_no_head_that_cannot_pay_and_says_so(started: Started, eagle3: Path) -> None:
    llm = started(STEEP, [eagle3])
    llm.generate("hello", ASKED)
    assert set(llm.metrics()["drafters"]) <= {"suffix"}
    assert "on this machine" in llm.metrics()["left_out"]["e"]


def test_a_head_that_takes_longer_than_its_weights_say_goes_again(
    started: Started, eagle3: Path
) -> None:
    """By its weights it could pay; timed against a target with almost free passes, it cannot."""
    llm = started(PassCost(((1, 1e-9), (16, 1.05e-9))), [eagle3])
    llm.generate("hello", ASKED)
    assert set(llm.metrics()["drafters"]) <= {"suffix"}
    assert "on this machine" in llm.metrics()["left_out"]["e"]
    assert_nothing_is_held(llm)


@pytest.mark.parametrize(("guessing", "is_taken"), [(2e-3, True), (8e-3, False)])
def test_where_rounds_begin_early_a_head_pays_by_rounds_that_were_timed(
    plain: LLM,
    started: Started,
    eagle3: Path,
    monkeypatch: pytest.MonkeyPatch,
    guessing: float,
    is_taken: bool,
) -> None:
    """By the costs of a round's parts it would never pay; only whole rounds count there."""

    def seconds(_: Trial, drafters: Mapping[str, Drafter] = {}, depth: int = 0) -> float:
        assert (len(drafters), depth) in ((0, 0), (1, 0), (1, 5))
        return guessing if depth else 1e-3

    monkeypatch.setattr(CpuKernels, "begins_early", True)
    monkeypatch.setattr(Trial, "seconds", seconds)
    llm = started(STEEP, [eagle3])
    (result,) = llm.generate("hello", ASKED)
    assert result.outputs[0].token_ids == plain.generate("hello", ASKED)[0].outputs[0].token_ids
    assert ("eagle3" in llm.metrics()["drafters"]) == is_taken
    reason = llm.metrics()["left_out"].get("e", "")
    assert (
        reason == ""
        if is_taken
        else reason.startswith("on this machine, as measured at start, it promises 0.7")
    )
    assert_nothing_is_held(llm)


def test_a_head_for_another_tokenizer_is_left_out(
    plain: LLM, started: Started, tmp_path: Path
) -> None:
    """Its target's weights match, so it is found; the default must start without it."""
    config = eagle3_config(plain.model.config, "another")
    head = with_card(write_eagle3(tmp_path / "o", config), [0.99] * 7)
    llm = started(FLAT, [head])
    assert "its tokenizer is another" in llm.metrics()["left_out"]["o"]
    assert llm.generate("hello", ASKED)[0].outputs[0].stats["drafter_failures"] == 0


def test_kernels_without_hidden_states_leave_heads_out(
    started: Started, eagle3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoTaps: ...

    monkeypatch.setattr("forerun.engine.setup.drafting.TappedKernels", NoTaps)
    found = started(FLAT, [eagle3]).metrics()["left_out"]
    assert found == {"e": "the cpu kernels hand out no hidden states"}


def test_a_head_that_is_far_from_its_card_is_put_aside(
    plain: LLM, eagle3: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A head with random weights, whose card promises 99 %."""
    config = {"method": "eagle3", "model": str(eagle3), "adaptive": False}
    llm = plain.with_speculation(config)
    with caplog.at_level(logging.WARNING, "forerun"):
        for prompt in ("a", "hello", "xyz"):
            text = llm.generate(prompt, ASKED)[0].outputs[0].token_ids
            assert text == plain.generate(prompt, ASKED)[0].outputs[0].token_ids
    (message,) = [m for m in caplog.messages if "put aside" in m]
    assert "its card says 99%" in message
    assert "trained for other weights of this model" in message
    assert "eagle3" in llm.metrics()["left_out"]
    num = llm.metrics()["drafters"]["eagle3"]["num_drafts"]
    llm.generate("again", ASKED)
    assert llm.metrics()["drafters"]["eagle3"]["num_drafts"] == num
    assert_nothing_is_held(llm)


def test_texts_that_nobody_learnt_do_not_count_against_a_card(plain: LLM, eagle3: Path) -> None:
    config = {"method": "eagle3", "model": str(eagle3), "adaptive": False}
    llm = plain.with_speculation(config)
    for prompt in ("a", "hello", "xyz"):
        llm.generate(prompt, ASKED.with_(temperature=1.1, seed=1))
    assert not llm.metrics()["left_out"]
    served = llm.metrics()["drafters"]["eagle3"]
    rate = served["accepted_per_position"][0] / served["drafted_per_position"][0]
    assert rate < 0.2  # the card promises 0.99


@pytest.mark.parametrize(("every", "is_found_out"), [(2, False), (3, False), (30, True)])
def test_half_as_often_is_no_reason(every: int, is_found_out: bool) -> None:
    """The card promises 60 %; every second, third or thirtieth guess is accepted."""
    check = CardCheck({"head": Card((0.6, 0.5))})
    reasons = [check.observe("head", is_accepted=idx % every == 0) for idx in range(2000)]
    assert sum(reason is not None for reason in reasons) == is_found_out
    assert check.observe("another", is_accepted=False) is None
