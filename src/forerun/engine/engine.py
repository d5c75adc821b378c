"""The engine that `LLM` and `AsyncEngine` drive: requests in, rounds out."""

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
    """What one step did: the rounds that emitted tokens, and the requests that ended.

    A request in `ended` has finished (its last round is among `rounds`), or has failed (its
    `error` says why), or was forsaken: its caller is gone.
    """

    rounds: list[Round]
    ended: list[Request]


class Engine:
    """Holds requests; each call of `step`, from any thread, runs one step for all of them.

        add ──▶ step ──▶ … ──▶ finished or failed: removed
                  └── abort, at any moment: removed when the step is over

    A removed request holds no page, no running place and no drafter's memory. Engines that share a
    kernel set share the `lock`, too. The core changes only while the lock is held, and ^C does not
    interrupt that.
    """

    def __init__(self, core: Core, lock: EngineLock | None = None) -> None:
        self.core = core
        self.lock = lock or EngineLock()
        self.owner: int | None = None  # the thread that serves it; None: any thread may

    @property
    def is_idle(self) -> bool:
        return not self.core.requests

    def has(self, request: Request) -> bool:
        """Whether the request runs or waits here."""
        return request.id in self.core.requests

    def check(self, requests: Sequence[Request]) -> None:
        """Raise `RequestTooLarge` for a request that could never run; change nothing."""
        for request in requests:
            self.core.scheduler.check(request)

    def add(self, requests: Sequence[Request]) -> None:
        """Add all requests, or none if one of them is rejected."""
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
        """Remove a request whose answer is not wanted any more; ignored if it has ended already.

        Never blocks: a stream may be garbage collected in the middle of a step.
        """
        self.lock.defer(partial(self._abort, request))

    def _abort(self, request: Request) -> None:
        if request.id in self.core.requests:
            self._end(request, "abort")

    def step(self) -> Stepped:
        """Run one step for all scheduled requests; a request that fails ends, the others go on."""
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
        except BaseException:  # stopped half-way, so the state of running requests is unknown
            self._fail_all(RequestFailed("the step was interrupted; ask again."))
            raise
        took = self.core.clock() - began
        running = self._running()
        for request in running:
            request.stats.seconds += took
        return Stepped(rounds, gone + self._end_those_done(running))

    def _end_forsaken(self) -> list[Request]:
        """End requests whose caller is gone, unless another thread serves this engine."""
        if self.owner not in (None, get_ident()):
            return []
        forsaken = [request for request in self.core.requests.values() if request.is_forsaken]
        for request in forsaken:
            self._end(request, "abort")
        return forsaken

    def _end_unserved(self) -> None:
        """End forsaken requests if no thread serves the engine: a serving thread has to learn of
        their end from its own step."""
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
        """End all running requests with `error`, as no single request is known to be the cause.

        If none was running, end the waiting ones: the next step would fail in the same way.
        """
        failed = self._running() or list(self.core.requests.values())
        for request in failed:
            request.error = failure(error)
            self._end(request, "error")
        return failed

    def _end(self, request: Request, outcome: str) -> None:
        """Remove a request: its pages first, since the target's pool finds it in `requests`."""
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
        """Forget all cached prefixes, between two steps; requests keep the pages they hold."""
        with self.lock:
            self.core.cache.prefixes.tree.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return the metrics, and how full the engine is."""
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
        """Count what requests hold in each part of the engine, between two steps."""
        with self.lock:
            self._end_forsaken()
        with self.lock:  # a second time: releasing the lock made the deferred calls
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
    """Return the `RequestFailed` that a caller sees; the error inside the engine is its cause."""
    if isinstance(error, RequestFailed):
        return error
    failed = RequestFailed(f"the request failed ({type(error).__name__}: {error}).")
    failed.__cause__ = error
    return failed
