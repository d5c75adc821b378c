"""The loop that `LLM` and `AsyncEngine` share: requests in, rounds out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import get_ident
from typing import Any, Final, NamedTuple

from forerun.engine.lock import EngineLock
from forerun.engine.request.request import Request
from forerun.engine.step import Core, Round, step
from forerun.errors import InvalidOption, RequestFailed
from forerun.interrupts import Uninterrupted

NOBODY: Final = 0  # no thread has this number


class Stepped(NamedTuple):
    """What one step did: a round for each who advanced, and who is gone since.

    A request that `ended` finished, and its last round is among `rounds`, or has an `error`, or
    was forsaken by who asked.
    """

    rounds: list[Round]
    ended: list[Request]


class Engine:
    """Whoever calls `step` runs a step for all; threads wait for each other.

        add ──▶ step ──▶ … ──▶ finished or failed: it is gone
                  └── abort, at any moment: it is gone when the step is over

    What is gone holds no page, no running place and no drafter's memory. Engines that share a
    kernel set share the `lock`, too. All that changes the core happens while it is held, which ^C
    does not interrupt.
    """

    def __init__(self, core: Core, lock: EngineLock | None = None) -> None:
        self.core = core
        self.lock = lock or EngineLock()
        self.owner: int | None = None  # the thread that runs it; None: any may

    @property
    def is_idle(self) -> bool:
        return not self.core.requests

    def has(self, request: Request) -> bool:
        """Whether it runs or waits."""
        return request.id in self.core.requests

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse what could never run; nothing changes."""
        for request in requests:
            self.core.scheduler.check(request)

    def add(self, requests: Sequence[Request]) -> None:
        """All of them or, if one is refused, none."""
        with self.lock:
            if self.owner not in (None, get_ident()):
                raise InvalidOption(
                    "this model is served by an AsyncEngine; ask that, or close it."
                )
            self.check(requests)
            for request in requests:
                self.core.requests[request.id] = request
                self.core.scheduler.add(request)

    def abort(self, request: Request) -> None:
        """Forget a request that nobody waits for; nothing happens if it is gone already.

        Never waits: a stream may be garbage collected in the middle of a step.
        """
        self.lock.defer(partial(self._abort, request))

    def _abort(self, request: Request) -> None:
        if request.id in self.core.requests:
            self._end(request, "abort")

    def step(self) -> Stepped:
        """Advance whoever is scheduled; a request that cannot go on ends, and the others do."""
        with self.lock:
            return self._step()

    def _step(self) -> Stepped:
        gone = self._end_forsaken()
        if gone and self.is_idle:
            return Stepped([], gone)
        began = self.core.clock()
        try:
            rounds = step(self.core)
        except Exception as error:
            return Stepped([], gone + self._fail_all(error))
        except BaseException:  # stopped half-way: what was under way cannot be trusted
            self._fail_all(RequestFailed("the step was interrupted; ask again."))
            raise
        took = self.core.clock() - began
        running = self._running()
        for request in running:
            request.stats.seconds += took
        return Stepped(rounds, gone + self._end_those_done(running))

    def _end_forsaken(self) -> list[Request]:
        """What another thread serves is left to that."""
        if self.owner not in (None, get_ident()):
            return []
        forsaken = [request for request in self.core.requests.values() if request.is_forsaken]
        for request in forsaken:
            self._end(request, "abort")
        return forsaken

    def _end_unserved(self) -> None:
        """The forsaken, where no thread serves them: one that does hears of their end by a step."""
        if self.owner is None:
            self._end_forsaken()

    def _running(self) -> list[Request]:
        return [self.core.requests[request_id] for request_id in self.core.scheduler.running]

    def _end_those_done(self, running: Sequence[Request]) -> list[Request]:
        done = [request for request in running if request.is_over]
        for request in done:
            if request.error is not None:
                request.error = failure(request.error)
                self._end(request, "error")
            else:
                assert request.finish_reason is not None
                self._end(request, request.finish_reason)
        return done

    def _fail_all(self, error: Exception) -> list[Request]:
        """The step itself failed, and nobody can say whose fault it is: those who ran end.

        If nobody ran, all do: the next step would fail the same way.
        """
        failed = self._running() or list(self.core.requests.values())
        for request in failed:
            request.error = failure(error)
            self._end(request, "error")
        return failed

    def _end(self, request: Request, outcome: str) -> None:
        """The target's pool looks its requests up, so its rows go before its name."""
        try:
            self.core.scheduler.remove(request.id)
            if request.params.is_unshared:
                self.core.cache.prefixes.tree.forget(request.cache_salt)
            speculation = self.core.speculation
            num_failures = speculation.end(request) if speculation else 0
        finally:
            del self.core.requests[request.id]
        self.core.metrics.ended(outcome, num_failures)

    def reset_prefix_cache(self) -> None:
        """From any thread, between two steps: whoever holds a page keeps it."""
        with self.lock:
            self.core.cache.prefixes.tree.clear()

    def snapshot(self) -> dict[str, Any]:
        """The metrics, and how full the engine is."""
        core = self.core
        self.lock.defer(self._end_unserved)
        with Uninterrupted():
            return {
                **core.metrics.snapshot(),
                "num_running": len(core.scheduler.running),
                "num_waiting": core.scheduler.num_waiting,
                "num_pages": core.cache.pool.num_pages,
                "num_free_pages": core.cache.pool.num_free,
                "left_out": dict(core.speculation.left_out) if core.speculation else {},
            }

    def in_use(self) -> dict[str, int]:
        """What requests hold, counted between two steps by those who hold it."""
        with self.lock:
            self._end_forsaken()
        with self.lock:  # deferred calls were made at the end of the last one
            return self._in_use()

    def _in_use(self) -> dict[str, int]:
        core, pool = self.core, self.core.cache.pool
        return {
            "requests": len(core.requests),
            "running": len(core.scheduler.running),
            "waiting": core.scheduler.num_waiting,
            "pages": pool.num_pages - pool.num_free,
            **({} if core.speculation is None else core.speculation.in_use()),
        }


def failure(error: Exception) -> RequestFailed:
    """What a caller sees of an error inside the engine; the error itself is its cause."""
    if isinstance(error, RequestFailed):
        return error
    failed = RequestFailed(f"the request failed ({type(error).__name__}: {error}).")
    failed.__cause__ = error
    return failed
