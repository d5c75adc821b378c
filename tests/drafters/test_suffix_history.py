"""Earlier outputs: kept apart by caller, and never more than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forerun.drafters.suffix_history import OutputHistory

OUTPUTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 5), max_size=30)), max_size=30
)


def longest(history: OutputHistory, caller: str, tail: list[int]) -> int:
    return max((one.find_tail(tail).length for one in history.of(caller)), default=0)


@given(OUTPUTS, st.integers(0, 50))
def test_it_never_holds_more_than_allowed(
    outputs: list[tuple[str, list[int]]], max_tokens: int
) -> None:
    history = OutputHistory(max_tokens, max_match=4)
    for caller, output in outputs:
        history.add(caller, output)
        assert len(history) <= max_tokens


@given(OUTPUTS)
def test_a_caller_finds_only_what_is_its_own(outputs: list[tuple[str, list[int]]]) -> None:
    everyone, alone = OutputHistory(1 << 12, 4), OutputHistory(1 << 12, 4)
    for caller, output in outputs:
        everyone.add(caller, output)
        if caller == "a":
            alone.add(caller, output)
    for tail in ([0], [1, 2], [3, 4, 5], [5, 5, 5, 5]):
        assert longest(everyone, "a", tail) == longest(alone, "a", tail)


def test_the_oldest_outputs_go_first() -> None:
    history = OutputHistory(max_tokens=20, max_match=4)
    for first in (10, 20, 30):
        history.add("a", range(first, first + 8))
    assert longest(history, "a", [12, 13]) == 0
    assert longest(history, "a", [22, 23]) == 2
    assert longest(history, "a", [32, 33]) == 2


def test_a_long_output_keeps_its_end() -> None:
    history = OutputHistory(max_tokens=20, max_match=4)
    history.add("a", range(100))
    assert longest(history, "a", [98, 99]) == 2
    assert longest(history, "a", [1, 2]) == 0


def test_no_match_spans_two_outputs() -> None:
    history = OutputHistory(max_tokens=100, max_match=4)
    history.add("a", [1, 2])
    history.add("a", [3, 4])
    assert longest(history, "a", [1, 2, 3, 4]) == 2
