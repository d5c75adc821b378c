"""What a pass returns for its wanted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from forerun.types import FloatArray


@dataclass(frozen=True)
class Scores:
    """The logits [V] of each wanted row, and the tokens that the kernels drew from them.

    If the token of a row was drawn, its logits may have stayed on the device; then they are None
    here. A row after a guess that differs from the token drawn there may have neither logits nor
    a token: it is never read.
    """

    logits: FloatArray | Sequence[FloatArray | None]  # [R, V]
    tokens: Sequence[int | None] | None = None  # [R]; None: this one, or all, are yet to be drawn

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: slice) -> Scores:
        return Scores(self.logits[rows], None if self.tokens is None else self.tokens[rows])

    def some(self, rows: Sequence[int]) -> Scores:
        tokens = None if self.tokens is None else [self.tokens[row] for row in rows]
        return Scores([self.logits[row] for row in rows], tokens)

    def each(self) -> list[Scores]:
        """Split into single rows."""
        return [self[idx : idx + 1] for idx in range(len(self))]

    def row(self, idx: int) -> FloatArray:
        logits = self.logits[idx]
        assert logits is not None, f"the logits of row {idx} stayed where they were"
        return logits

    def all_rows(self) -> FloatArray:
        """Return all logits [R, V]; asserts that they are on the host."""
        assert isinstance(self.logits, np.ndarray), "some logits stayed where they were"
        return self.logits

    @property
    def all_tokens(self) -> Sequence[int] | None:
        """The tokens [R] if all of them were drawn, else None."""
        if self.tokens is None or None in self.tokens:
            return None
        return cast(Sequence[int], self.tokens)

    def token(self, idx: int) -> int | None:
        return None if self.tokens is None else self.tokens[idx]
