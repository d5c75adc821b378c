"""Chunks are taken from both ends of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen.compiled import Compiled, address_of
from forerun.kernels.cpu.codegen.native import fetch_add
from forerun.kernels.cpu.codegen.step import arg
from forerun.kernels.cpu.runtime.program import Program
from forerun.usable_cores import num_usable_cores
from tests.contracts.kernel_sets import CACHE_DIR

needs_two_cores = pytest.mark.skipif(num_usable_cores() < 2, reason="one core runs one thread")


def count(step: Any, chunk: Any, _scratch: Any) -> None:
    """Count the runs of a chunk, and note its turn."""
    fetch_add(arg(step, 0) + 8 * chunk, 1 + fetch_add(arg(step, 1), 1))


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """Not cached on disk: cache keys cover only the sources of the package."""
    return Compiled("count", count, 3, None)


@pytest.mark.parametrize("num_threads", [1, pytest.param(2, marks=needs_two_cores)])
def test_every_chunk_is_run_once(num_threads: int, compiled: Compiled) -> None:
    kernels = CpuKernels(num_threads, cache_dir=CACHE_DIR)
    for num_chunks in (1, 2, 3, 7, 64, 1000):
        places, clock = np.zeros((2, num_chunks), np.int64), np.zeros(2, np.int64)
        program = Program(kernels._workers, kernels._buffers)
        for row in range(2):
            addresses = address_of(places[row]), address_of(clock[row:])
            program.add(compiled.address, num_chunks, *addresses)
        program.run()
        for found in places.tolist():
            assert sorted(found) == list(range(1, num_chunks + 1))


@needs_two_cores
@pytest.mark.parametrize(("thread", "first"), [(0, 0), (1, 50)])
def test_every_other_thread_begins_at_the_back(thread: int, first: int, compiled: Compiled) -> None:
    """A thread that is alone runs all chunks, taking half of those left at a time."""
    kernels = CpuKernels(2, cache_dir=CACHE_DIR)
    places, clock = np.zeros(100, np.int64), np.zeros(1, np.int64)
    workers = kernels._workers
    program = Program(workers, kernels._buffers)
    program.add(compiled.address, 100, address_of(places), address_of(clock))
    workers._prepare(program._taken(), 0)
    workers._run(workers._address, thread)
    assert sorted(places.tolist()) == list(range(1, 101))
    assert places.argmin() == first
