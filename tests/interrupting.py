"""^C at a chosen moment: by a timer, or at any line of chosen files.

Both are real signals. Python handles signals between two instructions of the main thread, and the
start of a line is such a place, so a trace hook can interrupt at every line.
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
    """Return the paths of all modules under these folders of the package, or of these modules."""
    found = [path for folder in folders for path in (PACKAGE / folder).rglob("*.py")]
    found += [PACKAGE / folder for folder in folders if folder.endswith(".py")]
    assert found, folders
    assert all(path.is_file() for path in found), folders
    return frozenset(map(str, found))


def lines_of(work: Callable[[], object], chosen: frozenset[str]) -> list[Place]:
    """Return every line of the chosen files that `work` executes, in order."""
    seen: list[Place] = []
    with at_every_line(chosen, lambda frame: seen.append(_place(frame))):
        work()
    return seen


def interrupted_at(work: Callable[[], object], chosen: frozenset[str], number: int) -> Place:
    """Repeat `work`; after `number` lines of the chosen files, raise ^C at the next line.

    It must end `work` with a KeyboardInterrupt. Return the interrupted line.
    """
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
    """Repeat `work` until ^C ends it, `seconds` from now."""
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
    """Call `call` at each line of the chosen files; its exception is raised at that line."""

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
