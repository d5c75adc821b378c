"""Texts as tensors, and which rows of them count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forerun.training.texts import Text


@dataclass(frozen=True)
class Batch:
    """Roots that are asked while an answer is written: tokens up to its first are known at least.

    Of T positions a text has T - 1 roots; rows are counted through all texts.
    """

    tokens: Tensor  # [B, T], padded on the right
    positions: Tensor  # [N], of B · T: where the target says what is guessed at place 0
    roots: list[Tensor]  # of each place, [≤ N] of B · (T - 1)
    expected: list[Tensor]  # of each place, [≤ N] of N: which of `positions` it guesses

    @classmethod
    def of(cls, texts: Sequence[Text], num_places: int, device: torch.device) -> Batch:
        width = max(len(text.tokens) for text in texts)
        tokens = np.zeros((len(texts), width), np.int64)
        positions, roots, expected = (
            [],
            [[] for _ in range(num_places)],
            [[] for _ in range(num_places)],
        )
        num = 0
        for idx, text in enumerate(texts):
            tokens[idx, : len(text.tokens)] = text.tokens
            first = max(1, text.answer)
            rows = np.arange(len(text.tokens) - 1 - first)  # root first - 1 guesses token first + 1
            positions.append(idx * width + first + rows)
            for place in range(num_places):
                kept = rows[: max(0, len(rows) - place)]
                roots[place].append(idx * (width - 1) + first - 1 + kept)
                expected[place].append(num + place + kept)
            num += len(rows)

        def put(parts: Sequence[np.ndarray]) -> Tensor:
            return torch.from_numpy(np.concatenate(parts)).to(device, non_blocking=True)

        return cls(
            put([tokens]), put(positions), [put(r) for r in roots], [put(e) for e in expected]
        )
