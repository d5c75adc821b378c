"""`forerun bench speculation`: what speculation gains on this machine, side by side."""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from forerun.cli.bench.options import (
    BenchOptions,
    OutputOptions,
    bench_options,
    load_with_room,
    max_len_for,
    output_options,
    split,
    strict_option,
)
from forerun.cli.bench.outcome import leave
from forerun.cli.bench.peer_options import (
    PeerOptions,
    num_threads,
    open_peers,
    peer_options,
    peer_versions,
)
from forerun.cli.bench.record_head import record_head
from forerun.cli.bench.show import show_record
from forerun.cli.options.engine import kernel_settings, measuring_options
from forerun.cli.options.shared import takes
from forerun.cli.terminal.progress import progress
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.bench.peers import PeerContender
    from forerun.bench.records.record import Record
    from forerun.engine import LLM, SpeculativeConfig


@takes(engine=measuring_options, options=bench_options, peers=peer_options, output=output_options)
def speculation(
    engine: EngineConfig,
    options: BenchOptions,
    peers: PeerOptions,
    output: OutputOptions,
    strict: Annotated[bool, strict_option()] = False,
) -> None:
    """Measure speculation against plain decoding and peers, class by class."""
    record = _measure(engine, options, peers, output.json)
    show_record(record, output, strict=strict)
    leave(is_different=False, is_complete=record.is_complete)


def _measure(
    engine: EngineConfig, options: BenchOptions, peers: PeerOptions, path: Path | None
) -> Record:
    from forerun.bench.measure.contenders import engines
    from forerun.bench.measure.costs import costs_by_contender
    from forerun.bench.measure.side_by_side import SideBySide
    from forerun.bench.prompts.workloads import build_workloads, cut_prompts
    from forerun.bench.session import Session
    from forerun.types import SamplingParams

    if split(peers.peers) and options.temperature != 0:
        raise InvalidOption("--peers answer greedily; drop --temperature.")
    configs = _configs(engine, options)  # rejects mistakes before anything is loaded
    workloads = build_workloads(options.class_list, options.pairs, options.seed)
    params = SamplingParams(temperature=options.temperature, seed=options.seed)
    clock = time.perf_counter
    with ExitStack() as stack:
        opened = open_peers(stack, engine, peers, max_len_for(options.max_tokens))
        llm = load_with_room(engine, options.max_tokens)
        if options.prompt_tokens is not None:
            workloads = cut_prompts(workloads, options.prompt_tokens, llm.tokenizer)
        side = SideBySide(
            workloads=workloads,
            engines=engines(llm, configs, params, clock),
            peers=opened,
            tokenizer=llm.tokenizer,
            max_tokens=options.max_tokens,
            num_pairs=options.pairs,
            seed=options.seed,
        )
        prompts = sorted((w.prompts[0].encode(llm.tokenizer) for w in workloads), key=len)
        sample = prompts[len(prompts) // 2]  # a longer context makes passes slower
        costs = costs_by_contender(llm, configs, sample, clock, engine.cache_folder)
        session = Session(side, _head(engine, options, llm, opened), costs, path)
        num_answers = side.num_runs + len(side.engines) + len(side.peers)
        with progress("answers", num_answers) as advance:
            return session.run(llm, lambda done: advance(1, done))


def _configs(engine: EngineConfig, options: BenchOptions) -> dict[str, SpeculativeConfig]:
    """Return the user's config as `default`, then every method at every depth."""
    from forerun.bench.measure.contenders import DEFAULT, fixed_depths, own_options

    given = engine.speculation
    if given is None:
        return {}
    own = own_options(given, options.num_layers)
    return {DEFAULT: given, **fixed_depths(_methods(engine, options), options.depth_list, own)}


def _methods(engine: EngineConfig, options: BenchOptions) -> list[str]:
    """Return the methods to run at fixed depths, always with the one that has a model; none
    without speculation."""
    given = engine.speculation
    if given is None:
        return []
    methods, owner = options.method_list, given.model_owner
    return methods if owner is None else list(dict.fromkeys([*methods, owner]))


def _head(
    engine: EngineConfig, options: BenchOptions, llm: LLM, peers: list[PeerContender]
) -> dict[str, Any]:
    settings = {
        **asdict(options),
        "methods": ",".join(_methods(engine, options)) or "none",
        "threads": num_threads(engine),
        "kernels": type(llm.model.kernels).__name__,
        **kernel_settings(engine, llm),
        "chat_template": _digest(engine.chat_template),
        "max_model_len": llm.max_model_len,
        "acceptance": "coupled",
        "batch_size": 1,
    }
    return record_head(engine.model, settings, peer_versions(peers))


def _digest(chat_template: str | None) -> str | None:
    """Return a digest of the template that replaces the model's own; None without one."""
    return chat_template and hashlib.sha256(chat_template.encode()).hexdigest()[:16]
