"""Answers under a grammar fit it, and no drafter changes a token of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM
from forerun.errors import InvalidGrammar, InvalidOption, RequestFailed, UnusableDrafter
from forerun.types import SamplingParams
from forerun.types import StructuredOutputsParams as Fitting
from tests.engine.test_bits import METHODS, SAMPLING, config
from tests.tiny_model import JSON_LETTERS, write_tiny_model

PROMPTS = ["abcabcabc", '{"a": 1}']
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["cat", "canary"]},
        "ages": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "kind", "ages"],
    "additionalProperties": False,
}
STRUCTURES: dict[str, dict[str, Any]] = {
    "json": {"json": RECORD, "disable_any_whitespace": True},
    "regex": {"regex": "(abc|cab){3,6}-[0-9]{2}"},
    "choice": {"choice": ["a cat", "a canary", "a bird"]},
    "grammar": {"grammar": 'start: "a" start "b" | "c" | "d" start'},
    "triggers": {"regex": "[a-e][f-j]{2}-(abc){1,3}[0-9]", "triggers": list("abcde")},
    "reasoning": {"regex": "b[a-e]{2}", "reasoning": ("a", "e")},
}
ENDLESS = ("grammar", "triggers", "reasoning")
DIGITS = tuple(JSON_LETTERS.index(letter) for letter in "0123456789-")
FITS: dict[str, Callable[[str], bool]] = {
    "json": lambda text: isinstance(json.loads(text), dict),
    "regex": lambda text: re.fullmatch("(abc|cab){3,6}-[0-9]{2}", text) is not None,
    "choice": lambda text: text in ("a cat", "a canary", "a bird"),
    "grammar": lambda text: (
        re.fullmatch("[ad]*c?b*", text) is not None and text.count("b") <= text.count("a")
    ),
    "reasoning": lambda text: (
        re.fullmatch(r"a[^e]*(e[ \n]?(b[a-e]{0,2})?)?|b[a-e]{2}", text) is not None
    ),
    "triggers": lambda text: re.fullmatch("[^a-e]*([a-e][f-j]{2}-(abc)+[0-9])?", text) is not None,
}


@pytest.fixture(scope="module")
def draft_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "draft"
    return write_tiny_model(folder, seed=1, num_layers=1, letters=JSON_LETTERS)


@pytest.fixture(scope="module")
def llm(tiny_json_path: Path) -> LLM:
    return LLM(tiny_json_path, speculative_config=None, num_threads=1)


# Once the grammar is over, the other options of these leave no token to choose.
WITH_OTHER_MASKS = [
    SamplingParams(
        temperature=temperature,
        seed=4,
        max_tokens=30,
        structured_outputs=Fitting(regex="[0-9]{2}-12345"),
        **options,
    )
    for temperature in (0.0, 1.0)
    for options in ({"allowed_token_ids": DIGITS}, {"min_tokens": 20})
]


def params(sampling: str, structure: str, **changes: Any) -> SamplingParams:
    law = {key: value for key, value in SAMPLING[sampling].items() if key != "logit_bias"}
    options = {"seed": 11, "max_tokens": 80, **law, **changes}
    return SamplingParams(structured_outputs=Fitting(**STRUCTURES[structure]), **options)


def tokens(llm: LLM, prompt: str, chosen: SamplingParams) -> tuple[int, ...]:
    return llm.generate(prompt, chosen)[0].outputs[0].token_ids


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("sampling", SAMPLING)
def test_answers_fit(llm: LLM, structure: str, sampling: str) -> None:
    for result in llm.generate(PROMPTS, params(sampling, structure)):
        (output,) = result.outputs
        assert output.finish_reason == "stop" or structure in ENDLESS
        assert FITS[structure](output.text), output.text


@pytest.mark.parametrize("method", METHODS)
def test_speculation_changes_no_token(llm: LLM, draft_path: Path, method: str) -> None:
    """Alone and in one batch, with trees and with chains, beside unconstrained answers."""
    asked = [
        (prompt, params(sampling, structure))
        for prompt in PROMPTS
        for structure in STRUCTURES
        for sampling in SAMPLING
    ] + [(prompt, SamplingParams(seed=3, max_tokens=20)) for prompt in PROMPTS]
    asked += [(prompt, chosen) for prompt in PROMPTS for chosen in WITH_OTHER_MASKS]
    plain = [tokens(llm, *each) for each in asked]
    for shape in ((4, 2), (8, 1)):
        guessing = llm.with_speculation(config(method, draft_path, *shape))
        together = guessing.generate(*map(list, zip(*asked, strict=True)))
        assert [result.outputs[0].token_ids for result in together] == plain
        assert not any(result.outputs[0].stats["drafter_failures"] for result in together)
        assert [tokens(guessing, *each) for each in asked[::5]] == plain[::5]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_each_beside_others_is_itself(tiny_json_path: Path, num_threads: int) -> None:
    """One pass mixes rows that are masked, drawn as they are, and drawn by the host."""
    llm = LLM(tiny_json_path, speculative_config=None, num_threads=num_threads)
    kinds: list[dict[str, Any]] = [
        {"structured_outputs": Fitting(**STRUCTURES["json"])},
        {"structured_outputs": Fitting(**STRUCTURES["regex"]), "top_p": 0.9},
        {"allowed_token_ids": DIGITS},
        {"top_p": 0.8},
        {"presence_penalty": 1.5, "repetition_penalty": 1.2},
        {"min_tokens": 8},
        {"acceptance": "rejection"},
        {"logprobs": 2},
        {},
        {},
    ]
    asked = [
        SamplingParams(temperature=temperature, seed=seed, max_tokens=20, **kind)
        for seed, kind in enumerate(kinds)
        for temperature in (0.0, 0.9)
    ]
    alone = [tokens(llm, PROMPTS[0], chosen) for chosen in asked]
    together = llm.generate([PROMPTS[0]] * len(asked), asked)
    assert [result.outputs[0].token_ids for result in together] == alone


@pytest.mark.parametrize("acceptance", ["rejection", "lenient"])
@pytest.mark.parametrize("method", ["ngram_tables", "draft_model", "merge"])
def test_drawn_guesses_fit_too(llm: LLM, draft_path: Path, method: str, acceptance: str) -> None:
    guessing = llm.with_speculation(config(method, draft_path, 4, 2))
    drafters, num_whole = set[str](), 0
    for structure in STRUCTURES:
        chosen = params("top_p", structure, acceptance=acceptance, n=4)
        for output in guessing.generate(PROMPTS[0], chosen)[0].outputs:
            assert output.finish_reason == "length" or FITS[structure](output.text), output.text
            assert output.stats["drafter_failures"] == 0
            drafters.update(output.stats["drafters"])
            num_whole += output.finish_reason == "stop"
    assert drafters == {method, "grammar"}, "where depths are fixed, both guess"
    assert num_whole > 8


def test_what_is_forced_takes_few_passes(llm: LLM) -> None:
    """The guesses come from the grammar alone."""
    guessing = llm.with_speculation({"method": "random", "adaptive": False})
    wanted = Fitting(choice=("abcabcabcabcabcabc",))
    chosen = SamplingParams(temperature=0, max_tokens=40, structured_outputs=wanted)
    (output,) = guessing.generate("a", chosen)[0].outputs
    assert output.text == "abcabcabcabcabcabc"
    assert output.stats["drafters"]["grammar"]["accepted_tokens"] >= 15
    assert output.stats["target_passes"] <= 4


def test_what_an_answer_cannot_be(llm: LLM) -> None:
    for wanted, error in (
        ({"regex": "(a"}, InvalidGrammar),
        ({"json": {"not": {}}}, InvalidGrammar),
        ({"choice": []}, InvalidOption),
    ):
        with pytest.raises(error):
            llm.generate("a", SamplingParams.from_dict({"structured_outputs": wanted}))


def test_nothing_is_left_to_choose(llm: LLM) -> None:
    """A contradiction that shows only at run time fails that request; others go on."""
    chosen = SamplingParams(structured_outputs=Fitting(regex="[0-9]+"), allowed_token_ids=(0, 1))
    with pytest.raises(RequestFailed, match="every token is masked out"):
        llm.generate("a", chosen)
    assert tokens(llm, "abc", SamplingParams(seed=1, max_tokens=3))


def test_a_drafter_that_needs_a_grammar(llm: LLM) -> None:
    guessing = llm.with_speculation({"method": "suffix"})
    with pytest.raises(UnusableDrafter, match="needs structured_outputs"):
        guessing.generate("a", SamplingParams(), speculation={"drafter": "grammar"})


def test_ends_and_lengths(llm: LLM) -> None:
    """An answer ends with the last token that its grammar allows, or at another of its limits."""
    chosen = SamplingParams(
        temperature=0, max_tokens=30, structured_outputs=Fitting(choice=("abc",))
    )
    (output,) = llm.generate("x", chosen)[0].outputs
    assert (output.text, len(output.token_ids), output.finish_reason) == ("abc", 3, "stop")
    (output,) = llm.generate("x", chosen.with_(ignore_eos=True, min_tokens=20))[0].outputs
    assert (output.text, output.finish_reason) == ("abc", "stop")
    (output,) = llm.generate("x", chosen.with_(max_tokens=2))[0].outputs
    assert (output.text, output.finish_reason) == ("ab", "length")
    (output,) = llm.generate("x", chosen.with_(stop=("b",)))[0].outputs
    assert (output.text, output.stop_reason) == ("a", "b")


def test_answers_to_one_prompt_have_a_grammar_each(llm: LLM) -> None:
    guessing = llm.with_speculation(config("ngram_tables", Path(), 3, 2))
    chosen = params("top_p", "json", n=5)
    several = guessing.generate("abc", chosen)[0].outputs
    assert len({output.token_ids for output in several}) == 5
    assert several[0].token_ids == tokens(llm, "abc", chosen.with_(n=1))
    for output in several:
        json.loads(output.text)


def test_passes_that_began_before_a_trigger_are_not_used(tiny_json_path: Path) -> None:
    """With two threads a pass begins before its own token is known; a trigger makes it void."""
    llm = LLM(tiny_json_path, speculative_config=None, num_threads=2)
    alone = LLM(tiny_json_path, speculative_config=None, kernels="reference")
    num_bound = 0
    for seed in range(12):
        for temperature in (0.0, 1.0):
            wanted = Fitting(**STRUCTURES["triggers"])
            chosen = SamplingParams(
                temperature=temperature, seed=seed, max_tokens=40, structured_outputs=wanted
            )
            prompt = PROMPTS[0] + "abcdefghij"[seed % 10]
            (output,) = llm.generate(prompt, chosen)[0].outputs
            assert output.finish_reason == "length" or FITS["triggers"](output.text), output.text
            assert output.token_ids == tokens(alone, prompt, chosen)
            num_bound += any(letter in output.text for letter in "abcde")
    assert num_bound > 6
