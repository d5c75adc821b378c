"""`forerun serve`: the OpenAI-compatible server."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.options.engine import DEFAULT_MODEL, load, serving_options
from forerun.cli.options.serve import serve_options
from forerun.cli.options.shared import takes
from forerun.cli.pull import pull_with_progress
from forerun.cli.terminal.output import CannotPrint, say
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption, MissingExtra
from forerun.models.download.store import default_cache_dir, find_model
from forerun.server.operation.config import ServerConfig

if TYPE_CHECKING:
    from forerun.engine import LLM


@takes(engine=serving_options, config=serve_options)
def serve(
    engine: EngineConfig,
    config: ServerConfig,
    model_name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Model to serve, like --model.")
    ] = None,
    show_fields: Annotated[
        bool,
        typer.Option(
            "--show-fields",
            help="Print how each request field is treated, and exit.",
            show_envvar=False,
        ),
    ] = False,
) -> None:
    """Serve a model over HTTP, with OpenAI's and Anthropic's APIs.

    Each option may also be set in the environment: --max-num-seqs as FORERUN_SERVE_MAX_NUM_SEQS.
    """
    try:
        from forerun.server.fields import markdown
        from forerun.server.operation.running import run_server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forerun"):
            raise
        raise MissingExtra("forerun serve", "serve") from None
    if show_fields:
        typer.echo(markdown())
        return
    model = _model(model_name, str(engine.model))
    if not _is_ours(model):
        # Reject a missing model before a port is announced.
        find_model(model, default_cache_dir())
    config = replace(config, names=config.names or (_short_name(model),))

    def load_model() -> LLM:
        _pull_if_ours(model)
        return load(replace(engine, model=model), max_num_seqs=engine.max_num_seqs)

    def on_ready(address: str, llm: LLM) -> None:
        say(_welcome(address, config, llm), err=True)

    def on_listening(address: str) -> None:
        """Announce the address on stdout, for a program that started the server."""
        print(f"listening on {address}", flush=True)
        if not sys.stderr.isatty():  # a log shows no progress bars
            fetches = "downloads it and " if _is_ours(model) else ""
            say(f"loading {model}; the first start {fetches}compiles its kernels", err=True)

    def on_draining(num_open: int) -> None:
        num = f"{num_open} request{'s' if num_open > 1 else ''}"
        limit = f"for up to {config.drain_timeout_s:g} s"
        with suppress(CannotPrint):  # the reader of the log may be gone
            say(f"finishing {num} {limit}; a second ^C or SIGTERM ends the wait", err=True)

    run_server(config, load_model, on_listening, on_ready, on_draining)


def _model(argument: str | None, option: str) -> str:
    if argument is None:
        return option
    if option not in (DEFAULT_MODEL, argument):
        raise InvalidOption(f"two models are given, {argument} and {option}; drop one.")
    return argument


def _short_name(model: str) -> str:
    """Return the last part of a path, and any other name as it is."""
    return Path(model).resolve().name if Path(model).exists() else model


def _pull_if_ours(model: str) -> None:
    """Download a model of our own list, so that a first start needs one command."""
    if _is_ours(model):
        pull_with_progress(model, default_cache_dir())


def _is_ours(model: str) -> bool:
    """Whether `model` is a name of our own list, which can be downloaded."""
    from forerun.models.download.sources import SOURCES

    return model in SOURCES and not Path(model).exists()


def _welcome(address: str, config: ServerConfig, llm: LLM) -> str:
    """Return what is served, and a curl command that works when pasted."""
    name, where, socket = config.names[0], address, ""
    for everywhere in ("//0.0.0.0:", "//[::]:"):  # not an address to connect to
        where = where.replace(everywhere, "//127.0.0.1:")
    if config.uds is not None:
        scheme = "https" if config.tls_cert else "http"
        where, socket = f"{scheme}://localhost", f"--unix-socket {shlex.quote(str(config.uds))} "
    key = " -H 'Authorization: Bearer YOUR_KEY'" if config.api_keys else ""
    insecure = "-k " if config.tls_cert else ""
    question = '"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 64'
    body = shlex.quote(f'{{"model": {json.dumps(name)}, {question}}}')
    page = f"page: {where}/\n" if config.page and not socket else ""
    return (
        f"ready: {name} at {address}/v1 · {llm.max_num_seqs} requests at once, context "
        f"{llm.max_model_len} · speculation {_guesses(llm)}\n"
        f"{page}try: curl {insecure}{socket}{where}/v1/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d {body}"
    )


def _guesses(llm: LLM) -> str:
    """Return the drafters and their depth, and those that are left out, with the reason."""
    speculation = llm.engine.core.speculation
    if speculation is None:
        return "off"
    names = ", ".join(speculation.methods)
    without = "".join(f"; not {name}: {why}" for name, why in speculation.left_out.items())
    names = names or "predictions and grammars only"
    return f"{names}, depth {speculation.ceiling.depth}{without}"
