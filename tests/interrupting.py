"""^C at a chosen moment: by a timer, or at any line of chosen files.

Both are real signals, handled where Python handles them: between two instructions of the main
thread. A line is such a place, so a hook that is called at each of them hits every one.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import forerun

PACKAGE = Path(forerun.__file__).parent
Place = tuple[str, int]


def files(*folders: str) -> frozenset[str]:
    """All modules under these folders of the package, or these modules."""
    found = [path for folder in folders for path in (PACKAGE / folder).rglob("*.py")]
    found += [PACKAGE / folder for folder in folders if folder.endswith(".py")]
    assert found, folders
    assert all(path.is_file() for path in found), folders
    return frozenset(map(str, found))


def lines_of(work: Callable[[], object], chosen: frozenset[str]) -> list[Place]:
    """Every line of the chosen files that `work` comes by, in order."""
    seen: list[Place] = []
    with at_every_line(chosen, lambda frame: seen.append(_place(frame))):
        work()
    return seen


def interrupted_at(work: Callable[[], object], chosen: frozenset[str], number: int) -> Place:
    """Do `work` again and again until it has come by so many lines; the next one is ^C, which must
    end it with a KeyboardInterrupt. Returns where that was."""
    num_seen, places = 0, list[Place]()

    def count(frame: FrameType) -> None:
        nonlocal num_seen
        num_seen += 1
        if num_seen == number + 1:
            places.append(_place(frame))
            signal.raise_signal(signal.SIGINT)

    try:
        with at_every_line(chosen, count):
            while not places:
                work()
        raise AssertionError(f"^C was lost, {places}")
    except KeyboardInterrupt:
        return places[0]


def interrupted_after(work: Callable[[], object], seconds: float) -> None:
    """Do `work` again and again until ^C ends it, so many seconds from now."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            work()
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def at_every_line(chosen: frozenset[str], call: Callable[[FrameType], None]) -> Iterator[None]:
    """What `call` raises is raised there, and is the last."""

    def inside(frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            call(frame)
        return inside

    def enter(frame: FrameType, _event: str, _arg: Any) -> Any:
        return inside if frame.f_code.co_filename in chosen else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def _place(frame: FrameType) -> Place:
    return frame.f_code.co_filename, frame.f_lineno
