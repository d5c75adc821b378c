"""Checks that a draft model has the target's tokenizer: the same ids for the same tokens."""

from __future__ import annotations

from hashlib import sha256

from forerun.errors import TokenizerMismatch
from forerun.models.text.tokenizer import Tokenizer


def check_compatible(target: Tokenizer, draft: Tokenizer) -> None:
    """Raise `TokenizerMismatch` at the first difference that matters.

    Tokens must agree id by id; padding, which only fills up a vocabulary, counts as absent.
    Special tokens must be special in both. One model may list fewer EOS ids than the other (a GGUF
    file names one where Hugging Face lists several).
    """
    _check_tokens(target, draft)
    _check_special(target, draft)
    _check_ends(target, draft)


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """Return a hash that is equal if ids are the same tokens; padding at the end does not count."""
    tokens = [_token(tokenizer, token_id) for token_id in range(tokenizer.vocab_size)]
    while tokens and tokens[-1] is None:
        tokens.pop()
    return sha256("\0".join(token or "" for token in tokens).encode()).hexdigest()


def _check_tokens(target: Tokenizer, draft: Tokenizer) -> None:
    for token_id in range(max(target.vocab_size, draft.vocab_size)):
        ours, theirs = _token(target, token_id), _token(draft, token_id)
        if ours == theirs:
            continue
        if ours is None or theirs is None:
            side = "draft" if ours is None else "target"
            raise _mismatch(f"token {token_id} ({ours or theirs!r}) exists only in the {side}")
        raise _mismatch(f"token {token_id} is {ours!r} in the target, {theirs!r} in the draft")


def _check_special(target: Tokenizer, draft: Tokenizer) -> None:
    for token_id in sorted(target.special_ids ^ draft.special_ids):
        if _token(target, token_id) is not None:
            side = "target" if token_id in target.special_ids else "draft"
            name = target.token(token_id)
            raise _mismatch(f"token {token_id} ({name!r}) is special only in the {side}")


def _check_ends(target: Tokenizer, draft: Tokenizer) -> None:
    ours, theirs = set(target.eos_ids), set(draft.eos_ids)
    if not (ours <= theirs or theirs <= ours):
        listed = f"{sorted(ours)} in the target, {sorted(theirs)} in the draft"
        raise _mismatch(f"the EOS ids are {listed}")


def _token(tokenizer: Tokenizer, token_id: int) -> str | None:
    """Return the token, None for padding and ids beyond the vocabulary."""
    if token_id >= tokenizer.vocab_size or tokenizer.is_padding(token_id):
        return None
    return tokenizer.token(token_id)


def _mismatch(difference: str) -> TokenizerMismatch:
    return TokenizerMismatch(f"{difference}; use a draft model of the target's family.")
