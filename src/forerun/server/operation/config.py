"""Every option of a server, defined once; the command line derives its flags from these."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption
from forerun.option_fields import option

_ROOT_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]+)?/?")
_USUAL_PORTS: Final = {"http": ":80", "https": ":443"}
_OWN_PATHS: Final = ("v1", "forerun", "page", "health", "ready", "metrics")
_GRACE: Final = 30.0  # seconds that a reader may take beyond the request's own limit


@dataclass(frozen=True)
class Limits:
    """The limits of one request. Without `max_answer_tokens` an answer may fill the context."""

    max_answer_tokens: int | None = option(
        None, "Maximum tokens per answer. Default: what fits into the context."
    )
    max_body_bytes: int = option(8 << 20, "Maximum bytes of a request body.")
    request_timeout_s: float = option(600.0, "Seconds that an answer may take.")
    body_timeout_s: float = option(
        30.0, "Seconds that a request's head or body may take to arrive."
    )
    sse_ping_interval_s: float = option(
        15.0, "Seconds of silence in a stream before a ping; 0: no pings."
    )
    lenient_fields: bool = option(False, "Ignore unknown request fields instead of rejecting them.")

    @property
    def reader_timeout_s(self) -> float:
        """Seconds that a client may take to read an answer."""
        return self.request_timeout_s + _GRACE


@dataclass(frozen=True)
class ServerConfig:
    """`names` are the model's names for clients. With `uds`, `host` and `port` are ignored.
    `allowed_origins` are as browsers write them, or "*"."""

    names: tuple[str, ...]
    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8000, "Port to listen on; 0 takes a free one and prints it.")
    uds: Path | None = option(None, "Unix socket to listen on, in place of host and port.")
    root_path: str = option("", "Path prefix that a proxy adds, like /llm.")
    pid_file: Path | None = option(None, "File that contains the process id while the server runs.")
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    tls_cert: Path | None = option(None, "PEM file with a certificate; enables TLS.")
    tls_key: Path | None = option(None, "PEM file with the certificate's key.")
    max_num_waiting: int = option(256, "Maximum waiting requests; further ones get 429.")
    step_timeout_s: float = option(300.0, "Seconds after which an engine step counts as hung.")
    drain_timeout_s: float = option(
        120.0, "Seconds that requests may take to finish after SIGTERM."
    )
    access_log: bool = option(True, "Log a line of JSON for each request.")
    page: bool = option(True, "Serve a page at / to chat and to see what is guessed.")
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise InvalidOption(f"--port {self.port} is not allowed; give 0 … 65535.")
        root = self.root_path
        if root and (not _ROOT_PATH.fullmatch(root) or root.split("/")[1] in _OWN_PATHS):
            raise InvalidOption(f"--root-path {root!r} is not allowed; give one like /llm.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidOption("TLS needs both --tls-cert and --tls-key; give the other as well.")
        for name, path in (("--tls-cert", self.tls_cert), ("--tls-key", self.tls_key)):
            if path is not None and not path.is_file():
                raise InvalidOption(f"{name} {path} is not a file; give a PEM file.")
        if self.tls_cert is not None:
            _check_pair(self.tls_cert, self.tls_key)
        if self.limits.max_body_bytes < 1:
            raise InvalidOption("--max-body-bytes must be 1 or more.")
        for name, seconds in (
            ("--request-timeout", self.limits.request_timeout_s),
            ("--body-timeout", self.limits.body_timeout_s),
            ("--drain-timeout", self.drain_timeout_s),
            ("--step-timeout", self.step_timeout_s),
        ):
            if not 0 < seconds < float("inf"):
                raise InvalidOption(f"{name} {seconds} is not allowed; give seconds above 0.")
        if not 0 <= (interval := self.limits.sse_ping_interval_s) < float("inf"):
            raise InvalidOption(
                f"--sse-ping-interval {interval} is not allowed; give seconds, or 0 for no pings."
            )
        if self.max_num_waiting < 0:
            raise InvalidOption(
                f"--max-num-waiting {self.max_num_waiting} is not allowed; give 0 or more."
            )
        ceiling = self.limits.max_answer_tokens
        if ceiling is not None and ceiling < 1:
            raise InvalidOption(f"--max-answer-tokens {ceiling} is not allowed; give 1 or more.")
        if not all(key.strip() == key and key for key in self.api_keys):
            raise InvalidOption("an API key is empty or begins or ends with a space; mend it.")
        origins = tuple(map(_origin, self.allowed_origins))
        object.__setattr__(self, "allowed_origins", origins)


def _origin(given: str) -> str:
    """Return an origin as browsers write it: in lower case, without a slash or a default port."""
    if given == "*":
        return given
    found = _ORIGIN.fullmatch(given.lower())
    if found is None:
        raise InvalidOption(
            f"--allowed-origin {given!r} is not allowed; give one like https://app.example.com, "
            f"without a path, or * for all."
        )
    scheme, host, port = found.groups(default="")
    return f"{scheme}://{host}{port if port != _USUAL_PORTS.get(scheme) else ''}"


def _check_pair(cert: Path, key: Path | None) -> None:
    import ssl  # only here, as every command imports this module

    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password="")
    except OSError as error:  # ssl's own errors are among these
        raise InvalidOption(
            f"--tls-cert {cert} and --tls-key {key} cannot be used ({error.strerror or error}); "
            f"give the PEM files of a certificate and its key, without a passphrase."
        ) from None
