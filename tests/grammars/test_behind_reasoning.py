"""A grammar for the answer after reasoning, compared with a scan of the whole text as outputs grow
and shrink."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidOption
from forerun.grammars import Grammars
from forerun.grammars.behind_reasoning import BehindReasoning
from forerun.types import Grammar, StructuredOutputsParams
from tests.grammars.words import words

END = words().eos_ids[0]
TEXTS = ("0x", "1x1", "c", "c1", "n1", "na")  # some begin as the first mark does
OPENS, CLOSES = "nam0", "ab"
FIRST = words().encode(OPENS, add_special=False)
WANTED: dict[str, Any] = {"regex": "0x|1x1|c1?|n1|na"}


def grammar(opens: str = OPENS, **more: Any) -> Grammar:
    found = Grammars(words()).of(
        StructuredOutputsParams(**{**WANTED, "reasoning": (opens, CLOSES), **more})
    )
    assert found is not None
    return found


def spelled(tokens: Sequence[int]) -> str:
    return b"".join(words().token_bytes(token, skip_special=False) for token in tokens).decode()


PIECES = [t for t in range(words().vocab_size) if set(spelled([t])) <= set("abcnmex01 \n")]
SPACES = [token for token in PIECES if spelled([token]).isspace()]


def begins_one(text: str) -> bool:
    return any(each.startswith(text) for each in TEXTS)


def num_reasoned(tokens: Sequence[int], opens: str) -> int | None:
    """Return the number of tokens up to the end of the first mark, or None without a mark."""
    for num in range(len(tokens) + 1):
        text = spelled(tokens[:num]).lstrip()
        if text.startswith(opens):
            return num
        if not opens.startswith(text):
            return None
    return None


def answered(tokens: Sequence[int], opens: str) -> str | None:
    """Return what was written of one of the texts, or None while the reasoning goes on.

    Spaces that the grammar skips are left out; other spaces are text.
    """
    if num_reasoned(tokens, opens) is None:
        return spelled(tokens)
    for num in range(1, len(tokens) + 1):
        before, text = spelled(tokens[: num - 1]), spelled(tokens[:num])
        for at in range(len(text)):
            is_new = text.startswith(CLOSES, at) and at + len(CLOSES) > len(before)
            rest = text[at + len(CLOSES) :].lstrip() if is_new else "none"
            if is_new and begins_one(rest):
                behind = list(tokens[num:])
                if not rest and behind and behind[0] in SPACES:
                    del behind[0]
                return rest + spelled(behind)
    return None


def is_good(tokens: Sequence[int], opens: str) -> bool:
    """Whether every token was allowed in its place."""
    if num_reasoned(tokens, opens) is not None:
        written = answered(tokens, opens)
        return written is None or begins_one(written)
    return list(tokens) == FIRST[: len(tokens)] or begins_one(spelled(tokens))


@pytest.mark.parametrize("opens", [OPENS, ""])
@given(data=st.data())
def test_what_comes_behind_reasoning_or_instead_of_it(opens: str, data: st.DataObject) -> None:
    one, output = grammar(opens), list[int]()
    for _ in range(14):
        written = answered(output, opens)
        assert one.binds(output) == (written is not None) == grammar(opens).binds(output)
        more = data.draw(st.lists(st.sampled_from(PIECES), max_size=3))
        if all(is_good([*output, *more[:num]], opens) for num in range(len(more) + 1)):
            assert one.binds(output, more) == (answered([*output, *more], opens) is not None)
            assert one.num_fitting(output, more) == len(more)
        else:
            check_what_fits(one, output, more, opens)
        good = [token for token in PIECES if is_good([*output, token], opens)]
        if opens and output == FIRST[: len(output)] and len(output) < len(FIRST):
            good = [t for t in good if num_reasoned([*output, t], opens) is None or t in FIRST]
        if written is not None:
            bits = np.frombuffer(one.allowed_bits(output), np.uint8)
            allowed = set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())
            # Of forced text, llguidance allows one spelling only.
            expected = set(good) | ({END} if written in TEXTS else set())
            assert allowed <= expected
            assert bool(allowed) == bool(expected)
            assert (END in allowed) == (END in expected)
            assert one.is_over(output) == (not good)
            good = sorted(allowed - {END})
        if not good or data.draw(st.integers(0, 4)) == 0:
            output = output[: data.draw(st.integers(0, len(output)))]
        elif data.draw(st.booleans()):
            output = [*output, data.draw(st.sampled_from(good))]
        else:
            output.append(data.draw(st.sampled_from(good)))


def check_what_fits(one: Grammar, output: Sequence[int], more: Sequence[int], opens: str) -> None:
    """Check that `num_fitting` counts exactly the tokens up to the first that is not good."""
    num = one.num_fitting(output, more)
    num_good = next(n for n in range(len(more)) if not is_good([*output, *more[: n + 1]], opens))
    if num != num_good:  # the first mark in a spelling that the tokenizer would not choose
        assert num > num_good
        assert num_reasoned(output, opens) is None
        assert num_reasoned([*output, *more], opens) is not None


def allowed(one: Grammar, output: Sequence[int]) -> list[int]:
    bits = np.frombuffer(one.allowed_bits(output), np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
    return found


def test_an_answer_begins_with_the_mark_as_the_tokenizer_spells_it_or_with_what_fits() -> None:
    one = grammar()
    na, m, zero = FIRST
    assert {na, *words().encode("01c", add_special=False)} <= set(allowed(one, []))
    assert {m, END} == set(allowed(one, [na]))
    assert not one.is_over([na])
    assert allowed(one, [na, m]) == [zero]
    assert not one.binds([na, m, zero])
    n, a = words().encode("nxa", add_special=False)[::2]
    assert one.is_over([n, a]), "spelled in other tokens it is none"


def test_one_space_may_stand_behind() -> None:
    one, closed = grammar(), [*FIRST, *words().encode("x" + CLOSES, add_special=False)]
    assert set(SPACES) < set(allowed(one, closed))
    first = allowed(one, [*closed, SPACES[0]])
    assert not set(SPACES).intersection(first)
    assert [*first, *SPACES] == allowed(one, closed) or set(first) < set(allowed(one, closed))
    assert one.num_fitting(closed, [SPACES[0], *words().encode("0x", add_special=False)]) == 3
    assert one.num_fitting(closed, [SPACES[0], SPACES[0]]) == 1


def test_triggers_within_reasoning_are_words() -> None:
    one = grammar(triggers=("0", "1"))
    inside = [*FIRST, *words().encode("0y1", add_special=False)]
    assert not one.binds(inside)
    behind = [*inside, *words().encode(CLOSES + "yy", add_special=False)]
    assert not one.binds(behind)
    trigger, rest = (words().encode(text, add_special=False) for text in ("0", "x"))
    assert one.binds(behind, trigger)
    assert allowed(one, [*behind, *trigger]) == rest


SPELLED = ("<t>", "</t>", "</t>\n{", "</t>x", "{", "}", "\n", "a")
OPEN, CLOSE, CLOSE_AND_BEGIN, CLOSE_AND_X, BEGIN, FINISH, LINE, A = range(len(SPELLED))


class Braces:
    """Allows {}: from the first token on or, if it `waits`, from the first brace on."""

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return not self._waits or BEGIN in (*output, *more)

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        return bytes([1 << (FINISH if BEGIN in (*output, *more) else BEGIN)])

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return FINISH in (*output, *more)

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        text = [*output, *tokens]
        if self._waits and BEGIN not in text:
            return len(tokens)
        wanted = (BEGIN, FINISH)
        pairs = zip(text, wanted, strict=False)
        num = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(text), 2))
        return max(0, num - len(output))


def braces(*, waits: bool = False) -> BehindReasoning:
    def read(text: bytes) -> list[int]:
        """Tokenize greedily, the longest piece first."""
        found, rest = list[int](), text.decode()
        while rest:
            pieces = [p for p in SPELLED if rest.startswith(p)]
            found.append(SPELLED.index(max(pieces, key=len)) if pieces else A)
            rest = rest[len(max(pieces, key=len, default="a")) :]
        return found

    spell = [piece.encode() for piece in SPELLED].__getitem__
    return BehindReasoning(Braces(waits=waits), ("<t>", "</t>"), spell, read)


def test_a_token_may_go_on_behind_the_second_mark() -> None:
    one = braces()
    assert one.binds([OPEN, A, CLOSE_AND_BEGIN])
    assert allowed(one, [OPEN, A, CLOSE_AND_BEGIN]) == [FINISH], "space is not read"
    assert one.num_fitting([OPEN, A], [CLOSE_AND_BEGIN, FINISH, A]) == 2
    assert one.is_over([OPEN, CLOSE_AND_BEGIN, FINISH])
    assert not one.binds([OPEN, A, CLOSE_AND_X]), "what does not fit ends nothing"
    assert one.binds([OPEN, A, CLOSE_AND_X, CLOSE])


def test_space_before_the_first_mark() -> None:
    """White space may precede the first mark if the grammar waits."""
    one = braces(waits=True)
    assert not one.binds([LINE, OPEN, BEGIN])
    assert not one.binds([LINE, OPEN, BEGIN, CLOSE, LINE])
    assert one.binds([LINE, OPEN, BEGIN, CLOSE, LINE, BEGIN])
    assert allowed(one, [LINE, OPEN, A, CLOSE, BEGIN]) == [FINISH]
    assert one.binds([LINE, BEGIN])


@pytest.mark.parametrize("marks", [("a",), ("a", ""), "ab", ("a", 1), ("a", "\ud800"), 3])
def test_marks_that_are_none(marks: Any) -> None:
    with pytest.raises(InvalidOption, match=r"structured_outputs\.reasoning"):
        StructuredOutputsParams(**WANTED, reasoning=marks)


def test_marks_are_kept_as_they_are() -> None:
    kept = StructuredOutputsParams(**WANTED, reasoning=["", CLOSES])  # type: ignore[arg-type]
    assert kept.reasoning == ("", CLOSES)
    assert all(one != other for one, other in pairwise([kept, StructuredOutputsParams(**WANTED)]))
