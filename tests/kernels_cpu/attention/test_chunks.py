"""How the tokens of a pass are shared among threads in attention."""

from __future__ import annotations

from itertools import product

import pytest

from forerun.kernels.cpu.attention.attend import tokens_per_chunk
from forerun.kernels.cpu.attention.query_tiles import MAX_QUERIES

_SMOLLM2 = 9, 3  # heads, key/value heads


def _num_chunks(num_tokens: int, num_threads: int, *, is_shared: bool) -> int:
    per_chunk = tokens_per_chunk(
        num_tokens, *_SMOLLM2, num_threads, is_shared=is_shared, is_narrow=False
    )
    return 3 * -(-num_tokens // per_chunk)


@pytest.mark.parametrize("num_tokens", [2, 3, 5, 8, 16])
def test_tokens_of_one_request_are_read_for_once_by_each_thread(num_tokens: int) -> None:
    """Eight threads run six chunks at once; a ninth chunk would wait and read all keys again."""
    assert _num_chunks(num_tokens, 8, is_shared=True) == 6


def test_eight_tokens_leave_neither_of_two_threads_waiting() -> None:
    """Three chunks of eight tokens would keep one thread busy for twice as long as the other."""
    assert _num_chunks(8, 2, is_shared=True) == 6
    assert _num_chunks(5, 2, is_shared=True) == 3  # reading all keys again would take longer


_NARROW = {1: 1, 2: 1, 3: 1, 4: 2, 5: 1, 6: 3, 8: 4, 16: 8, 17: 3, 255: 8, 509: 8}


@pytest.mark.parametrize(("num_tokens", "per_chunk"), _NARROW.items())
def test_narrow_vectors_leave_no_thread_waiting(num_tokens: int, per_chunk: int) -> None:
    """Two threads, three key/value heads: reading again costs little where vectors are narrow."""
    found = tokens_per_chunk(num_tokens, *_SMOLLM2, 2, is_shared=True, is_narrow=True)
    assert found == per_chunk


def test_tokens_of_several_requests_are_spread_over_all_threads() -> None:
    assert _num_chunks(5, 8, is_shared=False) == 15
    assert _num_chunks(64, 8, is_shared=False) >= 16


def test_a_chunk_never_has_more_queries_than_fit() -> None:
    heads = [(9, 3), (12, 2), (32, 8), (64, 1), (4, 4)]
    for (num_heads, num_kv), num_tokens, num_threads in product(heads, (1, 7, 512), (1, 2, 8)):
        for is_shared, is_narrow in product((False, True), repeat=2):
            args = num_tokens, num_heads, num_kv, num_threads
            per_chunk = tokens_per_chunk(*args, is_shared=is_shared, is_narrow=is_narrow)
            assert 1 <= per_chunk <= num_tokens
            assert per_chunk == 1 or per_chunk * (num_heads // num_kv) <= MAX_QUERIES
