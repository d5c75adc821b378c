"""The plain pass that follows another one: all its integers except the tokens still to be drawn.

    num_rows | drawn | target | num_integers | num_copies | integers … | copies …        int64

The integers are those of a batch. When the first pass is over, `interpreter.end_pass` writes the
drawn tokens to the start of them, copies the first pass's taps, which the next pass overwrites, and
then copies all integers over those of the first pass.
"""

from __future__ import annotations

from array import array
from functools import cached_property

import numpy as np

from forerun.kernels.cpu.codegen.compiled import address_of
from forerun.kernels.cpu.runtime.batch import CpuBatch, Numbers
from forerun.kernels.cpu.runtime.drawn import noise_after
from forerun.kernels.cpu.runtime.interpreter import INTEGERS
from forerun.kernels.cpu.runtime.program import Recording


class Following:
    def __init__(self, batch: CpuBatch, recording: Recording, first_batch: CpuBatch) -> None:
        """Describe the pass after that of `batch`, which replays `recording`; `first_batch` is the
        batch whose addresses the recording has."""
        assert recording.drawn is not None
        self.numbers: Numbers = batch.following()
        self.noise = noise_after(batch.drawn_by)
        first_batch.hold(self.numbers)
        self.scratch_bytes = first_batch.scratch_bytes_for(self.numbers)
        num_rows, integers = self.numbers.num_rows, (*self.numbers.integers, *self.noise)
        self.taps = tuple([np.empty((num_rows, one.width), np.float32) for one in recording.tapped])
        copies = list[int]()
        for tap, one in zip(self.taps, recording.tapped, strict=True):
            copies += (one.address, one.stride, address_of(tap), one.width)
        head = (num_rows, recording.drawn.address, first_batch.address, len(integers))
        self._block = array("q", (*head, len(self.taps), *integers, *copies))
        self.address, _ = self._block.buffer_info()

    @cached_property
    def tokens(self) -> list[int]:
        """The drawn tokens; not to be read before the first pass is over."""
        return self._block[INTEGERS : INTEGERS + self.numbers.num_rows].tolist()

    @property
    def is_begun(self) -> bool:
        """Whether this pass was begun; not to be read before the first one is over. It was not if a
        token is left to the host, or if scratch was too small, so that no token was written."""
        return min(self.tokens) >= 0
