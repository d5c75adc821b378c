"""Kernels that the host launches, and how they are compiled before that, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import torch
import triton

_MOST_THREADS: Final = 16
_is_compiling: ContextVar[bool] = ContextVar("is_compiling", default=False)


class Kernel:
    """`kernel[grid](…)` as Triton has it; inside `compiled_ahead` nothing is launched."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if _is_compiling.get():
            return partial(self._function.warmup, grid=grid)
        launch: Callable[..., Any] = self._function[grid]
        return launch


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """With the options of `triton.jit`."""
    return lambda function: Kernel(triton.jit(function, **options))


def is_compiling() -> bool:
    return _is_compiling.get()


@contextmanager
def compiled_ahead(device: torch.device) -> Iterator[None]:
    """What is launched inside and was not compiled yet is so when this is over, and on the device.
    A kernel that cannot be compiled says so when it is launched."""
    num = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with (
        ThreadPoolExecutor(num, initializer=torch.cuda.set_device, initargs=(device,)) as pool,
        triton.AsyncCompileMode(_Loading(pool), ignore_errors=True),
    ):
        token = _is_compiling.set(True)
        try:
            yield
        finally:
            _is_compiling.reset(token)


class _Loading(Executor):
    """Compiles by the threads of `pool`, which load the result as well: Triton has a program for
    the host compiled that launches it, and would do so one by one at first launches."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        def loaded() -> Any:
            found = fn(*args, **keywords)
            _ = found.run  # loads it
            return found

        return self._pool.submit(loaded)
