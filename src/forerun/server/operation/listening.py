"""The socket on which a server listens, TCP or unix, and the file with its process id."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption
from forerun.server.operation.config import ServerConfig

_BACKLOG: Final = 2048


@contextmanager
def listening(config: ServerConfig) -> Iterator[tuple[socket.socket, str]]:
    """Yield the socket, and its address as clients write it."""
    if config.uds is not None:
        with _unix_socket(config.uds) as found:
            yield found, f"unix:{config.uds}"
        return
    with _tcp_socket(config.host, config.port) as found:
        _cut_off_the_deaf(found, config.limits.reader_timeout_s)
        host, port = found.getsockname()[:2]
        scheme = "https" if config.tls_cert else "http"
        shown = f"[{host}]" if ":" in host else host
        yield found, f"{scheme}://{shown}:{port}"


def _tcp_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )[0]
        # asyncio disables Nagle's algorithm (40 ms an answer) only if the protocol is given.
        found = socket.socket(family, kind, proto)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise InvalidOption(
            f"cannot listen at {host}:{port} ({error.strerror or error}); "
            f"choose another --port or --host, or --port 0 for any free one."
        ) from None
    found.listen(_BACKLOG)
    return found


def _cut_off_the_deaf(found: socket.socket, seconds: float) -> None:
    """Limit how long written data may stay unread: otherwise a connection whose client never reads
    would never close. Connections inherit this from the socket that accepts them."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        milliseconds = min(2**31 - 1, int(1000 * seconds))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


@contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_if_dead(path)
        found.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        found.close()
        raise InvalidOption(
            f"cannot listen at {path} ({error.strerror or error}); choose another --uds."
        ) from None
    found.listen(_BACKLOG)
    try:
        with found:
            yield found
    finally:
        path.unlink(missing_ok=True)


def _remove_if_dead(path: Path) -> None:
    """Remove a socket to which nothing listens: a server that was killed left it."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise InvalidOption(f"another server listens at {path}; choose another --uds.")


@contextmanager
def pid_file(path: Path | None) -> Iterator[None]:
    """Keep the process id in a file while the server runs."""
    if path is None:
        yield
        return
    if (other := _living(path)) is not None:
        raise InvalidOption(
            f"{path} belongs to process {other}, which runs; stop it, or choose another --pid-file."
        )
    try:
        path.write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as error:
        raise InvalidOption(f"cannot write {path} ({error.strerror or error}).") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _living(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        process = int(path.read_text(encoding="ascii"))
        if process == os.getpid():  # left by a killed container, as all have the same id
            return None
        with suppress(PermissionError):  # another user's process, which runs
            os.kill(process, 0)
        return process
    return None
