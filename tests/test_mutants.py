"""The mutation tool: every mutant is one change, and hand-written mutants still fit the code."""

from __future__ import annotations

import ast
import json
from textwrap import dedent

import pytest
from tools.mutants import FOLDER, ROOT, TARGETS, files_of, place_of, relevant_tests
from tools.mutation.operators import mutants_of
from tools.mutation.table import written_table

PLANTED = json.loads((FOLDER / "planted.json").read_text())


def changes(source: str) -> set[tuple[str, str]]:
    """Return (old, new) of every mutant."""
    return {(one.old, one.new) for one in mutants_of("x.py", dedent(source))}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("y = a < b", {("a < b", "((a) <= (b))"), ("a < b", "((a) >= (b))")}),
        ("y = 0 <= a < b", {("0 <= a < b", "((0) <= (a) <= (b))"), ("0", "1")}),
        ("y = a in b", {("a in b", "((a) not in (b))")}),
        ("y = a + b", {("a + b", "((a) - (b))")}),
        ("y = a[b:]", {("b", "(b) + 1")}),
        ("y = 0.5", {("0.5", "1.0")}),
        ("y = True", {("True", "False")}),
        ("y = not a", {("not a", "(a)")}),
        ("y = a and b", {("a and b", "((a) or (b))")}),
        ("y = f(a, b)", {("f(a, b)", "f(b, a)")}),
        ("y = np.maximum(a, b)", {("np.maximum", "np.minimum")}),
        ("y = a if b else c", {("a if b else c", "((c) if (b) else (a))")}),
        ("y = [a for a in b if a]", {("a", "True")}),
        ("if a:\n    f()", {("a", "(not (a))"), ("f()", "pass")}),
        ("def f():\n    return a", {("return a", "return None")}),
        ("a.b = c", {("a.b = c", "pass")}),
        ("a += 1", {("a += 1", "pass"), ("1", "2")}),
        ("raise E(1)", {("raise E(1)", "pass")}),
        ("assert a", {("assert a", "pass")}),
    ],
)
def test_operators(source: str, wanted: set[tuple[str, str]]) -> None:
    assert wanted <= changes(source)


@pytest.mark.parametrize(
    "source",
    [
        "from a import b",
        "def f(x: Literal[1] = y) -> Literal[2]: ...",
        "Words = Any | 1",
        "x: Literal[1]",
        '"""0"""',
        "y = zip(strict=True)",
    ],
)
def test_what_never_runs_is_left_alone(source: str) -> None:
    assert not changes(source)


def test_every_mutant_is_another_program() -> None:
    for file in files_of("src/forerun/verify/**/*.py"):
        source = file.read_bytes()
        found = mutants_of(str(file), source.decode())
        programs = {one.applied(source) for one in found}
        assert len(programs) == len(found) > 0
        before = ast.dump(ast.parse(source))
        for program in programs:
            assert ast.dump(ast.parse(program)) != before


@pytest.mark.parametrize("pattern", TARGETS)
def test_what_is_mutated_is_there_and_so_are_its_tests(pattern: str) -> None:
    assert files_of(pattern)
    assert all((ROOT / test.split("::")[0]).exists() for test in TARGETS[pattern])


@pytest.mark.parametrize("one", PLANTED, ids=lambda one: one["name"])
def test_a_mistake_planted_by_hand_has_its_place_and_its_tests(one: dict[str, str]) -> None:
    """If this fails because code was rewritten, adapt the mutant in tools/mutation/planted.json."""
    path = place_of(one)
    changed = (ROOT / path).read_text().replace(one["old"], one["new"])
    ast.parse(changed)
    assert all((ROOT / test.split("::")[0]).exists() for test in relevant_tests(path))


def test_the_table_asks_for_a_reason_and_for_enough_that_die() -> None:
    dead = {"path": "a", "line": 1, "code": "x", "operator": "o", "new": "y", "killer": "t"}
    alive = {**dead, "code": "z", "killer": None}
    why = [{"code": "z", "new": "y", "why": "because"}]
    many = {str(idx): dead for idx in range(19)}
    assert written_table({**many, "one": alive}, why, 20, 0)[1]
    assert not written_table({**many, "one": alive}, [], 20, 0)[1]
    assert not written_table({**many, "one": alive, "two": alive}, why, 20, 0)[1]
    assert "because" in written_table({**many, "one": alive}, why, 20, 0)[0]
