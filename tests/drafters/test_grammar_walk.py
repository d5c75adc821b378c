"""What a grammar forces is guessed, and where it leaves a choice, what was chosen last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from forerun.drafters import Budget, GrammarWalk
from forerun.grammars import Grammars
from forerun.sampling import Noise
from forerun.types import Grammar, Proposal, SamplingParams, StructuredOutputsParams
from tests.grammars.words import words

RECORD = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("name", "cab", "abc")},
    "required": ["name", "cab", "abc"],
    "additionalProperties": False,
}
GRAMMARS = Grammars(words())


@pytest.fixture(autouse=True)
def what_stands_in_a_string_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a vocabulary of usual size; this one has 55 tokens, and strings allow most of them."""
    monkeypatch.setattr("forerun.drafters.grammar_walk._FEW", 20)


def grammar(**wanted: Any) -> Grammar:
    found = GRAMMARS.of(StructuredOutputsParams(**wanted))
    assert found is not None
    return found


@dataclass
class View:
    """A request whose output a test writes."""

    grammar: Grammar | None
    id: int = 0
    written: str = ""
    prompt: tuple[int, ...] = ()
    params: SamplingParams = field(default_factory=SamplingParams)
    noise: Noise = field(default_factory=lambda: Noise(7))
    round_idx: int = 0
    cache_salt: str | None = None
    prediction: tuple[int, ...] = ()

    @property
    def output(self) -> Sequence[int]:
        return words().encode(self.written)

    @property
    def tokens(self) -> Sequence[int]:
        return self.output


def drafter() -> GrammarWalk:
    return GrammarWalk(spell=words().token_bytes)


def asked(walk: GrammarWalk, view: View, depth: int = 16, least: float = 0.0) -> Proposal:
    may = walk.may_guess(view, Budget(depth, least_chance=least))
    (found,) = walk.propose([view], [Budget(depth, least_chance=least)])
    if least == 0:
        assert may == bool(found.tokens), "a hint that is wrong"
    return found


def text(proposal: Proposal) -> str:
    return "".join(words().token_bytes(token).decode() for token in proposal.tokens)


def test_what_is_forced() -> None:
    walk, view = drafter(), View(grammar(json=RECORD), written='{ "')
    walk.begin(view)
    found = asked(walk, view)
    assert text(found) == "name"
    assert found.chances == [0.99] * len(found)


def test_how_a_model_spaces_and_indents_is_learnt() -> None:
    """After the first key the model's spacing is unknown; after the second it is guessed."""
    walk, view = drafter(), View(grammar(json=RECORD), written='{\n "name": "x"')
    walk.begin(view)
    assert asked(walk, view).tokens == ()
    view.written = '{\n "name": "x",\n'
    assert text(asked(walk, view)) == ' "cab": "'
    view.written = '{\n "name": "x",\n "cab": "y",'
    assert text(asked(walk, view)) == '\n "abc": "'


def test_habits_are_shared_and_words_are_not() -> None:
    walk, shape = drafter(), {"json": {"enum": ["name", "cab"]}}
    first = View(grammar(**shape), id=1, written='"cab"')
    walk.begin(first)
    asked(walk, first)
    second = View(grammar(**shape), id=2)
    walk.begin(second)
    assert text(asked(walk, second)) == '"', "the word itself is nobody else's business"


def test_habits_that_fail_are_trusted_less() -> None:
    """A spacing that changes every time is not worth a guess."""
    walk = drafter()
    for number, spacing in enumerate((" ", "\n") * 12):
        view = View(grammar(json=RECORD), id=number, written="{" + spacing + '"')
        walk.begin(view)
        asked(walk, view)
        walk.end(view)
    view = View(grammar(json=RECORD), id=100, written="{")
    walk.begin(view)
    assert asked(walk, view).tokens == ()
    assert walk.num_requests == 1


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_deeper_than_asked(depth: int) -> None:
    walk, view = drafter(), View(grammar(choice=["abcabcabc"]))
    walk.begin(view)
    assert len(asked(walk, view, depth)) == depth


def test_no_further_than_it_pays() -> None:
    walk, view = drafter(), View(grammar(choice=["abc" * 40]))
    walk.begin(view)
    assert 0.99 ** len(asked(walk, view, 200, least=0.8)) >= 0.8 > 0.99**30


def test_nothing_without_a_grammar() -> None:
    walk, view = drafter(), View(None)
    walk.begin(view)
    assert asked(walk, view).tokens == ()


def test_only_so_many_choices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.drafters.grammar_walk._MAX_KEPT", 3)
    walk = drafter()
    view = View(grammar(json=RECORD), written='{\n "name": "x",\n "cab": "y",\n "abc": ""}')
    walk.begin(view)
    asked(walk, view)
    assert len(walk._habits) == 3
