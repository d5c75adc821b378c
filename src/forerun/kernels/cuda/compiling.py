"""Kernels that the host launches, and how they are compiled in parallel before that."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from multiprocessing import current_process, get_context
from typing import Any, Final

import torch
import triton
from triton.runtime.cache import get_cache_manager

from forerun.usable_cores import cores_at_once, cpu_quota, num_usable_cores

_MOST_WORKERS: Final = 16
_FEW: Final = 4  # kernels; threads compile these sooner than processes would start
_is_compiling: ContextVar[bool] = ContextVar("is_compiling", default=False)
_jobs: list[Callable[[], object]] = []  # inherited by processes that are forked while they are set


class Kernel:
    """A Triton kernel, launched by `kernel[grid](…)`; inside `compiled_ahead` only compiled."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if _is_compiling.get():
            return partial(self._function.warmup, grid=grid)
        launch: Callable[..., Any] = self._function[grid]
        return launch


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a kernel; `options` are those of `triton.jit`."""
    return lambda function: Kernel(triton.jit(function, **options))


def is_compiling() -> bool:
    return _is_compiling.get()


@contextmanager
def compiled_ahead(device: torch.device) -> Iterator[None]:
    """Launch nothing inside; on exit, compile and load all kernels that would have been launched.

    The error of a kernel that cannot be compiled is raised when it is launched.
    """
    idx = torch.cuda.current_device() if device.index is None else device.index
    collected = _Collected()
    with _Mode(collected, ignore_errors=True) as mode:
        token = _is_compiling.set(True)
        try:
            yield
        except BaseException:
            collected.forget()
            raise
        finally:
            _is_compiling.reset(token)
        collected.run(mode.missing, idx)


class _Collected(Executor):
    """An executor that only collects jobs; `run` does them all."""

    def __init__(self) -> None:
        self._all: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._all.append((partial(fn, *args, **keywords), future))
        return future

    def forget(self) -> None:
        for _, future in self._all:
            future.set_exception(CancelledError())

    def run(self, missing: Sequence[int], device_idx: int) -> None:
        """Compile the jobs that are `missing` on the disk in processes, then load all in threads.

        In threads the compiler's Python would run on one core at a time. Loading is worth threads
        too: Triton runs a C compiler for the host program that launches a kernel.
        """
        num = min(_MOST_WORKERS, cores_at_once(num_usable_cores(), cpu_quota()))
        if len(missing) > _FEW:
            _compile([self._all[idx][0] for idx in missing], num)
        begin = partial(torch.cuda.set_device, device_idx)
        with ThreadPoolExecutor(num, initializer=begin) as threads:
            for job, future in self._all:
                threads.submit(_load, job, future)


class _Mode(triton.AsyncCompileMode):  # type: ignore[misc]  # Triton has no types
    """Triton's mode of compiling later; `missing` are the numbers of jobs not on the disk."""

    def __init__(self, executor: Executor, **options: Any) -> None:
        super().__init__(executor, **options)
        self.missing: list[int] = []

    def submit(self, key: str, *functions: Callable[..., Any]) -> Any:
        if key not in self.future_kernels and not _is_on_disk(key):
            self.missing.append(len(self.future_kernels))
        return super().submit(key, *functions)


def _is_on_disk(key: str) -> bool:
    folder = get_cache_manager(sha256(key.encode()).hexdigest()).cache_dir
    return any(name.startswith("__grp__") for name in os.listdir(folder))


def _load(job: Callable[[], Any], future: Future[Any]) -> None:
    try:
        found = job()
        _ = found.run  # loads it
        future.set_result(found)
    except Exception as error:  # raised again where the kernel is launched
        future.set_exception(error)


def _compile(jobs: Sequence[Callable[[], object]], num_processes: int) -> None:
    """Compile in forked processes, which use no device and leave their results on the disk."""
    if not hasattr(os, "fork") or current_process().daemon:
        return
    _jobs[:] = jobs
    try:
        with (
            warnings.catch_warnings(),
            ProcessPoolExecutor(num_processes, mp_context=get_context("fork")) as processes,
        ):
            # About forking beside threads: the children need no lock that those may hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            for _ in processes.map(_run_job, range(len(jobs))):
                pass
    finally:
        _jobs.clear()


def _run_job(idx: int) -> None:
    with suppress(Exception):  # raised again where the kernel is launched
        _jobs[idx]()
