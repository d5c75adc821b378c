"""A server's life: listen at once, load the model, answer, drain, end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Final

import uvicorn

from forerun.engine.api.async_engine import AsyncEngine
from forerun.engine.api.llm import LLM
from forerun.server.app import build_app
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.config import ServerConfig
from forerun.server.operation.counters import Counters
from forerun.server.operation.listening import listening, pid_file
from forerun.server.operation.origins import is_loopback
from forerun.server.operation.protocol import timed_protocol
from forerun.server.service import Service

_KEEP_ALIVE: Final = 30  # seconds that an idle connection stays open
_LAST_WORDS: Final = 5  # seconds for complete responses to reach their clients
_MOMENT: Final = 0.02
# Garbage collection as often as by Python's defaults, about; commands start with a rarer one.
_OFTEN: Final = (2000, 10, 10)
# Seconds that a thread keeps the GIL while another waits for it. Python's 5 ms would delay a step
# whenever its kernels return while the event loop writes answers.
_SWITCH_INTERVAL: Final = 0.0005

Tell = Callable[[str], None]


def run_server(
    config: ServerConfig,
    load: Callable[[], LLM],
    on_listening: Tell,
    on_ready: Callable[[str, LLM], None],
    on_draining: Callable[[int], None],
) -> None:
    """Run a server until a signal ends it.

    `on_listening` gets the address, and `on_ready` the address and the model once it is loaded.
    `on_draining` gets the number of requests that are finished before the end, if there are any."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    with pid_file(config.pid_file), listening(config) as (found, address):
        life = Life(config, load, lambda llm: on_ready(address, llm), on_draining)
        on_listening(address)
        asyncio.run(life.run(found))
        if life.error is not None:
            raise life.error


class Life:
    """A server from start to end, and what signals do to it.

    The first SIGTERM or SIGINT drains: open requests are finished and new ones refused, for up to
    `drain_timeout_s`. The second ends this wait; requests still open get an error. The third ends
    at once."""

    def __init__(
        self,
        config: ServerConfig,
        load: Callable[[], LLM],
        on_ready: Callable[[LLM], None],
        on_draining: Callable[[int], None],
    ) -> None:
        self._config = config
        self._load = load
        self._on_ready = on_ready
        self._on_draining = on_draining
        self._service = Service(config.names, config.limits, Counters(self._snapshot))
        self._engine: AsyncEngine | None = None
        self._draining: asyncio.Task[None] | None = None
        self._is_hurried = False
        self.error: Exception | None = None
        is_local = config.uds is None and not config.api_keys and is_loopback(config.host)
        app = build_app(
            self._service,
            Keys(config.api_keys),
            AccessLog(sys.stderr if config.access_log else None),
            config.allowed_origins,
            is_local=is_local,
            has_page=config.page,
            root_path=config.root_path,
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                http=timed_protocol(config.limits.body_timeout_s),
                log_config=None,
                log_level="error",  # clients' malformed requests are not logged
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_LAST_WORDS,
                ssl_certfile=config.tls_cert,
                ssl_keyfile=config.tls_key,
            )
        )

    async def run(self, found: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        # A daemon: a model that still loads must not keep the process from ending.
        Thread(target=self._load_in, args=(loop,), name="forerun-load", daemon=True).start()
        try:
            await self._server.serve(sockets=[found])  # type: ignore[list-item]
        finally:
            self._service.close()
            if self._engine is not None:
                await self._engine.shutdown(finish=False)

    def _load_in(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        try:
            llm = self._load()
            engine = AsyncEngine(
                llm,
                max_num_waiting=config.max_num_waiting,
                step_timeout_s=config.step_timeout_s,
                tries_grammars=True,
            )
        except Exception as error:
            self.error = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
                loop.call_soon_threadsafe(self._stop)
            return
        # What exists now stays: a garbage collection through all of it would delay a step by 0.1 s.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_OFTEN)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._loaded, llm, engine)

    def _loaded(self, llm: LLM, engine: AsyncEngine) -> None:
        self._engine = engine
        kernels = type(llm.model.kernels).__name__
        self._service.start(engine, f"{llm.model.config} {kernels}")
        self._on_ready(llm)

    def _snapshot(self) -> dict[str, object] | None:
        return None if self._engine is None else self._engine.metrics()

    def _on_signal(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        elif not self._is_hurried:
            self._is_hurried = True
        else:
            self._server.force_exit = True
            self._stop()

    async def _drain(self) -> None:
        """Finish all open HTTP requests, including those that have not reached the engine."""
        self._service.drain()
        if self._service.num_open:
            self._on_draining(self._service.num_open)
        deadline = time.monotonic() + self._config.drain_timeout_s
        while self._service.num_open and not self._is_hurried and time.monotonic() < deadline:
            await asyncio.sleep(_MOMENT)
        self._is_hurried = True  # one more signal ends at once
        if self._service.num_open:  # they get an error
            self._service.give_up()
            if self._engine is not None:
                await self._engine.shutdown(finish=False)
        self._stop()

    def _stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Leaves signals to `Life`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
