"""Texts as tensors, and which rows of them count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.training.texts import Text

_SHARE: Final = 0.75  # of a packed row's roots that are asked: about what answers make up


@dataclass(frozen=True)
class Batch:
    """Roots that are asked while an answer is written: tokens up to its first are known at least.

    Rows are counted through all texts: of T positions a text has T - 1 roots.
    """

    tokens: Tensor  # [B, T]
    roots: Tensor  # [N], of B · (T - 1)
    expected: Tensor  # [places, N], of B · T: where the target says what is guessed
    weights: Tensor  # [places, N]: 0 where that is beyond the text

    def to(self, device: torch.device) -> Batch:
        return Batch(*(each.to(device, non_blocking=True) for each in vars(self).values()))

    def copy_(self, other: Batch) -> None:
        for ours, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            ours.copy_(theirs, non_blocking=True)

    @classmethod
    def _of(
        cls, tokens: npt.NDArray[np.int64], left: npt.NDArray[np.int64], num_places: int, num: int
    ) -> Batch:
        """`left` [B, T] are the places that each root can be asked for; `num` roots are."""
        width = tokens.shape[1]
        left = np.minimum(left, width - 1 - np.arange(width))[:, :-1].reshape(-1)
        roots = np.flatnonzero(left)
        counts = np.zeros(num, np.int64)
        counts[: len(roots)] = left[roots]
        roots = np.concatenate((roots, np.zeros(num - len(roots), np.int64)))
        row, column = np.divmod(roots, width - 1)
        places = np.arange(num_places)[:, None]
        expected = row * width + np.minimum(column + 1 + places, width - 1)
        weights = (places < counts).astype(np.float32)
        return cls(*map(torch.from_numpy, (tokens, roots, expected, weights)))

    @classmethod
    def of(cls, texts: Sequence[Text], num_places: int) -> Batch:
        """All answers of some texts, padded on the right."""
        width = max(len(text.tokens) for text in texts)
        tokens, left = np.zeros((2, len(texts), width), np.int64)
        for idx, text in enumerate(texts):
            num = len(text.tokens)
            tokens[idx, :num], left[idx, :num] = text.tokens, places_left(text)
        return cls._of(tokens, left, num_places, np.count_nonzero(left[:, :-1]))


def places_left(text: Text) -> npt.NDArray[np.int64]:
    """How many tokens of the answer follow the one that is known, at each root."""
    roots = np.arange(len(text.tokens))
    return np.where(roots >= max(0, text.answer - 1), (len(roots) - 2 - roots).clip(0), 0)


class Stream:
    """Texts one behind another, cut into rows of one length wherever it may be.

    The target sees what stands before a text in its row, and what it says then is what a head
    learns. So no row is padded, all steps have one shape, and heads see long contexts.
    """

    def __init__(self) -> None:
        self._tokens: list[npt.NDArray[np.int64]] = []
        self._left: list[npt.NDArray[np.int64]] = []

    def add(self, texts: Sequence[Text]) -> None:
        self._tokens = [np.concatenate([*self._tokens, *(np.array(t.tokens) for t in texts)])]
        self._left = [np.concatenate([*self._left, *map(places_left, texts)])]

    def __len__(self) -> int:
        return sum(map(len, self._tokens))

    def batch(
        self, num_rows: int, row_len: int, num_places: int, chooser: np.random.Generator
    ) -> Batch:
        (tokens,), (left,) = self._tokens, self._left
        first = chooser.integers(len(tokens) - row_len + 1, size=num_rows)
        where = first[:, None] + np.arange(row_len)
        counts = left[where]
        counts[:, -1] = 0
        num = int(_SHARE * num_rows * row_len)
        roots = np.flatnonzero(counts)
        surplus = chooser.permutation(roots)[num:]
        counts.reshape(-1)[surplus] = 0
        return Batch._of(tokens[where], counts, num_places, num)
