"""The options of `forerun serve` beside the model's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.options.serve_file import read_defaults
from forerun.cli.terminal.input import read_option
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.server.operation.config import ServerConfig

PANEL = "Server"


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


@dataclass(frozen=True)
class ServeOptions:
    """As given; `config` needs the server's own room, which is imported when it is used."""

    given: dict[str, Any]
    limits: dict[str, Any]
    served_model_name: tuple[str, ...]

    @property
    def has_keys(self) -> bool:
        return bool(self.given["api_keys"])

    def config(self, model: str) -> ServerConfig:
        from forerun.server.operation.config import ServerConfig
        from forerun.server.service import Limits

        names = self.served_model_name or (_short_name(model),)
        return ServerConfig(names=names, limits=Limits(**self.limits), **self.given)


def serve_options(
    config: Annotated[  # noqa: ARG001  read before the others, by its callback
        Path | None,
        typer.Option(
            "--config",
            help="A TOML file with any of these options; flags win over the environment "
            "(FORERUN_SERVE_PORT …), and that over the file.",
            rich_help_panel=PANEL,
            is_eager=True,
            callback=read_defaults,
        ),
    ] = None,
    host: Annotated[str, _option("--host", text="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, _option("--port", text="0 takes a free one and prints it.")] = 8000,
    uds: Annotated[
        Path | None, _option("--uds", text="A unix socket in place of host and port.")
    ] = None,
    pid_file: Annotated[
        Path | None, _option("--pid-file", text="Holds the process id while it runs.")
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        _option("--served-model-name", text="What clients call the model; repeatable."),
    ] = None,
    api_key: Annotated[
        list[str] | None, _option("--api-key", text="Who has it may ask; repeatable.")
    ] = None,
    api_key_file: Annotated[
        Path | None, _option("--api-key-file", text="More of them, one a line.")
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        _option("--allowed-origin", text="A web page that may ask (CORS); repeatable."),
    ] = None,
    tls_cert: Annotated[Path | None, _option("--tls-cert", text="A PEM file; with it TLS.")] = None,
    tls_key: Annotated[Path | None, _option("--tls-key", text="Its key.")] = None,
    max_num_waiting: Annotated[
        int, _option("--max-num-waiting", text="Requests that may wait; one more gets 429.")
    ] = 256,
    max_answer_tokens: Annotated[
        int | None, _option("--max-answer-tokens", text="No answer is longer than this.")
    ] = None,
    max_body_bytes: Annotated[
        int, _option("--max-body-bytes", text="No request is longer than this.")
    ] = 8 << 20,
    request_timeout: Annotated[
        float, _option("--request-timeout", text="Seconds that an answer may take.")
    ] = 600.0,
    body_timeout: Annotated[
        float, _option("--body-timeout", text="Seconds that a body may take to arrive.")
    ] = 30.0,
    step_timeout: Annotated[
        float, _option("--step-timeout", text="Seconds after which a step counts as hung.")
    ] = 300.0,
    drain_timeout: Annotated[
        float, _option("--drain-timeout", text="Seconds for answers to end after SIGTERM.")
    ] = 120.0,
    lenient_fields: Annotated[
        bool, _option("--lenient-fields", text="Ignore body fields that nobody knows.")
    ] = False,
    access_log: Annotated[
        bool, _option("--access-log/--no-access-log", text="A line of JSON for each request.")
    ] = True,
    page: Annotated[
        bool, _option("--page/--no-page", text="A page at / to chat and to see what is guessed.")
    ] = True,
) -> ServeOptions:
    return ServeOptions(
        {
            "host": host,
            "port": port,
            "uds": uds,
            "pid_file": pid_file,
            "api_keys": (*(api_key or ()), *_keys_in(api_key_file)),
            "allowed_origins": tuple(allowed_origin or ()),
            "tls_cert": _readable(tls_cert, "--tls-cert"),
            "tls_key": _readable(tls_key, "--tls-key"),
            "max_num_waiting": max_num_waiting,
            "step_timeout_s": step_timeout,
            "drain_timeout_s": drain_timeout,
            "access_log": access_log,
            "has_page": page,
        },
        {
            "max_body_bytes": max_body_bytes,
            "body_timeout_s": body_timeout,
            "request_timeout_s": request_timeout,
            "max_answer_tokens": max_answer_tokens,
            "lenient_fields": lenient_fields,
        },
        tuple(served_model_name or ()),
    )


def _keys_in(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    lines = read_option(path, "--api-key-file", "a text file").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip())
    if not keys:
        raise InvalidOption(f"--api-key-file {path} holds no key; write one a line.")
    return keys


def _readable(path: Path | None, name: str) -> Path | None:
    if path is not None and not path.is_file():
        raise InvalidOption(f"{name} {path} is not a file; give a PEM file.")
    return path


def _short_name(model: str) -> str:
    """A path's last part; any other name as it is."""
    return Path(model).resolve().name if Path(model).exists() else model
