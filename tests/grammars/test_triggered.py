"""A grammar that waits for its trigger, compared with a scan of the whole text as outputs grow and
shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.grammars import Grammars
from forerun.types import Grammar, StructuredOutputsParams
from tests.grammars.words import words

END = words().eos_ids[0]
TEXTS = ("ab0x", "ab1x", "nam0", "nam01")
TRIGGERS = ("ab", "nam")
WANTED: dict[str, Any] = {"regex": "ab[01]x|nam01?", "triggers": TRIGGERS}


def grammar() -> Grammar:
    found = Grammars(words()).of(StructuredOutputsParams(**WANTED))
    assert found is not None
    return found


def spelled(tokens: Sequence[int]) -> str:
    return b"".join(words().token_bytes(token, skip_special=False) for token in tokens).decode()


PIECES = [token for token in range(words().vocab_size) if set(spelled([token])) <= set("abcnmex01")]


def begun(tokens: Sequence[int]) -> str | None:
    """Return the text from the trigger on, or None; the trigger's last token may spell more."""
    for num in range(1, len(tokens) + 1):
        text, num_before = spelled(tokens[:num]), len(spelled(tokens[: num - 1]))
        for at in range(len(text)):
            trigger = next((each for each in TRIGGERS if text.startswith(each, at)), None)
            is_new = trigger is not None and at + len(trigger) > num_before
            if is_new and any(each.startswith(text[at:]) for each in TEXTS):
                return spelled(tokens)[at:]
    return None


@given(st.data())
def test_nothing_is_said_before_a_trigger(data: st.DataObject) -> None:
    one, output = grammar(), list[int]()
    for _ in range(12):
        written = begun(output)
        assert one.binds(output) == (written is not None) == grammar().binds(output)
        more = data.draw(st.lists(st.sampled_from(PIECES), max_size=3))
        assert one.binds(output, more) == (begun([*output, *more]) is not None)
        if written is None:
            assert not one.is_over(output)
            guess = data.draw(st.lists(st.sampled_from(PIECES), max_size=4))
            assert one.num_fitting(output, guess) == num_fitting(output, guess)
            output += guess[: num_fitting(output, guess)]
            continue
        goes_on = {
            token
            for token in PIECES
            if any(each.startswith(written + spelled([token])) for each in TEXTS)
        }
        assert one.is_over(output) == (not goes_on)
        if goes_on:
            bits = np.frombuffer(one.allowed_bits(output), np.uint8)
            allowed = set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())
            expected = goes_on | ({END} if written in TEXTS else set())
            assert allowed == expected or (len(allowed) == 1 and allowed < expected)
        if not goes_on or data.draw(st.booleans()):
            output = output[: data.draw(st.integers(0, len(output)))]
        else:
            output = [*output, data.draw(st.sampled_from(sorted(goes_on)))]


def num_fitting(output: Sequence[int], guess: Sequence[int]) -> int:
    """Return how many guesses come before the first that continues none of the texts."""
    for num in range(1, len(guess) + 1):
        written = begun([*output, *guess[:num]])
        if written is not None and not any(each.startswith(written) for each in TEXTS):
            return num - 1
    return len(guess)


def test_a_token_may_spell_more_than_the_trigger() -> None:
    """ "abc" continues no text, so nothing has begun; an "m" after "na" completes a trigger."""
    abc, na, m = (words().encode(text, add_special=False)[0] for text in ("abc", "na", "m"))
    assert [spelled([token]) for token in (abc, na, m)] == ["abc", "na", "m"]
    one = grammar()
    assert not one.binds([abc, na])
    assert one.binds([abc, na, m])
    assert one.num_fitting([], [abc, na, m, abc]) == 3
    assert not one.binds([abc]), "it goes back as well"
