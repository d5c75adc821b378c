"""^C waits while something is under way that must not be left half done.

Python runs the handlers of signals on the main thread, between any two of its instructions, and
one that raises (^C: KeyboardInterrupt) leaves what it hit as it was at that instruction.

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
from typing import Any, Final, Self

_SIGINT: Final[int] = _signal.SIGINT
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_handler_of: Final[Callable[[int], Any]] = _signal.getsignal


class Uninterrupted:
    """A section that ^C does not interrupt. It is as short as can be: at most a step.

    On other threads, and inside another section, there is nothing to do. A SIGINT that is
    ignored, ends the process, or is handled by C is left alone: none of these raises.

    Nothing is raised between the change of the handler and the section, at either end: this
    handler is there before the section begins, and the other one is back when it is over.
    """

    __slots__ = ("_noted", "_previous")

    def __init__(self) -> None:
        self._previous: Callable[[int, FrameType | None], Any] | None = None
        self._noted: deque[Callable[[], Any]] = deque()

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            handler = _handler_of(_SIGINT)
            if callable(handler) and not isinstance(handler, Uninterrupted):
                self._previous = handler
                _set_handler(_SIGINT, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_on:
            if _handler_of(_SIGINT) is self:  # else somebody else set one: that one stays
                _set_handler(_SIGINT, self._previous)
            self.deliver()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler: one note for each signal."""
        assert self._previous is not None
        self.note(partial(self._previous, number, frame))

    @property
    def is_on(self) -> bool:
        """Whether this is the section that holds signals back."""
        return self._previous is not None

    def note(self, call: Callable[[], Any]) -> None:
        self._noted.append(call)

    def deliver(self) -> None:
        """What was noted, in order, until something is raised: that is what all of it is for."""
        while self._noted:
            self._noted.popleft()()


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
    handler = _handler_of(_SIGINT)
    return handler if isinstance(handler, Uninterrupted) else None
