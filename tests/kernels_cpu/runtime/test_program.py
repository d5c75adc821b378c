"""An exception at any line while a pass is recorded or run frees no memory that steps point to.

Nothing delays these exceptions, as `Uninterrupted` delays ^C: they may come from anywhere.
Lines that say `with` are left out: when a block is left, only a hook can raise there, and the lock
would stay taken.
"""

from __future__ import annotations

import ctypes
import gc
import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import pytest

from forerun.cache import KVCache
from forerun.kernels import Plan
from forerun.kernels.cpu import CpuKernels
from forerun.models.llama import LlamaModel
from forerun.types import Span
from tests.contracts.kernel_sets import CACHE_DIR
from tests.interrupting import Place, at_every_line, files, lines_of
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

PROGRAMS = files("kernels/cpu/runtime/program.py", "kernels/cpu/runtime/replay.py")
WORKERS = files("kernels/cpu/runtime/workers.py")
SIZES = (3, 1, 3, 33)  # recorded and replayed, and one that is too long to be kept
M_PERTURB = -6  # of glibc's mallopt: freed memory is overwritten


class Passes:
    """Passes of several lengths over an empty cache."""

    def __init__(self) -> None:
        kernels = CpuKernels(cache_dir=CACHE_DIR)
        config = tiny_config(hidden_size=160, intermediate_size=320)  # buffers that malloc makes
        self._model = LlamaModel.load(TinyCheckpoint(config), kernels)
        self.cache = self.new_cache()

    def new_cache(self) -> KVCache:
        """Make a new cache, for which nothing is recorded yet."""
        self.cache = self._model.new_cache(num_pages=4, page_size=16)
        return self.cache

    def run(self) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
        return [self._one(size) for size in SIZES]

    def _one(self, num_tokens: int) -> Any:
        table = self.cache.new_table()
        try:
            span = Span.all_wanted(table.reserve(num_tokens), tuple(range(num_tokens)))
            return self._model.forward(Plan.build([(span, table)]), self.cache)
        finally:
            table.free()


@contextmanager
def freed_memory_is_overwritten() -> Iterator[None]:
    if not sys.platform.startswith("linux"):
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_PERTURB, 165)
    try:
        yield
    finally:
        libc.mallopt(M_PERTURB, 0)


@contextmanager
def finalizers_may_raise() -> Iterator[None]:
    """Silence what is raised in `__del__`."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


@pytest.fixture
def quick_collections() -> Iterator[None]:
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collections")
@pytest.mark.parametrize("chosen", [PROGRAMS, WORKERS], ids=["programs", "workers"])
def test_an_exception_at_any_line_frees_nothing_that_is_needed(chosen: frozenset[str]) -> None:
    right = Passes().run()
    rng = Random(5)
    passes = Passes()
    with freed_memory_is_overwritten(), finalizers_may_raise():
        for place, num_times in _passed(chosen).items():
            if chosen is WORKERS:
                passes = Passes()  # whose memory has to grow
            passes.new_cache()
            _interrupt(passes, place, rng.randrange(num_times))
            gc.collect()
            for found, expected in zip(passes.run(), right, strict=True):
                np.testing.assert_array_equal(found, expected)


def _passed(chosen: frozenset[str]) -> Counter[Place]:
    """How often the passes run each line."""
    passed = Counter(lines_of(Passes().run, chosen))
    for place in list(passed):
        if linecache.getline(*place).strip().startswith("with "):
            del passed[place]
    assert len(passed) > 10
    return passed


def _interrupt(passes: Passes, place: Place, num_before: int) -> None:
    """Raise ^C at `place` when it has been run `num_before` times. It may be run less often this
    time (and nothing is raised): a thread that is awake already is not called."""
    filename, line = place

    def at(frame: FrameType) -> None:
        nonlocal num_before
        if frame.f_lineno == line:
            num_before -= 1
            if num_before < 0:
                raise KeyboardInterrupt

    try:
        with at_every_line(frozenset([filename]), at):
            passes.run()
    except KeyboardInterrupt:
        pass
