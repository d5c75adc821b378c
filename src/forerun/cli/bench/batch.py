"""`forerun bench batch`: requests in flight, part by part."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from forerun.cli.bench.options import (
    ALL,
    BenchOptions,
    OutputOptions,
    at_least,
    bench_options,
    option,
    output_options,
    split,
    strict_option,
    whole_numbers,
)
from forerun.cli.bench.outcome import collect, finish, write_report
from forerun.cli.bench.peer_options import PeerOptions, open_peers, peer_options, peer_versions
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import engine_options, load
from forerun.cli.options.shared import only, takes
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption, unknown_name

if TYPE_CHECKING:
    from forerun.bench.peers import PeerContender
    from forerun.engine import LLM
    from forerun.models.text.tokenizer import Tokenizer
    from forerun.types import SamplingParams

Item = TypeVar("Item")

PARTS: Final = ("together", "load", "offline")


@dataclass(frozen=True)
class BatchOptions:
    repeats: int
    parts: str
    together: int
    in_flight: str
    num_prompts: int

    @property
    def in_flight_list(self) -> list[int]:
        return whole_numbers("--in-flight", self.in_flight)

    @property
    def max_num_seqs(self) -> int:
        return max(self.together, *self.in_flight_list)

    def part_list(self, *, has_peer: bool) -> list[str]:
        """Without a peer there is nobody to compare throughput with."""
        names = list(PARTS) if self.parts == ALL else split(self.parts)
        if "sharing" in names:
            typer.echo("note: sharing is no part of bench batch any more; drop it.", err=True)
            names.remove("sharing")
        for name in names:
            if name not in PARTS:
                raise unknown_name("part of bench batch", name, PARTS)
        if not has_peer and self.parts != ALL and "offline" in names:
            raise InvalidOption("the part offline needs --peers llamacpp.")
        return [name for name in names if has_peer or name != "offline"]


def batch_options(
    parts: Annotated[
        str, option("Batch", "--parts", text=f"By comma: {', '.join(PARTS)}; or all.")
    ] = ALL,
    repeats: Annotated[
        int, option("Batch", "--repeats", text="Rounds of together and of offline.")
    ] = 5,
    together: Annotated[int, option("Batch", "--together", text="Requests of together.")] = 8,
    in_flight: Annotated[
        str, option("Batch", "--in-flight", text="Requests at once of load, by comma.")
    ] = "1,4,16",
    num_prompts: Annotated[int, option("Batch", "--prompts", text="Of the part offline.")] = 64,
) -> BatchOptions:
    at_least("--repeats", repeats, 1)
    at_least("--together", together, 2)
    at_least("--prompts", num_prompts, 1)
    if not split(parts) or not split(in_flight):
        raise InvalidOption("--parts and --in-flight must not be empty; drop the option.")
    return BatchOptions(repeats, parts, together, in_flight, num_prompts)


@takes(
    engine=engine_options,
    asked=only(bench_options, "classes", "pairs", "max_tokens", "temperature", "seed"),
    options=batch_options,
    peers=peer_options,
    output=only(output_options, "json_path"),
)
def batch(
    engine: EngineConfig,
    asked: BenchOptions,
    options: BatchOptions,
    peers: PeerOptions,
    output: OutputOptions,
    strict: Annotated[bool, strict_option()] = False,
) -> None:
    """Measure many requests in flight: with guesses and without, and beside llama.cpp's server.

    Each part's figures are in the record as soon as it ends, or is stopped.
    """
    if peers.peers not in ("", "llamacpp"):
        raise InvalidOption("bench batch compares with --peers llamacpp alone.")
    parts = options.part_list(has_peer=bool(peers.peers))
    prompts = Prompts(asked, options)
    with ExitStack() as stack:
        max_len = room_for(parts, prompts, engine)
        servers: list[PeerContender] = []
        if "offline" in parts:
            servers = open_peers(stack, engine, peers, max_len, slots=options.max_num_seqs)
        llm = load(engine, max_model_len=max_len, max_num_seqs=options.max_num_seqs)
        settings = {**prompts.settings, **engine.rounding}
        settings |= {"max_num_seqs": options.max_num_seqs, "kernels": llm.model.kernels.name}
        report = record_head(engine.model, settings, peer_versions(servers))
        report |= {"measured": "batch", "is_complete": False}
        bench = _Bench(prompts, llm, servers)
        for part in parts:
            report[part] = getattr(bench, part)()
            if bench.is_interrupted:
                break
            write_report(report, output.json)
    finish({**report, "is_complete": not bench.is_interrupted}, output.json, strict=strict)


@dataclass(frozen=True)
class Prompts:
    """What each part asks."""

    asked: BenchOptions
    options: BatchOptions

    @property
    def settings(self) -> dict[str, Any]:
        return {**asdict(self.asked), **asdict(self.options)}

    @property
    def short_classes(self) -> list[str]:
        """Free classes have short prompts: there decoding counts, which is what passes share."""
        from forerun.bench.prompts.workloads import KINDS, Kind

        classes = self.asked.class_list
        return [name for name in classes if KINDS.get(name) is Kind.FREE] or classes

    def of(self, part: str, tokenizer: Tokenizer) -> list[list[int]]:
        """All that a part asks."""
        match part:
            case "together":  # one round more, which warms up
                num = self.options.together * (self.options.repeats + 1)
                return self.mixed(num, tokenizer, self.short_classes)
            case "load":
                num = self.asked.pairs * sum(self.options.in_flight_list)
                return self.mixed(num, tokenizer, self.asked.class_list)
        return self.mixed(self.options.num_prompts, tokenizer, self.asked.class_list)

    def mixed(self, num: int, tokenizer: Tokenizer, classes: list[str]) -> list[list[int]]:
        from forerun.bench.batch.in_flight import mixed_prompts

        return mixed_prompts(classes, num, self.asked.seed, tokenizer)


def room_for(parts: list[str], prompts: Prompts, engine: EngineConfig) -> int:
    """A context for the longest prompt of any part and its answer."""
    from forerun.models.opening import load_tokenizer, open_checkpoint

    checkpoint = open_checkpoint(engine.model, engine.cache_dir)
    tokenizer, trained = load_tokenizer(checkpoint), checkpoint.config.max_len
    lengths = [len(prompt) for part in parts for prompt in prompts.of(part, tokenizer)]
    wanted = max(lengths, default=0) + prompts.asked.max_tokens
    return engine.max_model_len or min(trained, wanted)


@dataclass
class _Bench:
    """The parts by their names; each returns what it found."""

    prompts: Prompts
    llm: LLM
    servers: list[PeerContender]
    is_interrupted: bool = False

    def __post_init__(self) -> None:
        self._plain = self.llm.with_speculation(None)
        self._seed = self.prompts.asked.seed
        self._repeats = self.prompts.options.repeats

    def _collect(self, unit: str, total: int, measured: Iterable[Item]) -> list[Item]:
        found = collect(unit, total, measured)
        self.is_interrupted = len(found) < total
        return found

    @property
    def _params(self) -> SamplingParams:
        from forerun.types import SamplingParams

        asked = self.prompts.asked
        return SamplingParams(
            temperature=asked.temperature, max_tokens=asked.max_tokens, seed=asked.seed
        )

    def together(self) -> dict[str, Any]:
        from forerun.bench.batch.together import measure_together, together_record

        num, prompts = self.prompts.options.together, self.prompts.of("together", self._tokenizer)
        rounds = [prompts[first : first + num] for first in range(0, len(prompts), num)]
        params = self._params.with_(ignore_eos=True)
        measured = measure_together(self._plain, rounds, params, time.perf_counter, self._seed)
        found = self._collect("rounds of together", len(rounds), measured)[1:]  # one warms up
        return {"classes": self.prompts.short_classes, **together_record(found, self._seed)}

    def load(self) -> dict[str, Any]:
        from forerun.bench.batch.load import load_record, measure_load
        from forerun.bench.measure.contenders import DEFAULT, PLAIN

        sizes, num_pairs = self.prompts.options.in_flight_list, self.prompts.asked.pairs
        prompts = iter(self.prompts.of("load", self._tokenizer))
        # Size after size, again and again, so that a machine that slows down slows all of them.
        lists = [[next(prompts) for _ in range(num)] for _ in range(num_pairs) for num in sizes]
        llms = {PLAIN: self._plain, DEFAULT: self.llm}
        measured = measure_load(llms, lists, self._params, time.perf_counter, Random(self._seed))
        found = self._collect("pairs of load", len(lists), measured)
        return {"classes": self.prompts.asked.class_list, **load_record(found, self._seed)}

    def offline(self) -> dict[str, Any]:
        from forerun.bench.batch.offline import measure_offline, offline_record

        prompts = self.prompts.of("offline", self._tokenizer)
        measured = measure_offline(
            self.llm,
            self.servers,
            prompts,
            self._repeats,
            self._params,
            time.perf_counter,
            self._seed,
        )
        found = self._collect("repeats of offline", self._repeats, measured)
        return {
            "num_prompts": len(prompts),
            "num_prompt_tokens": sum(map(len, prompts)),
            "servers": {server.name: dict(server.about) for server in self.servers},
            **offline_record(found, self._seed),
        }

    @property
    def _tokenizer(self) -> Tokenizer:
        return self.llm.tokenizer
