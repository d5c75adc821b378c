"""Texts in a compressed file, so that a later call need not have them written again."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forerun.errors import InvalidOption
from forerun.files import write_whole
from forerun.training.texts import Text


def check_place(path: Path) -> None:
    """Raise if texts cannot be written to `path`; to be called before the first is generated."""
    folder = next(each for each in path.absolute().parents if each.exists())
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidOption(f"texts cannot be written to {path}; choose another file.")


def save_texts(path: Path, texts: Sequence[Text]) -> None:
    """Write all texts or nothing, to exactly `path` (numpy would add a suffix)."""
    tokens = np.concatenate([np.array(text.tokens) for text in texts])
    narrow = np.uint16 if tokens.max() < 1 << 16 else np.uint32
    whole = io.BytesIO()
    np.savez_compressed(
        whole,
        tokens=tokens.astype(narrow),
        lengths=np.array([len(text.tokens) for text in texts], np.int32),
        answers=np.array([text.answer for text in texts], np.int32),
    )
    write_whole(path, whole.getvalue())


def load_texts(path: Path, vocab_size: int) -> list[Text]:
    """Read texts; a file that a target of this vocabulary cannot have written is rejected."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            tokens, lengths, answers = (found[name] for name in ("tokens", "lengths", "answers"))
            firsts = np.cumsum(lengths) - lengths
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidOption(f"cannot read texts of {path} ({error}); write them again.") from None
    is_whole = lengths.min(initial=1) > 0 and lengths.sum() == len(tokens)
    if not is_whole or len(answers) != len(lengths) or tokens.max(initial=0) >= vocab_size:
        raise InvalidOption(f"{path} holds no texts of this target; write them again.")
    return [
        Text(tokens[first : first + num].tolist(), int(answer))
        for first, num, answer in zip(firsts, lengths, answers, strict=True)
    ]
