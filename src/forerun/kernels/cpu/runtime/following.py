"""The plain pass behind another: all of it but its tokens, which that one draws.

    num_rows | drawn | target | num_integers | integers …            int64

The integers are those of a batch. When the pass before it is over, the tokens that it has drawn are
put first among them, and all of them in the place of its own: `interpreter.end_pass`.
"""

from __future__ import annotations

from array import array
from functools import cached_property

from forerun.kernels.cpu.runtime.batch import CpuBatch, Numbers
from forerun.kernels.cpu.runtime.drawn import DrawnRows, noise_after
from forerun.kernels.cpu.runtime.interpreter import INTEGERS


class Following:
    def __init__(
        self, numbers: Numbers, noise: list[int], drawn: DrawnRows, first_batch: CpuBatch
    ) -> None:
        """`drawn` will have the tokens; the integers go to the place of those of `first_batch`."""
        self.numbers, self.noise = numbers, noise
        self.scratch_bytes = first_batch.scratch_bytes_for(numbers)
        integers = (*numbers.integers, *noise)
        head = (numbers.num_rows, drawn.address, first_batch.address, len(integers))
        self._block = array("q", (*head, *integers))
        self.address, _ = self._block.buffer_info()

    @classmethod
    def of(cls, batch: CpuBatch, first_batch: CpuBatch, drawn: DrawnRows) -> Following:
        """Behind `batch`, whose pass has the addresses of `first_batch`."""
        numbers = batch.following()
        first_batch.hold(numbers)
        return cls(numbers, noise_after(batch.drawn_by), drawn, first_batch)

    @cached_property
    def tokens(self) -> list[int]:
        """Once the pass before it is over."""
        return self._block[INTEGERS : INTEGERS + self.numbers.num_rows].tolist()

    @property
    def is_begun(self) -> bool:
        """False where a token is left to the host."""
        return min(self.tokens) >= 0
