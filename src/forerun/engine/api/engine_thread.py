"""The worker thread that runs an engine's steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Condition, Event, Thread, get_ident
from typing import Final

from forerun.engine.api.events import EventBuilder
from forerun.engine.api.mailbox import Bell, Mailbox, ring
from forerun.engine.engine import NOBODY, Engine, Stepped, failure
from forerun.engine.request.request import Request
from forerun.engine.step import Round
from forerun.errors import (
    EngineClosed,
    EngineHung,
    EngineOverloaded,
    ForerunError,
    InvalidOption,
)
from forerun.interrupts import Uninterrupted

_MOMENT: Final = 0.05  # seconds


@dataclass(frozen=True)
class Post:
    """A request, and the mailbox for its rounds."""

    request: Request
    mailbox: Mailbox[Round]
    event_builder: EventBuilder


class EngineThread:
    """Runs an engine in a thread of its own; other threads only queue and cancel requests.

        ask ──▶ arrivals ─┐
                          ├─▶ [ add · abort · step · deliver ] ──▶ mailboxes
        leave ─▶ leavers ─┘

    All shared state is guarded by one lock, which is never held during a step. It is reentrant,
    because garbage collection may need it in any thread. A stream that is dropped need not call
    `leave`: the next step finds its request forsaken.
    """

    def __init__(self, engine: Engine, max_num_open: int, step_timeout_s: float | None) -> None:
        self._engine = engine
        self._max_num_open = max_num_open
        self._step_timeout_s = step_timeout_s
        self._changed = Condition()
        self._arrivals: list[Post] = []
        self._leavers: list[Request] = []
        self._open: dict[int, Post] = {}  # taken and not yet ended, by request id
        self._refusal: str | None = None  # why no more requests are taken
        self._is_closing = False
        self._is_over = False
        self._step_began: float | None = None
        self._is_hung = False
        self._has_ended = Event()
        if step_timeout_s is not None:
            watch = partial(self._watch, step_timeout_s / 4)
            Thread(target=watch, name="forerun-watchdog", daemon=True).start()
        self._thread = Thread(target=self._run, name="forerun-engine", daemon=True)
        engine.owner = NOBODY  # claimed at once; the thread puts its own id here when it runs
        try:
            self._thread.start()
        except BaseException:  # the system has no thread left
            engine.owner = None
            self._has_ended.set()
            raise

    # ------------------------------------------------------------------- from any thread

    @property
    def is_healthy(self) -> bool:
        return self._thread.is_alive() and not self._is_hung

    def ask(self, posts: Sequence[Post]) -> None:
        """Queue these requests: all, or none if there is no room for all."""
        with Uninterrupted(), self._changed:
            if self._refusal is not None:
                raise EngineClosed(self._refusal)
            if self._is_hung:
                raise self._hung()
            self._check_room(len(posts))
            self._open |= {post.request.id: post for post in posts}
            self._arrivals += posts
            self._changed.notify_all()

    def _check_room(self, num_posts: int) -> None:
        """Raise if so many more may not wait. Requests that came and left during one long step
        count by half, so that they cannot pile up."""
        if num_posts > self._max_num_open:
            raise InvalidOption(
                f"n={num_posts} is not allowed, as {self._max_num_open} requests may run or wait; "
                f"lower it, or raise max_num_waiting."
            )
        num_open, num_come = len(self._open), len(self._arrivals)
        if max(num_open, num_come // 2) + num_posts > self._max_num_open:
            raise EngineOverloaded(
                f"{num_open} requests run or wait, and {self._max_num_open} may; "
                f"try again later, or raise max_num_waiting."
            )

    def leave(self, request: Request) -> None:
        """Cancel a request; nothing happens if it has ended."""
        with Uninterrupted(), self._changed:
            if self._open.pop(request.id, None) is not None:
                self._leavers.append(request)
                self._changed.notify_all()

    def refuse(self, why: str) -> None:
        """Take no more requests; those that were taken go on."""
        with Uninterrupted(), self._changed:
            self._refusal = self._refusal or why

    def wait_until_empty(self) -> None:
        """Wait until all requests have ended or left, and hold nothing; return if a step hangs."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_empty() or self._is_hung or self._is_over)

    def begin_to_close(self) -> None:
        """Start to end all requests, then the thread, without waiting for it."""
        with Uninterrupted():
            for post in self.abandon():
                post.mailbox.fail(EngineClosed("the engine was closed before this answer ended."))

    def abandon(self) -> list[Post]:
        """As `begin_to_close`, but tell no reader; return the posts that were open.

        Safe in a finalizer, as it takes no lock but the reentrant one.
        """
        with Uninterrupted(), self._changed:
            self.refuse("the engine was closed; start another one.")
            self._is_closing = True
            return self._dismissed()

    def wait_until_closed(self) -> None:
        """Wait until the thread has ended, unless a step hangs."""
        while self.is_healthy:
            self._thread.join(_MOMENT)

    def _watch(self, period_s: float) -> None:
        """Look at the step again and again, in a thread of its own, as the engine's may hang."""
        while not self._has_ended.wait(period_s):
            self.look()

    def look(self) -> None:
        """End all streams if the step under way takes too long."""
        with self._changed:
            began, limit = self._step_began, self._step_timeout_s
            if began is None or limit is None or time.monotonic() - began <= limit:
                return
            self._is_hung = True
            posts = self._dismissed()
        for post in posts:
            post.mailbox.fail(self._hung())

    def _hung(self) -> EngineHung:
        return EngineHung(
            f"a step of the engine takes longer than {self._step_timeout_s} s; restart it, or "
            f"raise step_timeout_s if steps may take that long."
        )

    def _dismissed(self) -> list[Post]:
        """Cancel all open requests; return their posts. Tell their readers only once the lock is
        released, since waking an event loop takes a lock of its own."""
        posts = list(self._open.values())
        self._leavers += [post.request for post in posts]
        self._open.clear()
        self._changed.notify_all()
        return posts

    def _is_empty(self) -> bool:
        return not (self._open or self._arrivals or self._leavers) and self._engine.is_idle

    # ---------------------------------------------------------------- in the engine's thread

    def _run(self) -> None:
        self._engine.owner = get_ident()
        try:
            while self._take_in():
                self._step()
        except BaseException as error:
            self.refuse(f"the engine stopped ({type(error).__name__}: {error}); start another one.")
            raise
        finally:
            self._has_ended.set()
            self._engine.owner = None
            with self._changed:
                self._is_over = True
                posts = self._dismissed()
            for post in posts:
                post.mailbox.fail(EngineClosed(self._refusal or "the engine was closed."))

    def _take_in(self) -> bool:
        """Wait for work, then add and abort requests; return False once the engine has closed."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            arrivals, self._arrivals = self._arrivals, []
            leavers, self._leavers = self._leavers, []
        with self._engine.lock:  # on release, the aborted requests are removed
            for post in arrivals:
                self._add(post)
            for request in leavers:
                self._engine.abort(request)
        with self._changed:
            self._changed.notify_all()
            return not (self._is_closing and self._is_empty())

    def _add(self, post: Post) -> None:
        try:
            self._engine.add([post.request])
        except Exception as error:
            self._fail(post, failure(error))

    def _fail(self, post: Post, error: ForerunError) -> None:
        post.mailbox.fail(error)
        self.leave(post.request)

    def _has_work(self) -> bool:
        waiting = self._arrivals or self._leavers or self._is_closing
        return bool(waiting) or not self._engine.is_idle

    def _step(self) -> None:
        if self._engine.is_idle:
            return
        with self._changed:
            self._step_began = time.monotonic()
        try:
            stepped = self._engine.step()
        finally:
            with self._changed:  # a step that comes back late was slow, not hung
                self._step_began, self._is_hung = None, False
        self._deliver(stepped)

    def _deliver(self, stepped: Stepped) -> None:
        told = list[Bell]()
        for done in stepped.rounds:
            post = self._open.get(done.request.id)
            if post is None:
                continue
            bell = post.mailbox.bell
            if bell.loop.is_closed():  # so no task can read the answer
                self.leave(post.request)
            elif post.event_builder.tells(done):
                post.mailbox.put(done)
                told.append(bell)
        ring(told)
        for request in stepped.ended:
            post = self._open.get(request.id)
            if post is not None and request.error is not None:
                post.mailbox.fail(request.error)
        with self._changed:
            for request in stepped.ended:
                self._open.pop(request.id, None)
            self._changed.notify_all()
