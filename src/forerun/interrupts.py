"""^C waits while something is under way that must not be left half done.

Python runs the handlers of signals on the main thread, between any two of its instructions, and
one that raises (^C: KeyboardInterrupt; an alarm: whatever its owner wants) leaves what it hit as it
was at that instruction.

    with Uninterrupted():     what arrives is noted …
        safe_point()          … and comes here, where stopping is as good as going on,
    …                         or here, from the handler that was there before
"""

from __future__ import annotations

# What `signal` wraps: that looks every handler up among its names, which takes ten times as long.
import _signal  # type: ignore[import-not-found]
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final, Self, TypeGuard

# Those whose handlers raise, in programs that have such: ^C, time that is up, an end, a child's.
_NAMES: Final = (
    *("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"),
    *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGCHLD", "SIGIO"),
)
_HELD: Final[tuple[int, ...]] = tuple(getattr(_signal, n) for n in _NAMES if hasattr(_signal, n))
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_handler_of: Final[Callable[[int], Any]] = _signal.getsignal

Handler = Callable[[int, FrameType | None], Any]


class Uninterrupted:
    """A section that ^C does not interrupt, nor another signal whose handler may raise. It is as
    short as can be: at most a step.

    On other threads, and inside another section, there is nothing to do. A signal that is ignored,
    ends the process, or is handled by C is left alone: none of these raises.

    Nothing is raised between the change of a handler and the section, at either end: this handler
    is there before the section begins, and the other one is back when it is over.
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
            except BaseException:  # from a handler that was not changed yet
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
        """Every handler, also where one that is back already raises."""
        try:
            for number, handler in self._previous.items():
                if _handler_of(number) is self:  # else somebody else set one: that one stays
                    _set_handler(number, handler)
            self.is_on = False
        except BaseException:
            self._restore()
            raise

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler: one note for each signal. Who found it during a section may put it back
        behind that."""
        previous = self._previous[number]
        if self.is_on:
            self.note(partial(previous, number, frame))
        else:
            previous(number, frame)

    def note(self, call: Callable[[], Any]) -> None:
        self._noted.append(call)

    def deliver(self) -> None:
        """What was noted, in order, also behind one that raises."""
        while self._noted:
            try:
                self._noted.popleft()()
            except BaseException:
                self.deliver()
                raise


def safe_point() -> None:
    """What a section holds back comes now. Only for loading: a step has no such place."""
    holder = _holder()
    if holder is not None and current_thread() is main_thread():
        holder.deliver()


def when_safe(call: Callable[[], Any]) -> None:
    """Now, or when the section under way is over: for the handler of another signal that raises."""
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
