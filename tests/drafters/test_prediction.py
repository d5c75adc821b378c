"""A given prediction: where an output stands in it, after any kind of deviation."""

from __future__ import annotations

import json
from itertools import chain, takewhile
from pathlib import Path
from random import Random

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from forerun.cli import app
from forerun.drafters import Budget, GivenPrediction
from forerun.drafters.prediction import Alignment
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams
from replay import Answer, recorded_texts

PREDICTED = list(range(100, 160))
NEW = [900, 901, 902]  # tokens that the prediction does not have


def place_after(output: list[int], prediction: list[int] = PREDICTED) -> int:
    alignment = Alignment(prediction)
    alignment.read(output)
    return alignment.place


@pytest.mark.parametrize("at", [0, 1, 20])
@pytest.mark.parametrize("num", [1, 2, 3, 7])
def test_it_finds_its_place_again(at: int, num: int) -> None:
    """Two tokens after a deviation of `num` tokens at `at`, the place is the right one again."""
    head, tail = PREDICTED[:at], PREDICTED[at:]
    new = (NEW * 3)[:num]
    changed = [*head, *new, *tail[num : num + 2]]
    inserted = [*head, *new, *tail[:2]]
    left_out = [*head, *tail[num : num + 2]]
    assert place_after(changed) == at + num + 2
    assert place_after(inserted) == at + 2
    assert place_after(left_out) == at + num + 2


def test_a_changed_token_costs_nothing_beyond_itself() -> None:
    """The guess after it is already the right one."""
    assert place_after([*PREDICTED[:9], 900]) == 10


def test_a_changed_token_that_stands_nearby_as_well_is_no_move() -> None:
    """One equal token may be chance, so the place stays after the changed token; also where both
    it and the token after it occur elsewhere."""
    prediction = [1, 2, 3, 4, 5, 6, 20, 3, 7, 8, 9]
    assert place_after([1, 2, 3, 20], prediction) == 4
    assert place_after([1, 2, 3, 900, 5], [*prediction[:6], 30, 900, 5, 40]) == 5


SPELLED = {1: b" An", 2: b"a", 3: b" Ana", 4: b" Anabel", 5: b"bel"}


def spell(token: int) -> bytes:
    return SPELLED.get(token, b" %d" % token)


@pytest.mark.parametrize(
    "ways", [([3], [1, 2]), ([1, 2], [3]), ([4], [1, 2, 5]), ([1, 2, 5], [3, 5])]
)
def test_the_same_text_in_other_tokens_is_no_deviation(ways: tuple[list[int], list[int]]) -> None:
    """Where that text comes again, it is expected in the tokens that the output used."""
    there, here = ways
    prediction = [*PREDICTED[:9], *there, *PREDICTED[20:25], *there, *PREDICTED[30:]]
    answer = Answer(0, (1,), [*PREDICTED[:9], *here], 99, prediction=(*prediction,))
    drafter = GivenPrediction(spell=spell)
    drafter.begin(answer)
    (proposal,) = drafter.propose([answer], [Budget(12)])
    expected = (*PREDICTED[20:25], *here, *PREDICTED[30:])
    assert proposal.tokens == expected[: len(proposal.tokens)]
    assert len(proposal) > 5 + len(here)
    untouched = Answer(1, (1,), PREDICTED[:9], 99, prediction=(*prediction,))
    drafter.begin(untouched)
    (proposal,) = drafter.propose([untouched], [Budget(12)])
    assert proposal.tokens == tuple(prediction[9:21])[: len(proposal)]


def test_what_only_begins_with_the_same_letters_is_a_deviation() -> None:
    for there, came in ((3, [1, 900]), (4, [1, 2, 900]), (3, [4]), (3, [5])):
        prediction = [*PREDICTED[:9], there, *PREDICTED[10:40], there, *PREDICTED[41:]]
        found = []
        for known in (spell, None):
            alignment = Alignment(prediction, known)
            alignment.read([*PREDICTED[:9], *came, *PREDICTED[12:14]])
            found.append((alignment.place, alignment.score, alignment.odds, alignment.prediction))
        assert found[0] == found[1]


def test_a_moved_stretch_is_followed_once_it_is_long_enough() -> None:
    assert place_after([*PREDICTED[:5], PREDICTED[45]]) == 6  # one token so far away: chance?
    assert place_after([*PREDICTED[:5], *PREDICTED[45:49]]) == 49


def test_a_changed_token_is_no_move_to_where_the_same_words_stand_with_it() -> None:
    """What came before it counts as well: the output has long been at this place."""
    here, there = [1, 2, 3, 4, 30, 6, 7, 8, 9], [2, 3, 4, 5, 40, 41]
    prediction = [*PREDICTED[:12], *here, *PREDICTED[20:], *there]
    assert place_after([*PREDICTED[:12], 1, 2, 3, 4, 5], prediction) == 17


def test_two_changed_tokens_are_no_move_either_while_the_same_words_are_far_away() -> None:
    here, there = [1, 2, 3, 4, 30, 6, 31, 8, 9], [2, 3, 4, 5, 6, 7, 40, 41]
    prediction = [*PREDICTED[:12], *here, *PREDICTED[20:], *there]
    output = [*PREDICTED[:12], 1, 2, 3, 4, 5, 6, 7]
    assert place_after(output, prediction) == 19
    assert place_after([*output, 40, 41], prediction) == len(prediction)  # it did move


def test_a_repetitive_prediction_is_followed_where_the_output_is() -> None:
    """Where a line is repeated, the place is in the same repetition, not in the first."""
    prediction = [1, 2, 3, 4, 5] * 8
    assert place_after([1, 2, 3, 4, 5] * 3 + [1, 2], prediction) == 17


def test_what_never_held_is_no_longer_guessed() -> None:
    """Two misses at the start are enough; after many tokens that came true, they are not."""

    def guesses_after(output: list[int]) -> int:
        answer, drafter = Answer(0, (1,), [], 99, prediction=(*PREDICTED,)), GivenPrediction()
        answer.output += output
        drafter.begin(answer)
        budget = Budget(4)
        (proposal,) = drafter.propose([answer], [budget])
        assert drafter.may_guess(answer, budget) == (len(proposal) > 0)
        return len(proposal)

    assert guesses_after([]) == 4
    assert guesses_after(NEW[:2]) == 0
    assert guesses_after([*PREDICTED[:12], *NEW[:2]]) > 0
    assert guesses_after([*PREDICTED[:12], *NEW, *range(900, 920)]) == 0
    assert guesses_after([*range(900, 930), *PREDICTED[20:24]]) > 0
    assert guesses_after([*range(900, 980), PREDICTED[20]]) == 0  # also past its end
    assert guesses_after([*PREDICTED, *PREDICTED[-1:] * 12, PREDICTED[5]]) == 0  # its last token


def test_how_often_it_was_asked_changes_no_guess() -> None:
    """A drafter that has lost its place does not read every token at once, but misses nothing."""
    random = Random(2)
    changed = [t if random.random() < 0.8 else 900 for t in PREDICTED]
    output = [*PREDICTED[:9], *range(900, 940), *changed[20:50], *range(930, 940), *changed[9:20]]
    asked, num_guesses = GivenPrediction(), 0
    answer = Answer(0, (1,), [], 999, prediction=(*PREDICTED,))
    asked.begin(answer)
    for token in output:
        answer.output.append(token)
        (proposal,) = asked.propose([answer], [Budget(4)])
        new = GivenPrediction()
        new.begin(answer)
        assert (proposal,) == tuple(new.propose([answer], [Budget(4)]))
        num_guesses += len(proposal) > 0
    assert 20 < num_guesses < len(output) - 40
    answer.output += [7] * 9_999  # without being asked
    assert len(asked.propose([answer], [Budget(4)])[0]) == 0


def test_what_always_held_is_trusted() -> None:
    alignment = Alignment(PREDICTED)
    alignment.read(PREDICTED[:40])
    assert alignment.chance(alignment.odds) > 0.94


def test_common_tokens_cost_a_bounded_look() -> None:
    """However often a token occurs in the prediction, only its nearest places are looked at."""
    prediction = [7] * 50_000
    alignment = Alignment(prediction)
    alignment.read([7] * 100)
    assert alignment.place == 100
    assert len(list(alignment.places())) <= 50


def followed(share_changed: float, depth: int = 7) -> tuple[float, float]:
    """Follow SmolLM2's recorded answers by predictions with a share of changed tokens. Return
    tokens per round, and right ÷ expected of those judged guesses that follow a right one."""
    random, num_tokens, num_rounds, num_right, expected = Random(0), 0, 0, 0, 0.0
    for text in chain.from_iterable(recorded_texts().values()):
        changed = [
            random.randrange(49152) if random.random() < share_changed else token
            for token in text.output
        ]
        answer = Answer(0, text.prompt, [], len(text.prompt + text.output), prediction=(*changed,))
        drafter = GivenPrediction()
        drafter.begin(answer)
        while len(answer.output) < len(text.output):
            (proposal,) = drafter.propose([answer], [Budget(depth)])
            rest = text.output[len(answer.output) :]
            pairs = zip(proposal.tokens, rest, strict=False)
            num_accepted = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
            num_judged = min(num_accepted + 1, len(rest))
            num_right += max(0, num_accepted - 1)
            expected += sum(proposal.chances[1:num_judged])
            answer.output += rest[: num_accepted + 1]
            num_rounds += 1
        num_tokens += len(text.output)
    return num_tokens / num_rounds, num_right / expected


def test_changed_tokens_cost_little_in_real_answers() -> None:
    """Nine right guesses in ten would give 5.7 tokens a round, in answers without an end. And as
    many guesses are right as their chances say."""
    found = {share: followed(share) for share in (0.0, 0.1, 0.2)}
    assert found[0.0][0] > 7.8
    assert found[0.1][0] > 5.0
    assert found[0.2][0] > 3.4
    assert all(0.96 < right < 1.04 for _, right in found.values()), found


PROMPT = "the quick brown fox"
PARAMS = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True, skip_special_tokens=False)


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> LLM:
    return LLM(
        tiny_path,
        speculative_config={"method": "random", "num_speculative_tokens": 6, "adaptive": False},
        max_num_seqs=2,
        num_threads=1,
    )


def wrong_in_places(text: str, share: float) -> str:
    rng = np.random.default_rng(0)
    return "".join("x" if rng.random() < share else letter for letter in text)


def test_a_good_prediction_saves_passes_and_never_changes_the_text(llm: LLM, plain: LLM) -> None:
    expected = plain.generate(PROMPT, PARAMS)[0].outputs[0]
    passes = {}
    for share in (0.0, 0.1, 1.0):
        prediction = wrong_in_places(expected.text, share)
        found = llm.generate(PROMPT, PARAMS, prediction=prediction)[0].outputs[0]
        assert found.token_ids == expected.token_ids
        passes[share] = found.stats["target_passes"]
        assert set(found.stats["drafters"]) <= {"prediction"}
    assert passes[0.0] < 30
    assert passes[0.1] < 70
    assert passes[1.0] > 100


def test_predictions_are_for_their_own_request_and_sampled_text_too(llm: LLM, plain: LLM) -> None:
    params = PARAMS.with_(temperature=1.0, seed=11)
    alone = [plain.generate(p, params)[0].outputs[0].token_ids for p in (PROMPT, "abc")]
    text = plain.generate(PROMPT, params)[0].outputs[0].text
    results = llm.generate([PROMPT, "abc"], params, prediction=[text, None])
    assert [r.outputs[0].token_ids for r in results] == alone
    first, second = (r.outputs[0].stats["drafters"] for r in results)
    assert first["prediction"]["accepted_tokens"] > 80
    assert "prediction" not in second


def test_bad_predictions_are_refused(llm: LLM) -> None:
    with pytest.raises(InvalidOption, match="prediction"):
        llm.generate(PROMPT, PARAMS, prediction=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="needs a prediction"):
        llm.generate(PROMPT, PARAMS, speculation={"drafter": "prediction"})
    with pytest.raises(InvalidOption, match="min_chance"):
        GivenPrediction(min_chance=1.0)


def test_on_the_command_line(tiny_path: Path, tmp_path: Path) -> None:
    def run(*args: str) -> Result:
        speculation = '{"method": "random", "adaptive": false}'
        options = ("--model", str(tiny_path), "--speculative-config", speculation, "--json")
        fixed = ("--ignore-eos", "--keep-special", "--max-tokens", "60", "--kernels", "reference")
        return CliRunner().invoke(app, ["generate", PROMPT, *options, *fixed, *args])

    without = json.loads(run().stdout)
    file = tmp_path / "expected.txt"
    file.write_text(without["text"])
    found = json.loads(run("--prediction", str(file)).stdout)
    assert found["token_ids"] == without["token_ids"]
    assert found["stats"]["drafters"]["prediction"]["accepted_tokens"] > 30
    refused = run("--prediction", str(tmp_path / "none.txt"))
    assert refused.exit_code == 2
    assert "cannot be read" in refused.stderr
