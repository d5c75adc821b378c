"""Grammars of unknown callers are first tried in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from threading import Timer
from typing import Any

import pytest

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars import Grammars
from forerun.types import StructuredOutputsParams
from tests.grammars.words import words

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def chain(num: int) -> dict[str, Any]:
    """Return a schema of `num` chained references, for which llguidance recurses `num` deep."""
    links = {
        f"d{idx}": {"anyOf": [{"$ref": f"#/$defs/d{idx + 1}"}, {"type": "null"}]}
        for idx in range(num)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{num}": {"type": "integer"}}}


def rules(num: int) -> str:
    chained = [f'r{idx}: "a" r{idx + 1}' for idx in range(num)]
    return "\n".join(["start: r0", *chained, f'r{num}: "b"'])


HOSTILE: dict[str, dict[str, Any]] = {
    "a stack that overflows": {"json": chain(1400)},
    "a stack that overflows in Lark": {"grammar": rules(4000)},
    "states without end": {
        "json": {"allOf": [{"type": "integer", "multipleOf": num} for num in (9001, 9007, 9011)]}
    },
    "a thousand times a thousand": {"regex": "(a{1000}){1000}"},
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    found = Grammars(words())
    found.try_first()
    return found


def process_of(grammars: Grammars) -> subprocess.Popen[str]:
    assert grammars._trial is not None
    assert grammars._trial._process is not None
    return grammars._trial._process._process


@pytest.mark.parametrize("wanted", HOSTILE.values(), ids=list(HOSTILE))
def test_what_is_too_much_is_refused_and_the_next_is_not(
    grammars: Grammars, wanted: dict[str, Any]
) -> None:
    with pytest.raises(GrammarTooMuch, match="cannot be used"):
        grammars.of(StructuredOutputsParams(**wanted))
    with pytest.raises(GrammarTooMuch):
        grammars.check(StructuredOutputsParams(**wanted))
    found = grammars.of(StructuredOutputsParams(json=OBJECT))
    assert found is not None
    assert found.num_fitting([], words().encode('{"a', add_special=False)) > 0


def test_complaints_are_those_of_a_grammar_that_nobody_tried(grammars: Grammars) -> None:
    several: list[dict[str, Any]] = [{"regex": "("}, {"json": {"not": {}}}, {"grammar": "start: a"}]
    for wanted in several:
        said = []
        for each in (grammars, Grammars(words())):
            with pytest.raises(InvalidGrammar) as error:
                each.of(StructuredOutputsParams(**wanted))
            said.append(str(error.value))
        assert said[0] == said[1]


def test_a_trial_that_somebody_ends_begins_anew(grammars: Grammars) -> None:
    grammars.check(StructuredOutputsParams(regex="a"))
    process = process_of(grammars)
    os.kill(process.pid, signal.SIGTERM)
    process.wait()
    grammars.check(StructuredOutputsParams(regex="b"))
    assert process_of(grammars).pid != process.pid


def test_a_dropped_trial_is_no_process_any_more() -> None:
    found = Grammars(words())
    found.try_first()
    found.check(StructuredOutputsParams(regex="a"))
    process = process_of(found)
    assert process.poll() is None
    del found
    assert process.wait(10) == -signal.SIGKILL


def test_nobody_waits_for_what_is_tried_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the interrupt the trial would take an hour."""
    for name in ("_SECONDS", "_PATIENCE"):
        monkeypatch.setattr(f"forerun.grammars.trial.{name}", 3600.0)
    found = Grammars(words())
    found.try_first()
    found.check(StructuredOutputsParams(json=OBJECT))
    for _ in range(2):
        Timer(0.2, found.interrupt).start()
        with pytest.raises(GrammarTooMuch):
            found.check(StructuredOutputsParams(**HOSTILE["states without end"]))
    for _ in range(10):  # no trial runs
        found.interrupt()
        found.check(StructuredOutputsParams(json=OBJECT))


def test_an_interrupted_caller_leaves_no_answer_for_the_next(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammars.check(StructuredOutputsParams(regex="a"))
    process = process_of(grammars)
    assert process.stdout is not None
    close_it = process.stdout.close

    class Interrupted:
        close = staticmethod(close_it)

        def readline(self) -> str:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(process, "stdout", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            grammars.check(StructuredOutputsParams(regex="("))
    grammars.check(StructuredOutputsParams(regex="a"))


def test_a_trial_that_cannot_begin_is_no_fault_of_the_grammar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forerun.grammars.trial._SCRIPT", "/nowhere.py")
    found = Grammars(words())
    found.try_first()
    with pytest.raises(OSError, match="does not begin"):
        found.check(StructuredOutputsParams(regex="a"))


def test_few_are_kept_that_took_long_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.grammars.grammars._MAX_SECONDS", 0.0)
    found = Grammars(words())
    for _ in range(2):
        assert found.of(StructuredOutputsParams(regex="a")) is not None
    assert not found._kept


def test_grammars_have_so_many_rules_and_characters() -> None:
    many = "\n".join(["root ::= r0", *(f'r{idx} ::= "a"' for idx in range(1000))])
    for wanted, said in (
        ({"grammar": many}, "1001 rules, and 1000 are allowed"),
        ({"regex": "a" * 140_000}, "140000 characters, and 131072 are allowed"),
        ({"grammar": many.replace("\n", "\r")}, "1001 rules, and 1000 are allowed"),
        ({"grammar": many[:1000] + "\n#" + 120_000 * "."}, "characters, and"),
        ({"json": {}, "whitespace_pattern": "a" * 140_000}, "140002 characters"),
    ):
        with pytest.raises(InvalidGrammar, match=said):
            Grammars(words()).of(StructuredOutputsParams(**wanted))
