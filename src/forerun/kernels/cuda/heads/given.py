"""What a pass over hidden states is given, takes apart and hands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.kernels.base import ChainNoise

F32 = npt.NDArray[np.float32]

_NOISE_WORDS = 8  # temperature, key and position, 64 bits each, and room to align what follows


@dataclass(frozen=True)
class Given:
    """On the host: activations [n, width] each, and how the pass is to guess."""

    arrays: Sequence[F32]
    noise: ChainNoise


class GivenInputs:
    """The device's side, with room for `num_rows` rows of each; its addresses stay."""

    def __init__(self, given: Given, num_rows: int, device: torch.device) -> None:
        widths = [array.shape[1] for array in given.arrays]
        num_words, is_pinned = _NOISE_WORDS + num_rows * sum(widths), device.type == "cuda"
        self._host = torch.zeros(num_words, pin_memory=is_pinned)
        self._device = torch.zeros(num_words, device=device)
        self._rows = [rows.numpy() for rows in _views(self._host, widths, num_rows)]
        self._noise: npt.NDArray[np.int64] = self._host[:_NOISE_WORDS].numpy().view(np.int64)
        self.rows = _views(self._device, widths, num_rows)
        self.noise = self._device[:_NOISE_WORDS].view(torch.int64)

    def send(self, given: Given) -> None:
        """Rows that it does not fill stay as they were, and nobody asks."""
        for rows, array in zip(self._rows, given.arrays, strict=True):
            rows[: len(array)] = array
        noise = given.noise
        self._noise[0] = np.float64(noise.temperature).view(np.int64)
        self._noise[1] = noise.key - (noise.key >> 63 << 64)  # the same 64 bits, signed
        self._noise[2] = noise.position
        self._device.copy_(self._host, non_blocking=True)


def _views(words: Tensor, widths: Sequence[int], num_rows: int) -> list[Tensor]:
    ends = np.cumsum([_NOISE_WORDS, *(num_rows * width for width in widths)]).tolist()
    pairs = zip(ends, ends[1:], widths, strict=False)
    return [words[first:last].view(num_rows, width) for first, last, width in pairs]


@dataclass(frozen=True)
class HandedOut:
    """What a pass tapped, one behind the other, so that it travels at once."""

    data: Tensor
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tapped: Sequence[Tensor]) -> HandedOut:
        return cls(
            torch.cat([each.reshape(-1) for each in tapped]),
            tuple(tuple(each.shape) for each in tapped),
        )

    def to_host(self) -> tuple[F32, ...]:
        found = self.data.cpu().split([rows * width for rows, width in self.shapes])
        return tuple(
            each.view(shape).numpy() for each, shape in zip(found, self.shapes, strict=True)
        )
