"""Somebody who looks whether the engine's thread still moves."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


class Watchdog:
    """Calls `look` every `period_s` from a thread of its own, until it is stopped."""

    def __init__(self, look: Callable[[], None], period_s: float) -> None:
        self._look = look
        self._period_s = period_s
        self._stop = Event()
        Thread(target=self._watch, name="forerun-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(self._period_s):
            self._look()
