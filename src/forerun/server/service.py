"""What all routes share: the engine once it is loaded, its names, limits, and worker threads."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from typing import Final, TypeVar
from weakref import WeakSet

from forerun.engine.api.async_engine import AsyncEngine
from forerun.server.errors import ApiError, shutting_down, too_many, unavailable
from forerun.server.operation.config import Limits
from forerun.server.operation.counters import Counters
from forerun.version import VERSION

Result = TypeVar("Result")
_LONG_BODY: Final = 1 << 16  # bytes


class Lane(StrEnum):
    """A worker thread that reads bodies one after the other. Each kind of body has its own, so that
    short bodies do not wait for long ones."""

    SHORT = "short"
    LONG = "long"
    GRAMMAR = "grammar"

    @classmethod
    def of(cls, body: bytes) -> Lane:
        return cls.LONG if len(body) > _LONG_BODY else cls.SHORT


class State(StrEnum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"


class Service:
    """`names` are the model's names for clients; the first is that of requests without `model`.

    loading ──▶ ready ──▶ draining
    """

    def __init__(self, names: Sequence[str], limits: Limits, counters: Counters) -> None:
        self.names = tuple(names)
        self.limits = limits
        self.counters = counters
        self.created = int(time.time())
        self.state = State.LOADING
        self.num_open = 0  # HTTP requests
        self._num_unread = dict.fromkeys(Lane, 0)  # bodies that wait or are being read
        self.has_given_up = False
        self._awaited: WeakSet[asyncio.Timeout] = WeakSet()  # of bodies that still arrive
        self.fingerprint = ""
        self._engine: AsyncEngine | None = None
        self._readers = {lane: ThreadPoolExecutor(1, f"forerun-{lane}-reader") for lane in Lane}

    def start(self, engine: AsyncEngine, backend: str) -> None:
        """Take the loaded engine; `backend` names what the bits of its answers depend on."""
        self._engine = engine
        self.fingerprint = f"fp_{_digest(VERSION, *self.names, backend)}"
        if self.state is State.LOADING:
            self.state = State.READY

    def drain(self) -> None:
        self.state = State.DRAINING

    def give_up(self) -> None:
        """Stop waiting for bodies that still arrive."""
        self.has_given_up = True
        now = asyncio.get_running_loop().time()
        for time_left in list(self._awaited):
            with suppress(RuntimeError):  # its body has arrived
                time_left.reschedule(now)

    def time_for_a_body(self) -> asyncio.Timeout:
        time_left = asyncio.timeout(self.limits.body_timeout_s)
        self._awaited.add(time_left)
        return time_left

    @property
    def loaded(self) -> AsyncEngine | None:
        """The engine in any state, for probes; None before it is loaded."""
        return self._engine

    @property
    def engine(self) -> AsyncEngine:
        """The engine, for requests; `ApiError` while the server loads or drains."""
        if self.state is State.DRAINING:
            raise shutting_down()
        if self._engine is None:
            raise unavailable("the model is still loading; /ready says when it is there.")
        return self._engine

    def model_named(self, name: str | None) -> str:
        """Return the model's name for an answer; `ApiError` if it is not served here."""
        if name is None:
            return self.names[0]
        if name not in self.names:
            known = ", ".join(self.names)
            raise ApiError(
                404,
                f"the model {name[:200]!r} is not served here; ask for {known}.",
                "model_not_found",
                "model",
            )
        return name

    async def read(self, work: Callable[[], Result], lane: Lane) -> Result:
        """Run `work`, which reads a body, in the lane's worker thread.

        Waiting bodies take memory, so there are at most as many as requests that may be open;
        further ones are refused. Bodies accepted before the server drains are still read.
        """
        num = self._num_unread[lane]
        if self._engine is not None and num >= self._engine.max_num_open:
            raise too_many(f"{num} bodies wait to be read; try again later.")
        self._num_unread[lane] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers[lane], work)
        finally:
            self._num_unread[lane] -= 1

    def close(self) -> None:
        for reader in self._readers.values():
            reader.shutdown(wait=False, cancel_futures=True)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
