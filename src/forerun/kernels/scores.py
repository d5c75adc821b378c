"""What a pass found after the tokens that were asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from forerun.types import FloatArray


@dataclass(frozen=True)
class Scores:
    """Logits [V] of each wanted row, and the tokens that were drawn from them already.

    Where a token was drawn its logits may have stayed where they were: then their row is None. A
    row behind a guess that is not what was drawn before it may have neither: nobody asks for it.
    """

    logits: FloatArray | Sequence[FloatArray | None]  # [R, V]
    tokens: Sequence[int | None] | None = None  # [R]; None: still to be drawn, all or that one

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: slice) -> Scores:
        return Scores(self.logits[rows], None if self.tokens is None else self.tokens[rows])

    def some(self, rows: Sequence[int]) -> Scores:
        tokens = None if self.tokens is None else [self.tokens[row] for row in rows]
        return Scores([self.logits[row] for row in rows], tokens)

    def each(self) -> list[Scores]:
        """One row after the other."""
        return [self[idx : idx + 1] for idx in range(len(self))]

    def row(self, idx: int) -> FloatArray:
        logits = self.logits[idx]
        assert logits is not None, f"the logits of row {idx} stayed where they were"
        return logits

    def all_rows(self) -> FloatArray:
        """[R, V], where all of them are here."""
        assert isinstance(self.logits, np.ndarray), "some logits stayed where they were"
        return self.logits

    @property
    def all_tokens(self) -> Sequence[int] | None:
        """[R], where all of them were drawn."""
        if self.tokens is None or None in self.tokens:
            return None
        return cast(Sequence[int], self.tokens)

    def token(self, idx: int) -> int | None:
        return None if self.tokens is None else self.tokens[idx]
