"""^C waits while something is under way that must not be left half done.

Python runs the handlers of signals on the main thread, between any two of its instructions, and
one that raises (^C: KeyboardInterrupt) leaves what it hit as it was at that instruction.

    with Uninterrupted():     what arrives is noted …
        safe_point()          … and comes here, where stopping is as good as going on,
    …                         or here, from the handler that was there before
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from inspect import currentframe, unwrap
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final, Self

# SIGTERM too, where a program has a handler that raises: the command line's does.
_NUMBERS: Final = (int(signal.SIGTERM), int(signal.SIGINT))

# What the public functions wrap; they make names of numbers, which takes ten times as long.
_set_handler: Final[Callable[[int, Any], Any]] = unwrap(signal.signal)
_handler_of: Final[Callable[[int], Any]] = unwrap(signal.getsignal)


class Uninterrupted:
    """A section that no signal's handler interrupts. It is as short as can be: at most a step.

    On other threads, and inside another section, there is nothing to do. Signals that are
    ignored, end the process, or are handled by C are left alone: none of these raises.

    No exception can come between the change of the handler and the section, at either end: until
    the last handler is back, this one is there.
    """

    __slots__ = ("_noted", "_previous")

    def __init__(self) -> None:
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._noted: deque[int] = deque()

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            try:
                for number in _NUMBERS:
                    handler = _handler_of(number)
                    if callable(handler) and not isinstance(handler, Uninterrupted):
                        self._previous[number] = handler
                        _set_handler(number, self)
            except BaseException:  # a signal's, before its handler was changed
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous:
            self._restore()
            self.deliver()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler: one note for each signal."""
        self._noted.append(number)

    @property
    def is_on(self) -> bool:
        """Whether this is the section that holds signals back."""
        return bool(self._previous)

    def deliver(self) -> None:
        """What was noted, to the handlers that were there before, until one of them raises."""
        while self._noted:
            number = self._noted.popleft()
            self._previous[number](number, currentframe())

    def _restore(self) -> None:
        """Unless somebody else has set a handler meanwhile: that one stays."""
        first, last = _NUMBERS
        try:
            self._put_back(first)
        finally:
            self._put_back(last)

    def _put_back(self, number: int) -> None:
        if _handler_of(number) is self:
            _set_handler(number, self._previous[number])


def safe_point() -> None:
    """A signal that a section holds back comes now. Only for loading: a step has no such place."""
    if current_thread() is main_thread():
        for number in _NUMBERS:
            holder = _handler_of(number)
            if isinstance(holder, Uninterrupted):
                holder.deliver()
