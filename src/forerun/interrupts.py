"""Holding back ^C while something is under way that must not be left half done.

Python runs signal handlers on the main thread, between any two bytecode instructions. One that
raises (^C: KeyboardInterrupt; an alarm: any exception) leaves the state as it was at that
instruction.

    with Uninterrupted():     a signal that arrives is noted …
        safe_point()          … and handled here, where stopping is as good as going on,
    …                         or here, after the section, by the handler that was there before
"""

from __future__ import annotations

# The module that `signal` wraps: `signal` turns each handler into an enum, ten times as slow.
import _signal  # type: ignore[import-not-found]
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final, Self, TypeGuard

# Signals for which programs may have handlers that raise: interrupts, ends, timers, children.
_NAMES: Final = (
    *("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"),
    *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGCHLD", "SIGIO"),
)
_HELD: Final[tuple[int, ...]] = tuple(getattr(_signal, n) for n in _NAMES if hasattr(_signal, n))
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_handler_of: Final[Callable[[int], Any]] = _signal.getsignal

Handler = Callable[[int, FrameType | None], Any]


class Uninterrupted:
    """A section that neither ^C nor another signal with a handler in Python interrupts.

    Keep it short: at most a step. On other threads, and inside another section, it does nothing.
    Signals that are ignored, end the process, or are handled in C are left alone: none raises.

    Nothing is raised between the change of a handler and the section, at either end: this handler
    is in place before the section begins, and the previous one is back once it is over.
    """

    __slots__ = ("_noted", "_previous", "is_on")

    def __init__(self) -> None:
        self.is_on = False  # whether this is the section that holds signals back
        self._previous: dict[int, Handler] = {}
        self._noted: deque[Callable[[], Any]] = deque()

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            try:
                for number in _HELD:
                    handler = _handler_of(number)
                    if callable(handler) and not _is_holder(handler):
                        self._previous[number] = handler
                        self.is_on = True
                        _set_handler(number, self)
            except BaseException:  # raised by a handler that was not replaced yet
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_on:
            try:
                self._restore()
            finally:
                self.deliver()

    def _restore(self) -> None:
        """Restore every handler, also if one that is already restored raises."""
        try:
            for number, handler in self._previous.items():
                if _handler_of(number) is self:  # a handler set in the meantime stays
                    _set_handler(number, handler)
            self.is_on = False
        except BaseException:
            self._restore()
            raise

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: note it, or pass it on if the section is over and other code has
        restored this handler that it found during the section."""
        previous = self._previous[number]
        if self.is_on:
            self.note(partial(previous, number, frame))
        else:
            previous(number, frame)

    def note(self, call: Callable[[], Any]) -> None:
        self._noted.append(call)

    def deliver(self) -> None:
        """Handle all noted signals in order, also those after one whose handler raises."""
        while self._noted:
            try:
                self._noted.popleft()()
            except BaseException:
                self.deliver()
                raise


def safe_point() -> None:
    """Handle the signals that the section under way holds back. For loading; steps have none."""
    holder = _holder()
    if holder is not None and current_thread() is main_thread():
        holder.deliver()


def when_safe(call: Callable[[], Any]) -> None:
    """Make `call` now, or after the section under way: for a signal handler that may raise."""
    holder = _holder()
    if holder is None:
        call()
    else:
        holder.note(call)


def _holder() -> Uninterrupted | None:
    handlers = map(_handler_of, _HELD)
    return next((each for each in handlers if _is_holder(each)), None)


def _is_holder(handler: object) -> TypeGuard[Uninterrupted]:
    return isinstance(handler, Uninterrupted) and handler.is_on
