"""The command `forerun`, from before the first import to the last line of output.

Imports take most of a second, in which ^C would print a traceback. So this file imports next to
nothing, and the rest of the command is imported once signals are handled.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

from forerun.errors import NO_MEMORY, is_lack_of_memory
from forerun.interrupts import when_safe

_LEAST_ADDRESS_SPACE: Final = 2**28  # with less, numpy's libraries end the process themselves
_MANY_OBJECTS: Final = 200_000  # new objects between two garbage collections
_MISUSE: Final = 2
_INTERRUPTED: Final = 128 + int(signal.SIGINT)
_TERMINATED: Final = 128 + int(signal.SIGTERM)


def main() -> None:
    # The objects of a start live on, and collecting garbage among them repeatedly takes 0.2 s.
    gc.set_threshold(_MANY_OBJECTS)
    with ends_by_signals():
        _load()()


def _load() -> Callable[[], None]:
    """Import the command; print a sentence and exit if there is too little memory for that."""
    limit = _address_space()
    try:
        if limit is not None and limit < _LEAST_ADDRESS_SPACE:
            raise MemoryError
        _import_numpy()
        from forerun.cli import main as run
    except KeyboardInterrupt:
        if limit is None:
            raise
        _refuse()  # OpenBLAS interrupts its own process if it gets no memory for its threads
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        _refuse()
    return run


def _import_numpy() -> None:
    """Import numpy with a single BLAS thread: nothing here uses BLAS, and a thread for each core
    takes memory that a small limit lacks. Libraries that are imported later are not affected."""
    threads = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(threads)
    os.environ[threads] = before or "1"
    import numpy  # noqa: F401

    if before is None:
        del os.environ[threads]


def _address_space() -> int | None:
    """Return the bytes that `ulimit -v` allows this process; None if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _refuse() -> NoReturn:
    print(f"forerun: {NO_MEMORY}", file=sys.stderr)
    sys.exit(_MISUSE)


@contextmanager
def ends_by_signals() -> Iterator[None]:
    """End the process on ^C and SIGTERM as shells expect: silently, with exit codes 130 and 143,
    after what is under way has been cleaned up.

    A signal that the parent process ignores stays ignored; for ^C that takes a handler that does
    nothing, which sections that hold signals back can replace. After the block only the interpreter
    is left to exit, so another signal ends it at once.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _ignore)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.default_int_handler, _terminate):
                signal.signal(number, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    when_safe(lambda: sys.exit(_TERMINATED))


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the parent process ignores this signal."""
