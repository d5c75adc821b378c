"""The report of loading a model: progress meanwhile, a warning at the end."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]  # (what, num_done, num_all); 0 and 0 if unknown


class LoadReport:
    """Counts tensors, and warns once of those repacked because their format has no kernel."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._num_done = self._num_all = 0
        self._stand_ins: Counter[str] = Counter()
        self.num_quantized = 0  # matrices packed by `quantization`, of all models

    @contextmanager
    def of(self, num_tensors: int) -> Iterator[None]:
        self._num_done, self._num_all = 0, num_tensors
        self._stand_ins.clear()
        try:
            yield
        finally:
            self._num_done = self._num_all = 0
        if self._stand_ins:
            listed = ", ".join(f"{num} in {name}" for name, num in self._stand_ins.items())
            warnings.warn(
                f"tensors in formats without a kernel are held as Q8_0 ({listed}); "
                "a file in Q4_K, Q6_K or Q8_0 is read as it is.",
                RuntimeWarning,
                stacklevel=3,
            )

    def begin(self, what: str) -> None:
        """Report that `what` begins for the next tensor."""
        if self._progress is not None and self._num_all:
            self._progress(what, self._num_done, self._num_all)
        self._num_done += 1

    def stand_in(self, weight_format: str) -> None:
        self._stand_ins[weight_format] += 1
