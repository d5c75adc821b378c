"""Cues in tokens that spell any bytes, compared with a scan of the whole text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from forerun.grammars.cues import LEAD, Cues

PIECES = [b"", b"a", b"b", b"{", b"ab", b"b{a", b"\n", b"\n\n", b"a\nb", b"\xc3", b"\xa9"]
TEXTS = st.lists(st.text("ab{\né", min_size=1, max_size=5), min_size=1, max_size=5)
TOKENS = st.lists(st.integers(0, len(PIECES) - 1), max_size=6)


def spelled(tokens: Sequence[int]) -> bytes:
    return b"".join(PIECES[token] for token in tokens)


def begin(text: bytes) -> Sequence[int] | None:
    """Return a cue's text as tokens, or None for the texts that the grammar does not allow."""
    return None if sum(text) % 3 == 0 else list(text)


def first_in(texts: Sequence[str], tokens: Sequence[int]) -> tuple[int, list[int]] | None:
    for num in range(1, len(tokens) + 1):
        text = LEAD.encode() + spelled(tokens[:num])
        num_before = len(LEAD) + len(spelled(tokens[: num - 1]))
        for start in range(len(text)):
            ends = [
                start + len(one.encode()) for one in texts if text.startswith(one.encode(), start)
            ]
            found = begin(text[start:]) if any(end > num_before for end in ends) else None
            if found is not None:
                return num, list(found)
    return None


@given(TEXTS, st.data())
def test_the_first_that_fits_is_found(texts: list[str], data: st.DataObject) -> None:
    """In an output that grows, in guesses after it, and in other outputs."""
    cues, output = Cues(texts, PIECES.__getitem__, begin), list[int]()
    for _ in range(8):
        if data.draw(st.booleans()):
            output += data.draw(TOKENS)
        else:
            output = output[: data.draw(st.integers(0, len(output)))] + data.draw(TOKENS)
        more = data.draw(TOKENS)
        cue = cues.first_in(output, more)
        found = None if cue is None else (cue.num, list(cue.tokens))
        assert found == first_in(texts, [*output, *more])


def test_one_that_ends_in_a_guess_may_have_begun_long_before() -> None:
    text, a, b = "ababab", PIECES.index(b"a"), PIECES.index(b"b")
    cues = Cues([text], PIECES.__getitem__, lambda _text: [])
    assert cues.first_in([a, b, a, b, a], [b]) == (6, [])
    assert cues.first_in([b, a, b, a, b, a], [b]) == (7, [])
    assert cues.first_in([a, b, a, b, a], [a]) is None
