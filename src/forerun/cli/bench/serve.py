"""`forerun bench serve`: what HTTP costs, what predictions save, and servers under load."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import typer

from forerun.cli.bench.options import at_least, split
from forerun.cli.bench.outcome import collect, finish, write_report
from forerun.cli.bench.peer_options import BUILT
from forerun.cli.bench.record_head import model_path, record_head
from forerun.cli.machine import read_cpu
from forerun.cli.options.engine import DEFAULT_MODEL
from forerun.cli.options.shared import bundle, takes
from forerun.errors import InvalidOption
from forerun.option_checks import require_known
from forerun.option_fields import option

PARTS: Final = ("together", "alone", "prediction", "load")
_MAX_LEN: Final = 2048  # context of each slot of a peer
_PREDICTION_REPEATS: Final = 4  # of each answer


@dataclass(frozen=True)
class ServeBench:
    model: str = option(DEFAULT_MODEL, "Model to serve.")
    parts: str = option(",".join(PARTS), "Parts to run, separated by commas.")
    repeats: int = option(6, "Repetitions of each comparison.")
    concurrency: int = option(32, "Concurrent requests; also the server's --max-num-seqs.")
    rate: float = option(2.0, "Mean arrivals per second under load.")
    num_requests: int = option(64, "Arrivals at each server under load.")
    max_tokens: int = option(64, "Maximum tokens per answer.")
    prediction_tokens: int = option(200, "Tokens per answer with a prediction.")
    num_threads: int | None = option(
        None, "Threads of each server. Default: as for `forerun serve`.", "--threads"
    )
    seed: int = option(0, "Seed of orders and arrivals.")
    llama_server: Path = option(BUILT, "llama-server for the same load, if it exists.")

    def __post_init__(self) -> None:
        for name in ("repeats", "concurrency", "num_requests", "max_tokens", "prediction_tokens"):
            at_least(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise InvalidOption(f"--rate {self.rate} is not allowed; give a number above 0.")
        require_known("part of bench serve", PARTS, *split(self.parts))
        if self.llama_server != BUILT and not self.llama_server.is_file():
            raise InvalidOption(
                f"--llama-server {self.llama_server} is not a file; run `make peers`."
            )

    @property
    def threads(self) -> int:
        return self.num_threads or read_cpu().num_threads

    @property
    def settings(self) -> dict[str, Any]:
        """The options as the record has them."""
        found = asdict(self)
        return {k: v for k, v in found.items() if k not in ("model", "llama_server", "num_threads")}


serve_bench = bundle(ServeBench, "Serve")


@takes(options=serve_bench)
def serve(
    options: ServeBench,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url", help="Put only this running server under load; repeat it for others."
        ),
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the record here.")] = None,
) -> None:
    """Measure the server against the library, with and without predictions, and under load.

    together: 32 concurrent requests over HTTP against LLM.generate.

    alone: what a chunk costs over the engine's own stream.

    prediction: answers with a tenth of their prediction changed, and with all of it wrong.

    load: Poisson arrivals, beside llama-server if `make peers` built one.
    """
    settings = options.settings if url else {**options.settings, "num_threads": options.threads}
    report: dict[str, Any] = {
        **record_head(None if url else options.model, settings),
        "measured": "serve",
        "is_complete": False,
    }
    is_complete = True
    if url:
        report["servers"] = {one: _load(options, one) for one in url}
    else:
        for name, figures, is_complete in _own(options):
            report[name] = figures
            write_report(report, json_path)  # keeps what was measured if the rest fails
            if not is_complete:
                break
    finish({**report, "is_complete": is_complete}, json_path, strict=True)


def _own(options: ServeBench) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each part's name, its figures, and whether it ran to its end."""
    from forerun.bench.prompts.named_prompts import named_prompts
    from forerun.bench.serve import overhead, predictions
    from forerun.bench.serve.servers import Server, llama_server, our_server
    from forerun.engine import LLM

    random, seed, parts = Random(options.seed), options.seed, split(options.parts)
    prompts = named_prompts(max(40, options.concurrency))

    @contextmanager
    def pair() -> Iterator[tuple[LLM, Server]]:
        with our_server(options.model, options.threads, options.concurrency) as server:
            llm = LLM(
                options.model,
                max_num_seqs=options.concurrency,
                num_threads=options.threads,
            )
            overhead.warm_up(llm, server, prompts[: options.concurrency])
            yield llm, server

    if "together" in parts:
        crowd = prompts[: options.concurrency]
        rounds = overhead.measure_together(pair, crowd, options.max_tokens, options.repeats, random)
        crowds = collect("together", options.repeats, rounds)
        is_whole = len(crowds) == options.repeats
        yield "together", overhead.together_record(crowds, seed), is_whole
    with pair() as (llm, ours):
        if "alone" in parts:
            few = [prompts[idx % len(prompts)] for idx in range(2 * options.repeats)]
            alone = overhead.measure_alone(llm, ours, few, options.max_tokens, random)
            streams = collect("alone", len(few), alone)
            yield "alone", overhead.alone_record(streams, seed), len(streams) == len(few)
        if "prediction" in parts:
            num = max(2, options.repeats)
            total = _PREDICTION_REPEATS * num
            measured = predictions.measure_predictions(
                *(ours, prompts, llm.tokenizer, options.prediction_tokens),
                *(num, _PREDICTION_REPEATS, random),
            )
            answers = collect("predictions", total, measured)
            is_whole = len(answers) == total
            yield "prediction", predictions.predictions_record(answers, seed), is_whole
        if "load" in parts:
            servers = {"forerun": _load(options, ours.url)}
            if options.llama_server.is_file():
                with llama_server(
                    options.llama_server.resolve(),
                    model_path(options.model),
                    options.threads,
                    options.concurrency,
                    _MAX_LEN,
                ) as peer:
                    servers["llama-server"] = _load(options, peer.url)
                servers["llama-server"]["build"] = _how_built(options.llama_server)
            yield "servers", servers, True


def _load(options: ServeBench, url: str) -> dict[str, Any]:
    from forerun.bench.measure.http_load import arrivals, load_report, run_load
    from forerun.bench.prompts.named_prompts import named_prompts

    prompts = named_prompts(40)
    bodies: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": prompts[idx % len(prompts)].text}],
            "max_tokens": options.max_tokens,
            "temperature": 0,
            "seed": options.seed,
        }
        for idx in range(options.num_requests)
    ]
    moments = arrivals(options.num_requests, options.rate, Random(options.seed))
    return load_report(run_load(url, bodies, moments))


def _how_built(llama_server: Path) -> dict[str, Any] | None:
    """Return what `make peers` wrote beside the program about its build."""
    about = llama_server.with_name("about.json")
    found: dict[str, Any] | None = json.loads(about.read_text()) if about.is_file() else None
    return found
