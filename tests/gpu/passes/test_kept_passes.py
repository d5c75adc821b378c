"""Which recorded pass is large enough to run another."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from forerun.kernels.cuda.passes.kept import KeptPasses, Key

BODY = Mock()
SLOTS = 1 << 14


def key(num_tokens: int, num_wanted: int, num_splits: int = 1, body: Mock = BODY) -> Key:
    return body, num_tokens, num_wanted, num_splits, SLOTS


def kept(*keys: Key) -> KeptPasses:
    passes = KeptPasses()
    passes.graphs.update((one, Mock()) for one in keys)
    return passes


def test_the_smallest_with_room_is_taken() -> None:
    long = key(8, 8, 8), key(1, 1, 8)
    passes = kept(key(8, 8), key(16, 16), key(96, 1), key(128, 1), *long)
    for asked, due in (
        (key(3, 3), key(8, 8)),
        (key(8, 8), key(8, 8)),
        (key(10, 10), key(16, 16)),
        (key(70, 1), key(96, 1)),
        (key(64, 0), key(96, 1)),
        (key(5, 5, 2), key(8, 8, 8)),  # splits that are empty take no time
        (key(1, 1, 4), key(1, 1, 8)),
    ):
        assert passes.room_for(asked) == due


@pytest.mark.parametrize(
    "asked",
    [
        key(1, 1),  # a plain one has a pass of its own
        key(20, 20),  # too large
        key(40, 1),  # more than twice as many tokens would run
        key(8, 8, num_splits=2),
        key(8, 8, body=Mock()),
    ],
)
def test_where_none_has_room_it_is_recorded(asked: Key) -> None:
    assert kept(key(8, 8), key(16, 16), key(96, 1)).room_for(asked) == asked


@pytest.mark.parametrize(("num", "often"), [(6, 257), (14, 33)])
def test_one_that_comes_often_is_recorded(num: int, often: int) -> None:
    """Recording a pass takes 200 times as long as one use of it saves."""
    passes, asked = kept(key(8, 8), key(16, 16)), key(num, num)
    found = [passes.room_for(asked) for _ in range(often)]
    assert asked not in found[:-1]
    assert found[-1] == asked
