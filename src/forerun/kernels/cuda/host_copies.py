"""From the device to the host's memory, while nobody waits."""

from __future__ import annotations

from threading import get_ident, main_thread
from typing import Any, Final

import numpy.typing as npt
import torch
from torch import Tensor

NUM_TURNS: Final = 3  # of buffers in the host's memory that the device reads
# That it writes: the latest, one for nobody, one that is being read, and one that is read late.
_NUM_COPIES: Final = 4


class HostCopy:
    """A buffer that the device copies to by itself, and how to know that it has."""

    def __init__(self, like: Tensor) -> None:
        is_gpu = like.device.type == "cuda"
        self._tensor = torch.empty(like.shape, dtype=like.dtype, pin_memory=is_gpu)
        self._array: npt.NDArray[Any] = self._tensor.numpy()
        self._done: Any = torch.cuda.Event() if is_gpu else None
        # To look up the present stream takes as long as to copy.
        self._stream: Any = torch.cuda.current_stream(like.device) if is_gpu else None

    def start(self, data: Tensor) -> None:
        self._tensor.copy_(data, non_blocking=True)
        if self._done is not None:
            self._done.record(self._stream)

    def wait(self) -> npt.NDArray[Any]:
        """What was copied, until its turn comes again.

        The main thread asks all the time, which keeps the interpreter in the processor's caches:
        what follows takes three quarters of the time. A thread beside others, such as a server's
        engine, leaves the interpreter to them.
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
    """Of one tensor, or of others of its shape: they take turns."""

    def __init__(self) -> None:
        self._copies: list[HostCopy] = []
        self._turn = -1

    def start(self, data: Tensor) -> HostCopy:
        self._turn = (self._turn + 1) % _NUM_COPIES
        if self._turn == len(self._copies):  # made when their turn comes first
            self._copies.append(HostCopy(data))
        copy = self._copies[self._turn]
        copy.start(data)
        return copy
