"""What a pass over hidden states is given, and what a pass hands out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from forerun.kernels.base import ChainNoise
from forerun.kernels.cuda.host_copies import HostCopy

F32 = npt.NDArray[np.float32]

_NOISE_WORDS: Final = (
    8  # temperature, key and position, 64 bits each, and room to align what follows
)


@dataclass(frozen=True)
class Given:
    """What the host gives a pass: activations [n, width] each, and how the pass guesses."""

    make: Callable[[], Sequence[F32]]  # called when they are sent: not for a pass begun early
    noise: ChainNoise
    is_chain: bool = False
    fill: tuple[int, int] = (0, 0)  # after how many rows padding goes, and how many rows of it

    @cached_property
    def arrays(self) -> Sequence[F32]:
        return self.make()


def noise_words(noise: ChainNoise) -> tuple[int, int, int]:
    """Return temperature, key and position as signed 64-bit words."""
    temperature = int(np.float64(noise.temperature).view(np.int64))
    return temperature, noise.key - (noise.key >> 63 << 64), noise.position


class GivenInputs:
    """What a pass is given, on the device: room for `num_rows` rows of each, at fixed addresses."""

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
        """Send `given`; rows that it does not fill are padding and keep their old values."""
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


class HiddenStates(Protocol):
    """Hidden states that a pass handed out; the host reads them late or never."""

    @property
    def num_layers(self) -> int: ...

    def views(self) -> Sequence[F32]:
        """Return [n, width] each, valid until another pass needs the memory."""

    def to_host(self) -> Sequence[F32]:
        """Return copies."""


@dataclass(frozen=True)
class SentOut:
    """Hidden states on their way to the host."""

    copy: HostCopy
    shapes: tuple[tuple[int, ...], ...]
    chosen: tuple[int, ...] | None = None  # rows that `to_host` returns; None: all

    @property
    def num_layers(self) -> int:
        return len(self.shapes)

    def some(self, rows: Sequence[int]) -> SentOut:
        return replace(self, chosen=tuple(rows))

    def views(self) -> list[F32]:
        return self._parts(self.copy.wait())

    def to_host(self) -> tuple[F32, ...]:
        """Return copies of the chosen rows."""
        if self.chosen is not None:
            return tuple(each[list(self.chosen)] for each in self.views())
        return tuple(self._parts(self.copy.wait().copy()))

    def _parts(self, whole: F32) -> list[F32]:
        found, first = list[F32](), 0
        for rows, width in self.shapes:
            found.append(whole[first : first + rows * width].reshape(rows, width))
            first += rows * width
        return found


class LateRows(Sequence[F32]):
    """Hidden states that are read from the device when the first of them is asked for."""

    def __init__(self, states: HiddenStates) -> None:
        self._states = states

    @cached_property
    def _found(self) -> Sequence[F32]:
        return self._states.to_host()

    @overload
    def __getitem__(self, idx: int) -> F32: ...
    @overload
    def __getitem__(self, idx: slice) -> Sequence[F32]: ...
    def __getitem__(self, idx: int | slice) -> F32 | Sequence[F32]:
        return self._found[idx]

    def __len__(self) -> int:
        return self._states.num_layers


@dataclass(frozen=True)
class HandedOut:
    """What a pass tapped, in one tensor, so that one copy brings it to the host."""

    data: Tensor
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tapped: Sequence[Tensor]) -> HandedOut:
        return cls(
            torch.cat([each.reshape(-1) for each in tapped]),
            tuple(tuple(each.shape) for each in tapped),
        )

    def rows(self, num: int) -> Tensor:
        """Return the first `num` rows of each tap [taps, num, width]; all must have one shape."""
        return self.data.view(len(self.shapes), *self.shapes[0])[:, :num]

    def send(self) -> SentOut:
        """Start a copy to the host, before another pass overwrites the data.

        The copy has memory of its own: a head may read it after any number of other passes.
        """
        copy = HostCopy(self.data)
        copy.start(self.data)
        return SentOut(copy, self.shapes)
