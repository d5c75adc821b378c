"""`forerun bench serve`: what HTTP costs, what a prediction saves, and servers under load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final

import typer

from forerun.cli.bench.options import at_least, option, split
from forerun.cli.bench.outcome import collect, finish, write_report
from forerun.cli.bench.peer_options import BUILT
from forerun.cli.bench.record_head import model_path, record_head
from forerun.cli.machine import read_cpu
from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import DEFAULT_MODEL
from forerun.cli.options.shared import takes
from forerun.errors import InvalidOption, unknown_name

PARTS: Final = ("together", "alone", "prediction", "load")
_MAX_LEN: Final = 2048  # tokens that a slot of a peer has room for


@dataclass(frozen=True)
class ServeBench:
    """Of everything but the addresses."""

    model: str
    parts: list[str]
    repeats: int
    concurrency: int
    rate: float
    num_requests: int
    max_tokens: int
    prediction_tokens: int
    num_threads: int
    seed: int
    llama_server: Path | None


def serve_bench(
    model: Annotated[str, option("Serve", "--model", "-m", text="What our server serves.")] = (
        DEFAULT_MODEL
    ),
    parts: Annotated[
        str, option("Serve", "--parts", text=f"By comma: {', '.join(PARTS)}.")
    ] = ",".join(PARTS),
    repeats: Annotated[int, option("Serve", "--repeats", text="Of each comparison.")] = 6,
    concurrency: Annotated[
        int, option("Serve", "--concurrency", text="Requests at once, and seats.")
    ] = 32,
    rate: Annotated[float, option("Serve", "--rate", text="Arrivals per second, on average.")] = (
        2.0
    ),
    num_requests: Annotated[
        int, option("Serve", "--num-requests", text="Arrivals at each server.")
    ] = 64,
    max_tokens: Annotated[int, option("Serve", "--max-tokens", text="Tokens per answer.")] = 64,
    prediction_tokens: Annotated[
        int, option("Serve", "--prediction-tokens", text="Of answers that are predicted.")
    ] = 200,
    num_threads: Annotated[
        int | None, option("Serve", "--threads", text="Of each server; all cores.")
    ] = None,
    seed: Annotated[int, option("Serve", "--seed", text="Of orders and arrivals.")] = 0,
    llama_server: Annotated[
        Path, option("Serve", "--llama-server", text="A peer under the same load, if it is there.")
    ] = BUILT,
) -> ServeBench:
    for name, value in (
        ("--repeats", repeats),
        ("--concurrency", concurrency),
        ("--num-requests", num_requests),
        ("--max-tokens", max_tokens),
        ("--prediction-tokens", prediction_tokens),
    ):
        at_least(name, value, 1)
    if not (rate > 0 and math.isfinite(rate)):
        raise InvalidOption(f"--rate {rate} is not allowed; give a number above 0.")
    wanted = split(parts)
    for name in wanted:
        if name not in PARTS:
            raise unknown_name("part of bench serve", name, PARTS)
    if llama_server != BUILT and not llama_server.is_file():
        raise InvalidOption(f"--llama-server {llama_server} is no file; run `make peers`.")
    return ServeBench(
        model,
        wanted,
        repeats,
        concurrency,
        rate,
        num_requests,
        max_tokens,
        prediction_tokens,
        num_threads or read_cpu().num_cores,
        seed,
        llama_server.resolve() if llama_server.is_file() else None,
    )


@takes(options=serve_bench)
def serve(
    options: ServeBench,
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Only load, on servers that run: one after the other."),
    ] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write a record.")] = None,
) -> None:
    """A server of our own against the library, with and without a prediction, and under load.

    together: 32 requests at once over HTTP against LLM.generate. alone: what a chunk costs over the
    engine's own stream. prediction: an answer with a tenth of its prediction changed, and with all
    of it wrong. load: Poisson arrivals, beside llama-server where `make peers` built one.
    """
    settings = {k: v for k, v in asdict(options).items() if k not in ("model", "llama_server")}
    report: dict[str, Any] = {
        **record_head(None if url else options.model, settings),
        "measured": "serve",
        "is_complete": False,
    }
    if url:
        report["servers"] = {one: _load(options, one) for one in url}
    else:
        for name, figures in _own(options):
            report[name] = figures
            write_report(report, json_path)  # what was measured is kept if the rest fails
    finish({**report, "is_complete": True}, json_path, strict=True)


def _own(options: ServeBench) -> Iterator[tuple[str, dict[str, Any]]]:
    """Part by part."""
    import os

    from forerun.bench.prompts.named_prompts import named_prompts
    from forerun.bench.serve import overhead, predictions
    from forerun.bench.serve.servers import llama_server, our_server
    from forerun.engine import LLM

    random, seed = Random(options.seed), options.seed
    prompts = named_prompts(max(40, options.concurrency))
    with ExitStack() as stack:
        ours = stack.enter_context(
            our_server(options.model, options.num_threads, options.concurrency)
        )
        llm = LLM(
            options.model,
            max_num_seqs=options.concurrency,
            num_threads=options.num_threads,
            cache_dir=cache_dir(os.environ),
        )
        overhead.warm_up(llm, ours, prompts[0])
        if "together" in options.parts:
            crowd = prompts[: options.concurrency]
            rounds = overhead.measure_together(
                llm, ours, crowd, options.max_tokens, options.repeats, random
            )
            found = collect("together", options.repeats, rounds)
            yield "together", overhead.together_record(found, seed)
        if "alone" in options.parts:
            few = [prompts[idx % len(prompts)] for idx in range(2 * options.repeats)]
            alone = overhead.measure_alone(llm, ours, few, options.max_tokens, random)
            yield "alone", overhead.alone_record(collect("alone", len(few), alone), seed)
        if "prediction" in options.parts:
            few = prompts[: max(2, options.repeats)]
            pairs = predictions.measure_predictions(
                ours, few, llm.tokenizer, options.prediction_tokens, 2, random
            )
            yield (
                "prediction",
                predictions.predictions_record(collect("predictions", 2 * len(few), pairs), seed),
            )
        if "load" in options.parts:
            servers = {"forerun": _load(options, ours.url)}
            if options.llama_server is not None:
                with llama_server(
                    options.llama_server,
                    model_path(options.model),
                    options.num_threads,
                    options.concurrency,
                    _MAX_LEN,
                ) as peer:
                    servers["llama-server"] = _load(options, peer.url)
            yield "servers", servers


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
