"""`forerun bench`: what speculation earns on this machine, side by side."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from forerun.cli.bench.batch import bench_batch
from forerun.cli.bench.kernels import bench_kernels, bench_passes
from forerun.cli.bench.options import (
    ALL,
    BenchOptions,
    OutputOptions,
    PeerOptions,
    bench_options,
    load_with_room,
    max_len_for,
    output_options,
    peer_modes,
    peer_options,
    split,
)
from forerun.cli.bench.parity import bench_parity
from forerun.cli.bench.startup import bench_startup
from forerun.cli.bench.bench_subjects import check_options
from forerun.cli.cache_dir import cache_dir
from forerun.cli.bench.record_head import machine_facts, model_facts, model_path, own_commit
from forerun.cli.bench.conclusion import show_verdicts
from forerun.cli.engine_options import EngineOptions, engine_options
from forerun.cli.group import INTERRUPTED
from forerun.cli.progress import progress
from forerun.cli.screen import screen
from forerun.cli.bench.series_options import SeriesOptions, series_options
from forerun.cli.shared_options import takes
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.bench.peers import Peer, PeerContender
    from forerun.bench.records.record import Record
    from forerun.bench.records.series_record import SeriesRecord
    from forerun.bench.session import Facts, Session
    from forerun.engine import LLM, SpeculativeConfig


_START_TOKENS: Final = 32
_PARITY_PROMPTS: Final = 40


@takes(
    engine=engine_options,
    options=bench_options,
    series=series_options,
    peers=peer_options,
    output=output_options,
)
def bench(
    context: typer.Context,
    engine: EngineOptions,
    options: BenchOptions,
    series: SeriesOptions,
    peers: PeerOptions,
    output: OutputOptions,
    what: Annotated[
        str, typer.Argument(help="speculation, kernels, passes, startup, batch or parity.")
    ] = "speculation",
    show: Annotated[
        Path | None, typer.Option("--show", help="Show this record; measure nothing.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if a requirement fails.")
    ] = False,
) -> None:
    """Measure speculation side by side with plain decoding, class by class; or something else."""
    check_options(context, what)
    match what:
        case "kernels":
            return bench_kernels(engine, output.json, output.plot)
        case "passes":
            return bench_passes(engine, output.json)
        case "startup":
            num_tokens = min(options.max_tokens, _START_TOKENS)
            return bench_startup(engine, num_tokens, series.repeats, output.json, strict=strict)
        case "batch":
            return bench_batch(engine, options, series, peers, output.json, strict=strict)
        case "parity":
            num_prompts = series.num_prompts or _PARITY_PROMPTS
            return bench_parity(engine, num_prompts, options.max_tokens, output.json, strict=strict)
        case _:
            return _bench_speculation(engine, options, peers, output, show, strict=strict)


def _bench_speculation(
    engine: EngineOptions,
    options: BenchOptions,
    peers: PeerOptions,
    output: OutputOptions,
    show: Path | None,
    *,
    strict: bool,
) -> None:
    from forerun.bench.records.record import read_record
    from forerun.bench.records.series_record import read_series

    series = read_series(show) if show else None
    if series is not None:
        return _show_series(series, output, strict=strict)
    record = read_record(show) if show else _measure(engine, options, peers, output.json)
    _present(record, output)
    if not record.is_complete and show is None:
        raise typer.Exit(INTERRUPTED)
    if strict and any(outcome.passed is False for outcome in record.verdicts):
        raise typer.Exit(1)
    return None


def _show_series(series: SeriesRecord, output: OutputOptions, *, strict: bool) -> None:
    if output.html is not None or output.plot is not None:
        raise InvalidOption("--html and --plot draw records of speculation only; drop them.")
    console = screen()
    console.print(series.title, style="italic")
    show_verdicts(console, series.verdicts, strict=strict)


def _present(record: Record, output: OutputOptions) -> None:
    from forerun.bench.views.tables import print_record

    console = screen()
    print_record(console, record)
    if output.html is not None:
        from forerun.bench.views.html_report import write_report

        write_report(record, output.html)
    if output.plot is not None:
        from forerun.bench.views.plots import save_plot

        save_plot(record, output.plot)
    for path in (output.json, output.html, output.plot):
        if path is not None:
            console.print(f"written: {path}", style="dim")


def _measure(
    engine: EngineOptions, options: BenchOptions, peers: PeerOptions, path: Path | None
) -> Record:
    opened = _open_peers(engine, options, peers)
    try:
        llm = load_with_room(engine, options.max_tokens)
        session = _session(engine, options, llm, opened, path)
        return _run_with_progress(session, llm)
    finally:
        for peer in {contender.peer for contender in opened}:
            peer.close()


def _session(
    engine: EngineOptions,
    options: BenchOptions,
    llm: LLM,
    peers: list[PeerContender],
    path: Path | None,
) -> Session:
    from forerun.bench.measure.contenders import engines
    from forerun.bench.measure.costs import costs_by_contender
    from forerun.bench.session import Session
    from forerun.bench.measure.side_by_side import SideBySide
    from forerun.bench.prompts.workloads import WORKLOADS, build_workloads, cut_prompts
    from forerun.types import SamplingParams

    names = WORKLOADS if options.classes == ALL else split(options.classes)
    workloads = build_workloads(names, options.pairs, options.seed)
    if options.prompt_tokens is not None:
        workloads = cut_prompts(workloads, options.prompt_tokens, llm.tokenizer)
    configs = _configs(engine, options)
    params = SamplingParams(temperature=options.temperature, seed=options.seed)
    side = SideBySide(
        workloads=workloads,
        engines=engines(llm, configs, params, time.perf_counter),
        peers=peers,
        tokenizer=llm.tokenizer,
        max_tokens=options.max_tokens,
        num_pairs=options.pairs,
        seed=options.seed,
    )
    sample = workloads[0].prompts[0].encode(llm.tokenizer)
    costs = costs_by_contender(llm, configs, sample, time.perf_counter, cache_dir(os.environ))
    return Session(side, _facts(engine, options, llm, peers), costs, path)


def _configs(engine: EngineOptions, options: BenchOptions) -> dict[str, SpeculativeConfig]:
    """What the user asked for as `default`, then every method at every depth."""
    from forerun.bench.measure.contenders import DEFAULT, sweep

    given = engine.speculative_config
    if given is None:
        return {}
    keys = {"model": given.model, "num_layers": options.num_layers}
    return {DEFAULT: given, **sweep(_methods(engine, options), options.depth_list, keys)}


def _methods(engine: EngineOptions, options: BenchOptions) -> list[str]:
    """What is swept: nothing without speculation, and a draft model wherever there is one."""
    given = engine.speculative_config
    if given is None:
        return []
    methods = options.method_list
    return methods if given.model is None else list(dict.fromkeys([*methods, "draft_model"]))


def _open_peers(
    engine: EngineOptions, options: BenchOptions, wanted: PeerOptions
) -> list[PeerContender]:
    """Started before our own model is loaded: a missing peer is told at once."""
    from forerun.bench.peers import PeerContender

    names = split(wanted.peers)
    if names and options.temperature != 0:
        raise InvalidOption("--peers answer greedily; drop --temperature.")
    opened: list[Peer] = []
    try:
        for name in names:
            opened.append(_open(name, engine, options, wanted))  # noqa: PERF401
        return [PeerContender(peer, mode) for peer, mode in peer_modes(opened, wanted.peer_modes)]
    except BaseException:
        for peer in opened:
            peer.close()
        raise


def _open(name: str, engine: EngineOptions, options: BenchOptions, wanted: PeerOptions) -> Peer:
    from forerun.bench.peers import open_peer

    return open_peer(
        name,
        model_path(engine.model),
        threads=engine.num_threads or _num_cores(),
        max_len=max_len_for(options.max_tokens),
        python=wanted.peer_python,
    )


def _facts(
    engine: EngineOptions, options: BenchOptions, llm: LLM, peers: list[PeerContender]
) -> Facts:
    from forerun.bench.records.identity import versions
    from forerun.bench.session import Facts

    others = {k: v for c in peers for k, v in c.peer.about["versions"].items()}
    return Facts(
        commit=own_commit(),
        machine=machine_facts(),
        versions=versions(others),
        model=model_facts(engine.model),
        settings={
            **asdict(options),
            "methods": ",".join(_methods(engine, options)) or "none",
            "threads": engine.num_threads or _num_cores(),
            "kernels": type(llm.model.kernels).__name__,
            **engine.rounding,
            "chat_template": engine.chat_template_digest,
            "max_model_len": llm.max_model_len,
            "acceptance": "coupled",
            "batch_size": 1,
        },
    )


def _run_with_progress(session: Session, llm: LLM) -> Record:
    side = session.side
    with progress("answers", side.num_runs + len(side.engines) + len(side.peers)) as advance:
        return session.run(llm, lambda done: advance(1, done))


def _num_cores() -> int:
    from forerun.cli.machine import read_cpu

    return read_cpu().num_cores
