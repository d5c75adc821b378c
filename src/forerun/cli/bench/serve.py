"""`forerun bench serve`: servers under the same open-loop load."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

from forerun.cli.bench.options import at_least
from forerun.cli.bench.outcome import write_report
from forerun.cli.bench.record_head import record_head
from forerun.cli.terminal.screen import screen
from forerun.errors import InvalidOption


def serve(
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="A server; several get the same load, one after the other."),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="Arrivals per second, on average.")] = 2.0,
    num_requests: Annotated[int, typer.Option("--num-requests", help="For each server.")] = 32,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Tokens per answer.")] = 64,
    seed: Annotated[int, typer.Option("--seed", help="Of arrivals and noise.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write a record.")] = None,
) -> None:
    """Poisson arrivals at running servers: requests per second and time to the first token.

    Start `forerun serve` first, and beside it any OpenAI-compatible server, such as llama-server
    with --parallel as many as --max-num-seqs.
    """
    from forerun.bench.measure.http_load import arrivals, load_report, run_load
    from forerun.bench.prompts.named_prompts import named_prompts

    at_least("--num-requests", num_requests, 1)
    at_least("--max-tokens", max_tokens, 1)
    if not (rate > 0 and math.isfinite(rate)):
        raise InvalidOption(f"--rate {rate} is not allowed; give a number above 0.")
    urls = url or ["http://127.0.0.1:8000"]
    moments = arrivals(num_requests, rate, Random(seed))
    prompts = named_prompts(40)
    bodies: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": prompts[idx % len(prompts)].text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": seed,
        }
        for idx in range(num_requests)
    ]
    found = {one: load_report(run_load(one, bodies, moments)) for one in urls}
    settings = {"rate": rate, "num_requests": num_requests, "max_tokens": max_tokens, "seed": seed}
    report = {**record_head(None, settings), "measured": "serve", "servers": found}
    write_report(report, json_path)
    for one, figures in found.items():
        screen().print(_line(one, figures))


def _line(url: str, figures: dict[str, Any]) -> str:
    def seconds(name: str) -> str:
        values = (figures[name][q] for q in ("p50", "p95"))
        return " / ".join("–" if v is None else f"{v:.3f}" for v in values)

    per_second = figures["requests_per_second"]
    return (
        f"{url}: {figures['num_requests']} requests, {figures['num_errors']} errors · "
        f"{'–' if per_second is None else f'{per_second:.2f}'} requests/s · "
        f"{figures['tokens_per_second'] or 0:.1f} tokens/s · "
        f"first token p50/p95 {seconds('first_token_s')} s · last {seconds('last_token_s')} s"
    )
