"""How a server is to be run; the command line fills it in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from forerun.errors import InvalidOption
from forerun.server.service import Limits


@dataclass(frozen=True)
class ServerConfig:
    """`names` are what clients may call the model. With `uds`, `host` and `port` are not used."""

    names: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    uds: Path | None = None
    pid_file: Path | None = None
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    max_num_waiting: int = 256
    step_timeout_s: float = 300.0
    drain_timeout_s: float = 120.0
    access_log: bool = True
    has_page: bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise InvalidOption(f"--port {self.port} is not allowed; give 0 … 65535.")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidOption("TLS needs both --tls-cert and --tls-key; give the other as well.")
        if self.limits.max_body_bytes < 1:
            raise InvalidOption("--max-body-bytes must be 1 or more.")
        for name, seconds in (
            ("--request-timeout", self.limits.request_timeout_s),
            ("--body-timeout", self.limits.body_timeout_s),
            ("--drain-timeout", self.drain_timeout_s),
        ):
            if not 0 < seconds < float("inf"):
                raise InvalidOption(f"{name} {seconds} is not allowed; give seconds above 0.")
        ceiling = self.limits.max_answer_tokens
        if ceiling is not None and ceiling < 1:
            raise InvalidOption(f"--max-answer-tokens {ceiling} is not allowed; give 1 or more.")
        if not all(key.strip() == key and key for key in self.api_keys):
            raise InvalidOption("an API key is empty or begins or ends with a space; mend it.")
