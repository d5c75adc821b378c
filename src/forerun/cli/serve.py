"""`forerun serve`: the OpenAI-compatible server."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import DEFAULT_MODEL, EngineOptions, engine_options
from forerun.cli.options.serve import ServeOptions, serve_options
from forerun.cli.options.shared import takes
from forerun.cli.pull import pull_with_progress
from forerun.errors import InvalidOption, MissingExtra

if TYPE_CHECKING:
    from forerun.engine import LLM, SpeculativeConfig


@takes(engine=engine_options, options=serve_options)
def serve(
    engine: EngineOptions,
    options: ServeOptions,
    model_name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="The same as --model.")
    ] = None,
    max_num_seqs: Annotated[
        int, typer.Option("--max-num-seqs", help="Requests that run at once.")
    ] = 8,
    show_fields: Annotated[
        bool, typer.Option("--show-fields", help="Print what becomes of each field, and exit.")
    ] = False,
) -> None:
    """Answer OpenAI's clients over HTTP."""
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
    engine = replace(engine, model=_model(model_name, engine.model))
    config = options.config(engine.model)

    def load() -> LLM:
        _pull_if_known(engine.model)
        return engine.load(max_num_seqs)

    def on_ready(address: str, llm: LLM) -> None:
        _tell(_welcome(address, config.names[0], llm, engine.speculative_config, options))

    run_server(config, load, lambda address: _print(f"listening on {address}"), on_ready)


def _model(argument: str | None, option: str) -> str:
    if argument is None:
        return option
    if option not in (DEFAULT_MODEL, argument):
        raise InvalidOption(f"two models are given, {argument} and {option}; drop one.")
    return argument


def _pull_if_known(model: str) -> None:
    """A name of our own list is fetched, so that a newcomer needs one command."""
    from forerun.models.download.sources import SOURCES

    if model in SOURCES and not Path(model).exists():
        pull_with_progress(model, cache_dir(os.environ))


def _welcome(
    address: str,
    name: str,
    llm: LLM,
    speculation: SpeculativeConfig | None,
    options: ServeOptions,
) -> str:
    """What is served, and a command that works when it is pasted."""
    guesses = "off" if speculation is None else f"{speculation.method}, depth {speculation.depth}"
    where, socket = address, ""
    if address.startswith("unix:"):
        where, socket = "http://localhost", f"--unix-socket {address.removeprefix('unix:')} "
    key = ' -H "Authorization: Bearer $KEY"' if options.has_keys else ""
    insecure = "-k " if address.startswith("https") else ""
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Hello!"}}]}}'
    return (
        f"ready: {name} at {address}/v1 · {llm.max_num_seqs} at once, context "
        f"{llm.max_model_len} · speculation {guesses}\n"
        f"try: curl {insecure}{socket}{where}/v1/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d '{body}'"
    )


def _print(line: str) -> None:
    """On stdout, for whoever started us and wants to know the port."""
    print(line, flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
