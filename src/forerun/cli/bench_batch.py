"""`forerun bench batch`: requests in flight, part by part."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from forerun.cli.bench_options import ALL, BenchOptions, PeerOptions, peer_modes, split
from forerun.cli.cache_dir import cache_dir
from forerun.cli.circumstances import model_path
from forerun.cli.conclusion import head, show_verdicts, write_report
from forerun.cli.engine_options import EngineOptions
from forerun.cli.group import INTERRUPTED
from forerun.cli.progress import progress
from forerun.cli.screen import screen
from forerun.cli.series_options import SeriesOptions
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.bench.offline import PeerServer
    from forerun.bench.verdicts import Outcome
    from forerun.engine import LLM
    from forerun.models.text.tokenizer import Tokenizer
    from forerun.types import SamplingParams

Item = TypeVar("Item")

_NUM_OFFLINE: Final = 64
_NUM_SHARED: Final = 1000
_NUM_ADMITTED: Final = 2000
_ENDING: Final = 8  # tokens of its own that a prompt has after the shared ones
_ANSWER_ROOM: Final = 256  # tokens that the running stream may write meanwhile


def bench_batch(
    engine: EngineOptions,
    options: BenchOptions,
    series: SeriesOptions,
    peers: PeerOptions,
    record: Path | None,
    *,
    strict: bool,
) -> None:
    """Each part's figures are in the record as soon as it ends, or is stopped."""
    console = screen()
    with ExitStack() as stack:
        plan = _Plan(engine, options, series, peers)
        servers = plan.open_servers(stack)
        bench = _Bench(plan, plan.load(), servers)
        settings = {**asdict(options), **asdict(series), **engine.rounding}
        settings |= {"max_num_seqs": plan.num_seats, "kernels": bench.kernels}
        others = {k: v for s in servers for k, v in s.contender.peer.about["versions"].items()}
        described = head("batch", engine.model, settings, others)
        for number, part in enumerate(plan.parts, start=1):
            getattr(bench, part)()
            is_complete = number == len(plan.parts) and not bench.is_interrupted
            report = {"is_complete": is_complete, **bench.report}
            write_report(record, described, report, bench.verdicts)
            if bench.is_interrupted:
                break
    show_verdicts(console, bench.verdicts, strict=strict)
    if bench.is_interrupted:
        raise typer.Exit(INTERRUPTED)


@dataclass(frozen=True)
class _Plan:
    """What is wanted, and how much room it needs."""

    engine: EngineOptions
    options: BenchOptions
    series: SeriesOptions
    peers: PeerOptions

    @property
    def parts(self) -> list[str]:
        """Without a peer there is nobody to compare throughput with."""
        names = self.series.part_list
        if self.peers.peers:
            return names
        if self.series.parts != ALL and "offline" in names:
            raise InvalidOption("the part offline needs --peers llamacpp.")
        return [name for name in names if name != "offline"]

    @property
    def classes(self) -> list[str]:
        from forerun.bench.workloads import WORKLOADS

        return list(WORKLOADS) if self.options.classes == ALL else split(self.options.classes)

    @property
    def short_classes(self) -> list[str]:
        """Free classes have short prompts: there decoding counts, which is what passes share."""
        from forerun.bench.workloads import KINDS, Kind

        free = [name for name in self.classes if KINDS.get(name) is Kind.FREE]
        return free or self.classes

    @property
    def num_seats(self) -> int:
        return max(self.series.together, *self.series.in_flight_list)

    def prompts(self, part: str, tokenizer: Tokenizer) -> list[list[int]]:
        """All that a part asks; `sharing` makes its own."""
        match part:
            case "together":  # one round more, which warms up
                num = self.series.together * (self.series.repeats + 1)
                return self.mixed(num, tokenizer, self.short_classes)
            case "load":
                num = self.options.pairs * sum(self.series.in_flight_list)
                return self.mixed(num, tokenizer, self.classes)
            case "offline":
                return self.mixed(self.series.num_prompts or _NUM_OFFLINE, tokenizer, self.classes)
        return []

    def mixed(self, num: int, tokenizer: Tokenizer, classes: list[str]) -> list[list[int]]:
        from forerun.bench.in_flight import mixed_prompts

        return mixed_prompts(classes, num, self.options.seed, tokenizer)

    def max_len(self) -> int:
        """For the longest prompt of any part and its answer."""
        from forerun.models.opening import load_tokenizer, open_checkpoint

        checkpoint = open_checkpoint(self.engine.model, cache_dir(os.environ))
        tokenizer, trained = load_tokenizer(checkpoint), checkpoint.config.max_len
        lengths = [len(prompt) for part in self.parts for prompt in self.prompts(part, tokenizer)]
        wanted = max(lengths, default=0) + self.options.max_tokens
        if "sharing" in self.parts:
            wanted = max(wanted, _NUM_ADMITTED + _ANSWER_ROOM)
        return self.engine.max_model_len or min(trained, wanted)

    def load(self) -> LLM:
        """With what was asked for as speculation; the default, if nothing was."""
        return replace(self.engine, max_model_len=self.max_len()).load(self.num_seats)

    def open_servers(self, stack: ExitStack) -> list[PeerServer]:
        from forerun.bench.offline import PeerServer
        from forerun.bench.peers import PeerContender, open_peer
        from forerun.cli.machine import read_cpu

        if "offline" not in self.parts:
            return []
        if self.peers.peers != "llamacpp":
            raise InvalidOption("bench batch compares with --peers llamacpp alone.")
        peer = open_peer(
            "llamacpp",
            model_path(self.engine.model),
            threads=self.engine.num_threads or read_cpu().num_cores,
            max_len=self.max_len(),
            slots=self.num_seats,
            python=self.peers.peer_python,
        )
        stack.callback(peer.close)
        modes = peer_modes([peer], self.peers.peer_modes)
        return [PeerServer(PeerContender(peer, mode)) for peer, mode in modes]


@dataclass
class _Bench:
    """The parts by their names, and what they found."""

    plan: _Plan
    llm: LLM
    servers: list[PeerServer]
    report: dict[str, Any] = field(default_factory=dict)
    verdicts: list[Outcome] = field(default_factory=list)
    is_interrupted: bool = False

    def __post_init__(self) -> None:
        self._plain = self.llm.with_speculation(None)

    def _followed(self, unit: str, total: int, measured: Iterable[Item]) -> list[Item]:
        """All of it; after ^C, what there is."""
        found = []
        try:
            with progress(unit, total) as advance:
                for one in measured:
                    found.append(one)
                    advance()
        except KeyboardInterrupt:
            self.is_interrupted = True
        return found

    @property
    def kernels(self) -> str:
        return self.llm.model.kernels.name

    @property
    def _params(self) -> SamplingParams:
        from forerun.types import SamplingParams

        options = self.plan.options
        return SamplingParams(
            temperature=options.temperature, max_tokens=options.max_tokens, seed=options.seed
        )

    def together(self) -> None:
        from forerun.bench.together import measure_together, together_record, together_verdict

        num, seed = self.plan.series.together, self._seed
        prompts = self.plan.prompts("together", self.llm.tokenizer)
        rounds = [prompts[first : first + num] for first in range(0, len(prompts), num)]
        params = self._params.with_(ignore_eos=True)
        measured = measure_together(self._plain, rounds, params, time.perf_counter, seed)
        found = self._followed("rounds of together", len(rounds), measured)[1:]  # one warms up
        self.report["together"] = {
            "classes": self.plan.short_classes,
            **together_record(found, seed),
        }
        self.verdicts.append(together_verdict(found, seed))

    def load(self) -> None:
        from forerun.bench.contenders import DEFAULT, PLAIN
        from forerun.bench.load import load_record, load_verdicts, measure_load

        wanted, num_pairs = self.plan.series.in_flight_list, self.plan.options.pairs
        prompts = iter(self.plan.prompts("load", self.llm.tokenizer))
        # All sizes in turn, so that a machine that slows down slows all of them.
        lists = [[next(prompts) for _ in range(num)] for _ in range(num_pairs) for num in wanted]
        llms = {PLAIN: self._plain, DEFAULT: self.llm}
        random = Random(self._seed)
        measured = measure_load(llms, lists, self._params, time.perf_counter, random)
        found = self._followed("pairs of load", len(lists), measured)
        self.report["load"] = {"classes": self.plan.classes, **load_record(found, self._seed)}
        self.verdicts += load_verdicts(found, wanted, self._seed)

    def offline(self) -> None:
        from forerun.bench.offline import measure_offline, offline_record, offline_verdict

        prompts = self.plan.prompts("offline", self.llm.tokenizer)
        measured = measure_offline(
            self.llm,
            self.servers,
            prompts,
            self._repeats,
            self._params,
            time.perf_counter,
            self._seed,
        )
        found = self._followed("repeats of offline", self._repeats, measured)
        about = {s.name: dict(s.contender.about) for s in self.servers}
        self.report["offline"] = {
            "num_prompts": len(prompts),
            "num_prompt_tokens": sum(map(len, prompts)),
            "servers": about,
            **offline_record(found, self._seed),
        }
        self.verdicts.append(offline_verdict(found, self._seed))

    def sharing(self) -> None:
        from forerun.bench.sharing import admission, prefix_use, sharing_record

        room = self.llm.max_model_len - _ANSWER_ROOM
        num_shared, num_admitted = min(_NUM_SHARED, room), min(_NUM_ADMITTED, room)
        text = self._long_text(max(num_shared + 2 * _ENDING, num_admitted))
        endings = [
            text[num_shared : num_shared + _ENDING],
            text[num_shared + _ENDING : num_shared + 2 * _ENDING],
        ]
        shared = prefix_use(self._plain, text[:num_shared], endings)
        admitted = admission(self._plain, text[:_ENDING], text[:num_admitted])
        self.report["sharing"] = sharing_record(shared, admitted)
        self.verdicts += [shared.outcome, admitted.outcome]

    def _long_text(self, num_tokens: int) -> list[int]:
        """Prompts in a row; only their number matters."""
        text: list[int] = []
        num = 1
        while len(text) < num_tokens:
            num *= 2
            prompts = self.plan.mixed(num, self.llm.tokenizer, ["story"])
            text = [token for prompt in prompts for token in prompt]
        return text[:num_tokens]

    @property
    def _repeats(self) -> int:
        return self.plan.series.repeats

    @property
    def _seed(self) -> int:
        return self.plan.options.seed
