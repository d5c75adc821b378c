"""Texts as tensors, and which of their rows the loss covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.training.texts import Text
from forerun.training.torch_target import TorchTarget

Ints = npt.NDArray[np.int64]

_TOKENS_AT_ONCE: Final = 1 << 16  # in one pass of the target, padding included
_CONTEXT: Final = 160  # tokens of a prompt that are kept of most texts
_WHOLE_SHARE: Final = 0.25  # of texts that keep their whole prompt


@dataclass(frozen=True)
class Batch:
    """Texts, and the roots in their answers at which the head guesses.

    At a root, at least the answer's first token is known. Indices of rows run through all texts; a
    text of T positions has T - 1 roots.
    """

    tokens: Tensor  # [B, T]
    features: Tensor  # [B, T, layers · E]: the hidden states that the head reads
    h: Tensor  # [B, T, E]: the target's normed stream, for its logits
    roots: Tensor  # [N], of B · (T - 1)
    expected: Tensor  # [places, N], of B · T: the target's row that predicts the guessed token
    weights: Tensor  # [places, N]: 0 where that is beyond the text

    def clone(self) -> Batch:
        return Batch(*(each.clone() for each in vars(self).values()))

    def copy_(self, other: Batch) -> None:
        for ours, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            ours.copy_(theirs)


def text_batch(
    target: TorchTarget, layers: Sequence[int], texts: Sequence[Text], num_places: int
) -> Batch:
    """Return a batch with all roots of the answers of `texts`, padded on the right."""
    width = max(len(text.tokens) for text in texts)
    tokens, left = np.zeros((2, len(texts), width), np.int64)
    for idx, text in enumerate(texts):
        num = len(text.tokens)
        tokens[idx, :num], left[idx, :num] = text.tokens, _places_left(text)
    on_device = torch.from_numpy(tokens).to(target.device)
    asked = _asked(left, num_places, int(np.count_nonzero(left[:, :-1])), target.device)
    return Batch(on_device, *_seen(target, layers, on_device), *asked)


def _places_left(text: Text) -> Ints:
    """Return how many tokens of the answer follow the last known one, at each root."""
    roots = np.arange(len(text.tokens))
    return np.where(roots >= max(0, text.answer - 1), (len(roots) - 2 - roots).clip(0), 0)


def _seen(target: TorchTarget, layers: Sequence[int], tokens: Tensor) -> tuple[Tensor, Tensor]:
    states, h = target.states(tokens, layers)
    return torch.cat([states[layer].to(target.dtype) for layer in layers], dim=-1), h


def _asked(
    left: Ints,
    num_places: int,
    num: int,
    device: torch.device,
    chooser: np.random.Generator | None = None,
) -> list[Tensor]:
    """Return roots, their expected rows and their weights.

    `left` [B, T] are the places that each root can be asked for. If fewer than `num` roots can be
    asked, others are added with weights of 0. A `chooser` shuffles them.
    """
    width = left.shape[1]
    left = np.minimum(left, width - 1 - np.arange(width))[:, :-1].reshape(-1)
    roots = np.flatnonzero(left)
    unasked = np.flatnonzero(left == 0)[: num - len(roots)]  # a root must not be repeated
    roots = np.concatenate((roots, unasked))
    roots = roots if chooser is None else chooser.permutation(roots)
    row, column = np.divmod(roots, width - 1)
    places = np.arange(num_places)[:, None]
    expected = row * width + np.minimum(column + 1 + places, width - 1)
    weights = (places < left[roots]).astype(np.float32)
    found = map(torch.from_numpy, (roots, expected, weights))
    return [each.to(device, non_blocking=True) for each in found]


@dataclass(frozen=True)
class _Chunk:
    """Rows of texts that were added together: [R, T]"""

    tokens: Tensor
    features: Tensor
    h: Tensor
    left: Ints  # the places that each root can be asked for


class Rows:
    """Texts concatenated and cut into rows of one length at any token, on the device.

    The rows contain what the target computes. The target sees each text by itself, as when it is
    served; a head also sees what precedes a text in its row. Most of a long prompt is left out,
    because nothing is asked there. So no row is padded, and all steps have one shape.
    """

    def __init__(
        self, target: TorchTarget, layers: Sequence[int], row_len: int, max_bytes: float
    ) -> None:
        self._target, self._layers, self._row_len = target, layers, row_len
        self._chunks: list[_Chunk] = []
        row_bytes = row_len * (len(layers) + 1) * target.config.hidden_size * target.dtype.itemsize
        self._max_rows = int(max_bytes / row_bytes)
        self._rest: list[Text] = []
        self._share = 0.0  # of positions that are asked: about the share of answers
        self.num_tokens = 0

    def add(self, texts: Sequence[Text]) -> None:
        """Add texts, or keep them for the next call if they fill no row.

        The oldest rows are dropped when there is no room.
        """
        texts = [*self._rest, *texts]
        chooser = np.random.default_rng(self.num_tokens)
        is_whole = chooser.uniform(0, 1, len(texts)) < _WHOLE_SHARE
        starts = [
            0 if whole else max(0, text.answer - _CONTEXT)
            for text, whole in zip(texts, is_whole, strict=True)
        ]
        lengths = np.array([len(t.tokens) - start for t, start in zip(texts, starts, strict=True)])
        num = int(lengths.sum()) // self._row_len
        self._rest = [] if num else list(texts)
        if not num:
            return
        order = chooser.permutation(len(texts))
        firsts = np.zeros(len(texts), np.int64)
        firsts[order] = np.cumsum(lengths[order]) - lengths[order]
        shape = (num, self._row_len)
        left = np.zeros(int(lengths.sum()), np.int64)
        for text, start, first in zip(texts, starts, firsts, strict=True):
            left[first : first + len(text.tokens) - start] = _places_left(text)[start:]
        left = left[: math.prod(shape)].reshape(shape)
        computed = self._computed(texts, starts, firsts, left.size)
        tokens, features, h = (each.unflatten(0, shape) for each in computed)
        self._chunks.append(_Chunk(tokens, features, h, left))
        self._share = self._share or float(np.count_nonzero(left) / left.size)
        self.num_tokens += math.prod(shape)
        while sum(len(each.left) for each in self._chunks[1:]) > self._max_rows:
            del self._chunks[0]

    def _computed(
        self, texts: Sequence[Text], starts: Sequence[int], firsts: Ints, num: int
    ) -> list[Tensor]:
        """Return tokens, features and h of the first `num` positions.

        Text i, from its token `starts`[i] on, is at `firsts`[i].
        """
        target, size = self._target, self._target.config.hidden_size
        like = {"dtype": target.dtype, "device": target.device}
        # What lies beyond the last row is written to one more position, which is not read.
        tokens = torch.zeros(num + 1, dtype=torch.int64, device=target.device)
        features = torch.empty(num + 1, len(self._layers) * size, **like)
        h = torch.empty(num + 1, size, **like)
        order = sorted(range(len(texts)), key=lambda idx: len(texts[idx].tokens), reverse=True)
        while order:
            at_once = order[: max(1, _TOKENS_AT_ONCE // len(texts[order[0]].tokens))]
            order = order[len(at_once) :]
            padded = np.zeros((len(at_once), len(texts[at_once[0]].tokens)), np.int64)
            where = np.full(padded.shape, num)
            for row, idx in enumerate(at_once):
                text, start = texts[idx], starts[idx]
                padded[row, : len(text.tokens)] = text.tokens
                where[row, start : len(text.tokens)] = (
                    firsts[idx] + np.arange(len(text.tokens) - start)
                ).clip(max=num)
            on_device, places = (
                torch.from_numpy(each).to(target.device) for each in (padded, where.reshape(-1))
            )
            seen = _seen(target, self._layers, on_device)
            for whole, part in zip((tokens, features, h), (on_device, *seen), strict=True):
                whole.index_copy_(0, places, part.flatten(0, 1))
        return [tokens[:num], features[:num], h[:num]]

    def batch(self, num_rows: int, num_places: int, chooser: np.random.Generator) -> Batch:
        """Return random rows of one random chunk, all batches with the same number of roots."""
        sizes = np.array([len(chunk.left) for chunk in self._chunks])
        chunk = self._chunks[chooser.choice(len(sizes), p=sizes / sizes.sum())]
        rows = chooser.integers(len(chunk.left), size=num_rows)
        left = chunk.left[rows]
        left[:, -1] = 0
        num = max(1, int(self._share * left.size))
        surplus = chooser.permutation(np.flatnonzero(left))[num:]
        left.reshape(-1)[surplus] = 0
        device = self._target.device
        idx = torch.from_numpy(rows).to(device, non_blocking=True)
        seen = (each.index_select(0, idx) for each in (chunk.tokens, chunk.features, chunk.h))
        return Batch(*seen, *_asked(left, num_places, num, device, chooser))
