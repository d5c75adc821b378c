"""Asynchronous copies from the device to the host's memory."""

from __future__ import annotations

from threading import get_ident, main_thread
from typing import Any, Final

import numpy.typing as npt
import torch
from torch import Tensor

NUM_TURNS: Final = 3  # host buffers that the device reads, used in turn
# Host buffers that it writes: the latest, a discarded one, one being read, and one read late.
_NUM_COPIES: Final = 4


class HostCopy:
    """A host buffer that the device fills asynchronously, and the event that says it is full."""

    def __init__(self, like: Tensor) -> None:
        is_gpu = like.device.type == "cuda"
        self._tensor = torch.empty(like.shape, dtype=like.dtype, pin_memory=is_gpu)
        self._array: npt.NDArray[Any] = self._tensor.numpy()
        self._done: Any = torch.cuda.Event() if is_gpu else None
        # Kept because looking up the current stream takes as long as the copy.
        self._stream: Any = torch.cuda.current_stream(like.device) if is_gpu else None

    def start(self, data: Tensor) -> None:
        self._tensor.copy_(data, non_blocking=True)
        if self._done is not None:
            self._done.record(self._stream)

    def wait(self) -> npt.NDArray[Any]:
        """Wait for the copy and return it; it is valid until this buffer is used again.

        The main thread polls, which keeps the interpreter in the processor's caches: the Python
        that follows takes three quarters of the time. Any other thread, such as a server's engine,
        sleeps and leaves the interpreter to the threads beside it.
        """
        if self._done is None:
            return self._array
        if get_ident() == main_thread().ident:
            while not self._done.query():
                pass
        else:
            self._done.synchronize()
        return self._array


class HostCopies:
    """Host buffers for one tensor, or for several of the same shape, used in turn."""

    def __init__(self) -> None:
        self._copies: list[HostCopy] = []
        self._turn = -1

    def start(self, data: Tensor) -> HostCopy:
        self._turn = (self._turn + 1) % _NUM_COPIES
        if self._turn == len(self._copies):  # created on first use
            self._copies.append(HostCopy(data))
        copy = self._copies[self._turn]
        copy.start(data)
        return copy
