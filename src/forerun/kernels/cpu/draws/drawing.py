"""What a kernel set draws with, compiled at first use."""

from __future__ import annotations

from functools import cached_property

from forerun.kernels.cpu.draws.coupled_draw import CoupledDraw
from forerun.kernels.cpu.draws.weight_sum import WeightSum
from forerun.kernels.cpu.library import Library
from forerun.sampling import Logits, Noise
from forerun.types import FloatArray


class Drawing:
    _library: Library

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """What `sampling.gumbel_argmax` returns, bit for bit, in a fraction of its time."""
        return self._coupled_draw.gumbel_argmax(logits, noise, position)

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        """Bounds as those of `sampling.weight_sum`, not as close."""
        return self._weight_sum(logits, top, temperature)

    @cached_property
    def _weight_sum(self) -> WeightSum:
        return WeightSum(self._library)

    @cached_property
    def _coupled_draw(self) -> CoupledDraw:
        return CoupledDraw(self._library)
