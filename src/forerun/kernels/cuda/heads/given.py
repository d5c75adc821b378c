"""What a pass over hidden states is given, takes apart and hands out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.kernels.base import ChainNoise

F32 = npt.NDArray[np.float32]

NUM_TURNS: Final = 3  # of buffers in the host's memory
_NOISE_WORDS: Final = (
    8  # temperature, key and position, 64 bits each, and room to align what follows
)


@dataclass(frozen=True)
class Given:
    """On the host: activations [n, width] each, and how the pass is to guess."""

    make: Callable[[], Sequence[F32]]  # asked for where it is sent: not if it was begun early
    noise: ChainNoise
    is_chain: bool = False
    fill: tuple[int, int] = (0, 0)  # behind so many rows, so many for nobody

    @cached_property
    def arrays(self) -> Sequence[F32]:
        return self.make()


def noise_words(noise: ChainNoise) -> tuple[int, int, int]:
    """Of 64 bits, signed."""
    temperature = int(np.float64(noise.temperature).view(np.int64))
    return temperature, noise.key - (noise.key >> 63 << 64), noise.position


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
            at, num = given.fill
            rows[:at] = array[:at]
            rows[at + num : len(array) + num] = array[at:]
        self._noise[:3] = noise_words(given.noise)
        self._device.copy_(self._host, non_blocking=True)


def _views(words: Tensor, widths: Sequence[int], num_rows: int) -> list[Tensor]:
    ends = np.cumsum([_NOISE_WORDS, *(num_rows * width for width in widths)]).tolist()
    pairs = zip(ends, ends[1:], widths, strict=False)
    return [words[first:last].view(num_rows, width) for first, last, width in pairs]


@dataclass(frozen=True)
class SentOut:
    """On its way to the host; `done` when it is there."""

    host: Tensor
    shapes: tuple[tuple[int, ...], ...]
    done: Any  # torch.cuda.Event
    chosen: tuple[int, ...] | None = None  # rows that are meant

    def some(self, rows: Sequence[int]) -> SentOut:
        return replace(self, chosen=tuple(rows))

    def views(self) -> list[F32]:
        if self.done is not None:
            self.done.synchronize()
        found, whole = list[F32](), self.host.numpy()
        first = 0
        for rows, width in self.shapes:
            found.append(whole[first : first + rows * width].reshape(rows, width))
            first += rows * width
        return found

    def to_host(self) -> tuple[F32, ...]:
        """Copies."""
        if self.chosen is not None:
            return tuple(each[list(self.chosen)] for each in self.views())
        return tuple(each.copy() for each in self.views())


@dataclass(frozen=True)
class HandedOut:
    """What a pass tapped, one behind the other, so that it travels at once."""

    data: Tensor
    shapes: tuple[tuple[int, ...], ...]
    hosts: list[tuple[Tensor, Any]] = field(default_factory=list)  # that take turns

    @classmethod
    def of(cls, tapped: Sequence[Tensor]) -> HandedOut:
        return cls(
            torch.cat([each.reshape(-1) for each in tapped]),
            tuple(tuple(each.shape) for each in tapped),
        )

    def rows(self, num: int) -> Tensor:
        """[taps, num, width]: the first rows of each, all of one shape."""
        return self.data.view(len(self.shapes), *self.shapes[0])[:, :num]

    def send(self) -> SentOut:
        """Before another pass writes over it; nobody waits."""
        if not self.hosts:
            is_gpu = self.data.device.type == "cuda"
            for _ in range(NUM_TURNS):
                host = torch.empty(self.data.shape, pin_memory=is_gpu)
                self.hosts.append((host, torch.cuda.Event() if is_gpu else None))
        self.hosts.append(self.hosts.pop(0))
        host, done = self.hosts[-1]
        host.copy_(self.data, non_blocking=True)
        if done is not None:
            done.record()
        return SentOut(host, self.shapes, done)
