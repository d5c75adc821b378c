"""How the kernel set draws: all rows as the last steps of a pass, or one row on the host."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from forerun.kernels.cpu.draws.coupled_draw import CoupledDraw
from forerun.kernels.cpu.draws.drawn_rows import (
    PIECE_FIELDS,
    best_piece,
    best_row,
    noisy_piece,
    noisy_row,
    num_pieces,
)
from forerun.kernels.cpu.draws.weight_sum import WeightSum
from forerun.kernels.cpu.library import Library
from forerun.kernels.cpu.runtime.program import Rows
from forerun.sampling import Logits, Noise
from forerun.types import FloatArray


class Drawing:
    _library: Library

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """Return what `sampling.gumbel_argmax` does, bit for bit, in a fraction of its time."""
        return self._coupled_draw.gumbel_argmax(logits, noise, position)

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        """Return bounds of the same sum as `sampling.weight_sum`, not as close."""
        return self._weight_sum(logits, top, temperature)

    def _draw_rows(self, logits: Rows) -> None:
        """Add the steps that draw the tokens of all rows, if the pass draws."""
        program, num, drawn = logits.program, num_pieces(logits.width), logits.program.drawn
        if drawn is None:
            return
        best, best_of_row, noisy, noisy_of_row = self._row_draws
        num_rows = logits.num_rows
        pieces = np.zeros((num_rows, num, PIECE_FIELDS))
        program.hold(pieces, *drawn)
        args = (*logits.place, logits.width, pieces.ctypes.data, num, drawn.tokens.ctypes.data)
        if not len(drawn.noise):
            program.add(best, num_rows * num, *args)
            program.add(best_of_row, num_rows, *args)
            return
        noise = drawn.noise.ctypes.data
        program.add(best, num_rows * num, *args, noise)
        for row in range(num_rows):
            program.add(noisy, num, *args, noise, row)
            program.add(noisy_of_row, 1, *args, noise, row)

    @cached_property
    def _row_draws(self) -> list[int]:
        operations = (best_piece, best_row, noisy_piece, noisy_row)
        return [self._library.operation(each.__name__, each) for each in operations]

    @cached_property
    def _weight_sum(self) -> WeightSum:
        return WeightSum(self._library)

    @cached_property
    def _coupled_draw(self) -> CoupledDraw:
        return CoupledDraw(self._library)
