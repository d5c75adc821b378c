"""`forerun bench batch`: concurrent requests, part by part."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from forerun.cli.bench.options import (
    ALL,
    BenchOptions,
    OutputOptions,
    at_least,
    bench_options,
    output_options,
    split,
    strict_option,
    whole_numbers,
)
from forerun.cli.bench.outcome import collect, finish, write_report
from forerun.cli.bench.peer_options import PeerOptions, open_peers, peer_options, peer_versions
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import kernel_settings, load, measuring_options
from forerun.cli.options.shared import bundle, only, takes
from forerun.cli.terminal.output import say
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.option_checks import require_known
from forerun.option_fields import option

if TYPE_CHECKING:
    from forerun.bench.peers import PeerContender
    from forerun.engine import LLM

Item = TypeVar("Item")
Prompts = Mapping[str, list[list[int]]]  # the prompts of each part

PARTS: Final = ("together", "load", "offline")


@dataclass(frozen=True)
class BatchOptions:
    parts: str = option(ALL, f"Parts, separated by commas: {', '.join(PARTS)}; or all.")
    repeats: int = option(5, "Repetitions of the parts together and offline.")
    together: int = option(8, "Concurrent requests in the part together.")
    in_flight: str = option(
        "1,4,16", "Numbers of concurrent requests in the part load, separated by commas."
    )
    num_prompts: int = option(64, "Prompts in the part offline.", "--prompts")

    def __post_init__(self) -> None:
        at_least("--repeats", self.repeats, 1)
        at_least("--together", self.together, 2)
        at_least("--prompts", self.num_prompts, 1)
        if not split(self.parts) or not split(self.in_flight):
            raise InvalidOption("--parts and --in-flight must not be empty; drop the option.")

    @property
    def in_flight_list(self) -> list[int]:
        return whole_numbers("--in-flight", self.in_flight)

    @property
    def max_num_seqs(self) -> int:
        return max(self.together, *self.in_flight_list)

    def part_list(self, *, has_peer: bool) -> list[str]:
        """Return the parts to run; offline compares throughput with a peer, so it needs one."""
        names = list(PARTS) if self.parts == ALL else split(self.parts)
        if "sharing" in names:
            say("note: bench batch has no part sharing any more; drop it.", err=True)
            names.remove("sharing")
        require_known("part of bench batch", PARTS, *names)
        if not has_peer and self.parts != ALL and "offline" in names:
            raise InvalidOption("the part offline needs --peers llamacpp.")
        return [name for name in names if has_peer or name != "offline"]


batch_options = bundle(BatchOptions, "Batch")


@takes(
    engine=measuring_options,
    asked=only(bench_options, "classes", "pairs", "max_tokens", "temperature", "seed"),
    options=batch_options,
    peers=peer_options,
    output=only(output_options, "json"),
)
def batch(
    engine: EngineConfig,
    asked: BenchOptions,
    options: BatchOptions,
    peers: PeerOptions,
    output: OutputOptions,
    strict: Annotated[bool, strict_option()] = False,
) -> None:
    """Measure concurrent requests, with and without speculation, and beside llama.cpp's server.

    The record has the figures of each part as soon as it ends or is interrupted.
    """
    if peers.peers not in ("", "llamacpp"):
        raise InvalidOption("bench batch compares with --peers llamacpp alone.")
    parts = options.part_list(has_peer=bool(peers.peers))
    prompts, max_len = prompts_and_room(engine, asked, options, parts)
    with ExitStack() as stack:
        servers: list[PeerContender] = []
        if "offline" in parts:
            servers = open_peers(stack, engine, peers, max_len, slots=options.max_num_seqs)
        llm = load(engine, max_model_len=max_len, max_num_seqs=options.max_num_seqs)
        settings = {**asdict(asked), **asdict(options), **kernel_settings(engine, llm)}
        settings |= {"max_num_seqs": options.max_num_seqs, "kernels": llm.model.kernels.name}
        report = record_head(engine.model, settings, peer_versions(servers))
        report |= {"measured": "batch", "is_complete": False}
        bench = _Bench(asked, options, prompts, llm, servers)
        for part in parts:
            report[part] = getattr(bench, part)()
            if bench.is_interrupted:
                break
            write_report(report, output.json)
    finish({**report, "is_complete": not bench.is_interrupted}, output.json, strict=strict)


def prompts_and_room(
    engine: EngineConfig, asked: BenchOptions, options: BatchOptions, parts: Iterable[str]
) -> tuple[Prompts, int]:
    """Return each part's prompts, and a context length for the longest one and its answer."""
    from forerun.bench.batch import mixed_prompts
    from forerun.models.opening import load_tokenizer, open_checkpoint

    checkpoint = open_checkpoint(engine.model, engine.cache_folder)
    tokenizer = load_tokenizer(checkpoint)
    if engine.chat_template is not None:
        tokenizer = tokenizer.with_chat_template(engine.chat_template)
    wanted = {
        "together": (
            options.together * (options.repeats + 1),
            _short_classes(asked),
        ),  # one warms up
        "load": (asked.pairs * sum(options.in_flight_list), asked.class_list),
        "offline": (options.num_prompts, asked.class_list),
    }
    prompts = {}
    for part in parts:
        num, classes = wanted[part]
        prompts[part] = mixed_prompts(classes, num, asked.seed, tokenizer)
    longest = max((len(prompt) for asks in prompts.values() for prompt in asks), default=0)
    room = min(checkpoint.config.max_len, longest + asked.max_tokens)
    return prompts, engine.max_model_len or room


def _short_classes(asked: BenchOptions) -> list[str]:
    """Return the free classes: with short prompts decoding dominates, and passes share that."""
    from forerun.bench.prompts.workloads import KINDS, Kind

    classes = asked.class_list
    return [name for name in classes if KINDS.get(name) is Kind.FREE] or classes


@dataclass
class _Bench:
    """One method for each part, by its name; each returns its figures for the record."""

    asked: BenchOptions
    options: BatchOptions
    prompts: Prompts
    llm: LLM
    servers: list[PeerContender]
    is_interrupted: bool = False

    def __post_init__(self) -> None:
        from forerun.types import SamplingParams

        asked = self.asked
        self._plain, self._seed = self.llm.with_speculation(None), asked.seed
        self._params = SamplingParams(
            temperature=asked.temperature, max_tokens=asked.max_tokens, seed=asked.seed
        )

    def together(self) -> dict[str, Any]:
        from forerun.bench.batch import measure_together, together_record

        num, prompts = self.options.together, self.prompts["together"]
        rounds = [prompts[first : first + num] for first in range(0, len(prompts), num)]
        params = self._params.with_(ignore_eos=True)
        measured = measure_together(self._plain, rounds, params, time.perf_counter, self._seed)
        found = self._collect("rounds of together", len(rounds), measured)[1:]  # one warms up
        return {"classes": _short_classes(self.asked), **together_record(found, self._seed)}

    def load(self) -> dict[str, Any]:
        from forerun.bench.batch import load_record, measure_load
        from forerun.bench.measure.contenders import DEFAULT, PLAIN

        prompts = iter(self.prompts["load"])
        # The sizes in turns, so that a machine that slows down slows all of them.
        sizes = self.options.in_flight_list * self.asked.pairs
        lists = [[next(prompts) for _ in range(num)] for num in sizes]
        llms = {PLAIN: self._plain, DEFAULT: self.llm}
        measured = measure_load(llms, lists, self._params, time.perf_counter, Random(self._seed))
        found = self._collect("pairs of load", len(lists), measured)
        return {"classes": self.asked.class_list, **load_record(found, self._seed)}

    def offline(self) -> dict[str, Any]:
        from forerun.bench.batch import measure_offline, offline_record

        prompts, repeats = self.prompts["offline"], self.options.repeats
        clock, seed = time.perf_counter, self._seed
        measured = measure_offline(
            self.llm, self.servers, prompts, repeats, self._params, clock, seed
        )
        found = self._collect("repeats of offline", repeats, measured)
        return {
            "num_prompts": len(prompts),
            "num_prompt_tokens": sum(map(len, prompts)),
            "servers": {server.name: dict(server.about) for server in self.servers},
            **offline_record(found, seed),
        }

    def _collect(self, unit: str, total: int, measured: Iterable[Item]) -> list[Item]:
        found = collect(unit, total, measured)
        self.is_interrupted = len(found) < total
        return found
