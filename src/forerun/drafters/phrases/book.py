"""A table of contexts of one to four tokens: which token follows them, and how often.

Of a context only a hash is stored. The hash's first bits select a bucket; within it, twelve more
bits, the mark, identify the entry. About one context in a thousand is mistaken for another, which
costs a wrong guess and nothing else.

    sizes    uint8  [buckets]   entries of each bucket
    marks    uint16 [entries]   twelve bits of the hash, four of the chance
    tokens   uint16 [entries]   the follower; uint32 if the vocabulary is larger
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from forerun.drafters.phrases.hashing import context_hashes, many_marks, mark
from forerun.errors import InvalidOption, InvalidWeights
from forerun.files import write_whole

FILE: Final = "phrases.safetensors"
NUM_CHANCES: Final = 16  # steps that chances are rounded to
_FORMAT: Final = "forerun-phrases-1"
_SHIPPED: Final = Path(__file__).with_name("weights")
_USUAL_SIZE: Final = 4  # entries of a bucket
_KEYS: Final = ("format", "target_fingerprint", "tokenizer_hash", "vocab_size")


@dataclass(frozen=True)
class Owner:
    """The target that a book was counted for."""

    target_fingerprint: str
    tokenizer_hash: str
    vocab_size: int


@dataclass(frozen=True, eq=False)
class PhraseBook:
    owner: Owner
    sizes: npt.NDArray[np.uint8]
    marks: npt.NDArray[np.uint16]
    tokens: npt.NDArray[Any]

    @classmethod
    def of(
        cls,
        owner: Owner,
        hashes: npt.NDArray[np.uint64],
        tokens: npt.NDArray[np.int64],
        chances: npt.NDArray[np.float64],
    ) -> PhraseBook:
        """Make a book of entries in any order."""
        num_bits = max(1, (len(hashes) // _USUAL_SIZE).bit_length() - 1)
        order = np.argsort(hashes, kind="stable")
        hashes, tokens, chances = hashes[order], tokens[order], chances[order]
        buckets = (hashes >> np.uint64(64 - num_bits)).astype(np.int64)
        sizes = np.bincount(buckets, minlength=1 << num_bits)
        steps = np.clip((chances * NUM_CHANCES).astype(np.uint16), 0, NUM_CHANCES - 1)
        narrow = np.uint16 if owner.vocab_size <= 1 << 16 else np.uint32
        marks = many_marks(hashes) * np.uint16(NUM_CHANCES) + steps
        assert sizes.max() < 1 << 8, sizes.max()
        return cls(owner, sizes.astype(np.uint8), marks, tokens.astype(narrow))

    @classmethod
    def load(cls, path: Path) -> PhraseBook:
        """Load a book from its file, or from the folder that contains it."""
        path = path / FILE if path.is_dir() else path
        try:
            with safe_open(path, "numpy") as file:
                about = file.metadata() or {}
                arrays = [file.get_tensor(name) for name in ("sizes", "marks", "tokens")]
            owner = Owner(about[_KEYS[1]], about[_KEYS[2]], int(about[_KEYS[3]]))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise InvalidWeights(
                f"{path} is no book of phrases ({error}); write one with forerun train --kind "
                "phrases, or copy it again."
            ) from None
        book = cls(owner, *arrays)
        book._check(path, about.get("format"))
        return book

    def _check(self, path: Path, written: str | None) -> None:
        if written != _FORMAT:
            raise InvalidWeights(f"{path} has format {written}, not {_FORMAT}; write it again.")
        num, num_buckets = self.marks.size, self.sizes.size
        is_whole = (
            (self.sizes.ndim, self.marks.ndim, self.tokens.ndim) == (1, 1, 1)
            and self.sizes.dtype == np.uint8
            and self.marks.dtype == np.uint16
            and self.tokens.dtype in (np.uint16, np.uint32)
            and num_buckets > 1
            and num_buckets & (num_buckets - 1) == 0
            and int(self.sizes.sum()) == num == self.tokens.size
            and int(self.tokens.max(initial=0)) < self.owner.vocab_size
        )
        if not is_whole:
            raise InvalidWeights(f"{path} is damaged: its arrays do not fit; copy it again.")

    def save(self, folder: Path) -> None:
        """Write the book into `folder`; an error leaves no incomplete file."""
        values = (_FORMAT, *vars(self.owner).values())
        about = {key: str(value) for key, value in zip(_KEYS, values, strict=True)}
        arrays: dict[str, npt.NDArray[Any]] = {
            "sizes": self.sizes,
            "marks": self.marks,
            "tokens": self.tokens,
        }
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, save(arrays, about))

    def fit(self, path: Path, tokenizer_hash: str, vocab_size: int) -> None:
        """Raise `InvalidOption` unless the book's tokens are those of this target."""
        found = (self.owner.tokenizer_hash, self.owner.vocab_size)
        if found != (tokenizer_hash, vocab_size):
            raise InvalidOption(
                f"{path} was written for a target with another tokenizer; write one for this "
                "target with forerun train --kind phrases."
            )

    def __len__(self) -> int:
        return len(self.marks)

    @cached_property
    def _lookup(self) -> tuple[int, Any, Any, Any]:
        """Return the shift to a hash's bucket, the buckets' starts, the marks and the tokens.

        Items of these memoryviews take a third of the time of array items."""
        num_bits = len(self.sizes).bit_length() - 1
        starts = np.concatenate(([0], np.cumsum(self.sizes, dtype=np.int64)))
        return 64 - num_bits, starts.data, self.marks.data, self.tokens.data

    def after(self, context: Sequence[int]) -> tuple[int, float] | None:
        """Return the token after the longest known context, and its chance; None if unknown."""
        shift, starts, marks, tokens = self._lookup
        for hashed in reversed(context_hashes(context)):
            bucket, least = hashed >> shift, mark(hashed) * NUM_CHANCES
            first, most = starts[bucket], least + NUM_CHANCES
            for idx, each in enumerate(marks[first : starts[bucket + 1]], first):
                if least <= each < most:
                    return tokens[idx], (each % NUM_CHANCES + 0.5) / NUM_CHANCES
        return None


def shipped_book(fingerprint: str, folder: Path = _SHIPPED) -> Path | None:
    """Return the folder of the package's book for the model with this fingerprint, if any."""
    for path in sorted(folder.glob(f"*/{FILE}")):
        try:
            with safe_open(path, "numpy") as file:
                about = file.metadata() or {}
        except (OSError, SafetensorError):  # a damaged book matches no model
            continue
        if about.get("target_fingerprint") == fingerprint:
            return path.parent
    return None
