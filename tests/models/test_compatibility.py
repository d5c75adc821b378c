"""Which draft vocabularies pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.errors import TokenizerMismatch
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.text.compatibility import check_compatible
from forerun.models.text.tokenizer import Tokenizer
from tests.models.small_vocabularies import byte_level_metadata, sentencepiece_metadata


def _tokenizer(**changes: Any) -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata(**changes))


def _swapped(first: int, second: int) -> list[str]:
    tokens: list[str] = list(byte_level_metadata()["tokenizer.ggml.tokens"])
    tokens[first], tokens[second] = tokens[second], tokens[first]
    return tokens


def _kinds(token_id: int, kind: int) -> Any:
    kinds = np.array(byte_level_metadata()["tokenizer.ggml.token_type"])
    kinds[token_id] = kind
    return kinds


def test_equal_vocabularies_pass() -> None:
    check_compatible(_tokenizer(), _tokenizer())


@pytest.mark.parametrize(("ours", "theirs"), [(0, 9), (9, 0), (3, 9)])
def test_padding_is_not_a_mismatch(ours: int, theirs: int) -> None:
    check_compatible(_tokenizer(num_padding=ours), _tokenizer(num_padding=theirs))


def test_a_listed_subset_of_end_ids_passes() -> None:
    check_compatible(_tokenizer(eot_token_id=259), _tokenizer())


def test_end_ids_that_only_one_lists_on_either_side_are_named() -> None:
    listed = r"EOS ids are \[258, 259\] in the target, \[257, 258\] in the draft"
    with pytest.raises(TokenizerMismatch, match=listed):
        check_compatible(_tokenizer(eot_token_id=259), _tokenizer(eot_token_id=257))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"tokens": _swapped(70, 71)}, "token 70 is 'F' in the target, 'G' in the draft"),
        (
            {"token_type": _kinds(259, 4)},
            r"token 259 \('<\|turn\|>'\) is special only in the target",
        ),
    ],
)
def test_the_first_difference_is_named(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(TokenizerMismatch, match=names):
        check_compatible(_tokenizer(), _tokenizer(**changes))


def test_a_longer_vocabulary_of_real_tokens_is_refused() -> None:
    longer = byte_level_metadata(num_padding=2)
    longer["tokenizer.ggml.tokens"][-1] = "real"
    longer["tokenizer.ggml.token_type"][-1] = 1
    with pytest.raises(TokenizerMismatch, match=r"token 261 \('real'\) exists only in the draft"):
        check_compatible(_tokenizer(), tokenizer_from_gguf(longer))


def test_other_families_are_refused() -> None:
    with pytest.raises(TokenizerMismatch, match="token 0"):
        check_compatible(_tokenizer(), tokenizer_from_gguf(sentencepiece_metadata()))
