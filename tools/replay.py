"""Replay recorded answers through suffix lookup and the controller.

Greedy texts do not depend on the guesses, so they can be recorded once; what speculation gains on
them follows from the costs of passes. All decisions are made by the real code, and only the clock
is simulated: a quick and repeatable stand-in for `forerun bench` when a rule changes.

python tools/replay.py write    # generates the texts with SmolLM2: minutes
python tools/replay.py table
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Final, NamedTuple

from forerun.bench.prompts.workloads import FREE_FORM, KINDS, Kind, build_workloads
from forerun.drafters import Budget, SuffixLookup
from forerun.engine import LLM, RequestSpeculation
from forerun.sampling import Noise
from forerun.speculation.choice import Reason
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.speculation.step_times import StepTimes
from forerun.types import Proposal, SamplingParams, Verdict

_TEXTS: Final = Path(__file__).with_name("recorded_texts.json.gz")
_RECORDS: Final = Path(__file__).parents[1] / "bench/records"
_CLASSES: Final = tuple(name for name in FREE_FORM if name != "long")
_NUM_TEXTS: Final = 20
_DEPTH: Final = 16
_GREEDY: Final = SamplingParams(temperature=0, max_tokens=64)
_CALIBRATED: Final = (1, 2, 4, 8, 16)  # pass sizes that an engine times at start


@dataclass(frozen=True)
class Machine:
    """Two cores: seconds of passes by size, and of the rest of a step, timed by hand."""

    name: str
    passes: Mapping[int, float]
    rest: float  # of a step of a plain engine
    not_looked: float  # what speculation adds to a round without a look
    glanced: float  # to a round in which a glance shows that no drafter has a guess
    silent: float  # to a round in which asking the drafters shows that
    weighed: float  # to a round whose guesses were weighed
    verified: float  # if guesses were verified
    shown: float  # seconds of a look on the step's clock

    def looked(self, reason: Reason, *, was_asked: bool) -> float:
        if reason is Reason.NOT_LOOKED:
            return self.not_looked
        if not was_asked:
            return self.glanced
        return self.silent if reason is Reason.SILENT else self.weighed


def _recorded(name: str) -> dict[int, float]:
    passes = json.loads((_RECORDS / name).read_text("utf-8"))["passes"]
    return {int(size): row["median_s"] for size, row in passes.items()}


# Passes as timed between rounds of chat, maths and stories; passes in a row are faster.
_XEON_PASSES: Final = {1: 2.9, 2: 3.8, 3: 4.9, 4: 5.55, 5: 6.6, 6: 7.7, 8: 10.2, 16: 20.0}
XEON: Final = Machine(
    "Xeon, 8-bit activations",
    {size: 1e-3 * milliseconds for size, milliseconds in _XEON_PASSES.items()},
    *(0.22e-3, 0.02e-3, 0.08e-3, 0.12e-3, 0.16e-3, 0.05e-3),
    shown=0.09e-3,
)
NEOVERSE: Final = Machine(
    "Neoverse-N1",
    _recorded("smollm2-passes.json"),
    *(0.48e-3, 0.03e-3, 0.1e-3, 0.16e-3, 0.25e-3, 0.09e-3),
    shown=0.12e-3,
)


class Text(NamedTuple):
    prompt: tuple[int, ...]
    output: tuple[int, ...]


@dataclass
class Answer:
    """A request as speculation sees it."""

    id: int
    prompt: tuple[int, ...]
    output: list[int]
    num_tokens: int  # prompt and whole answer
    params: SamplingParams = _GREEDY
    speculation: RequestSpeculation = field(default_factory=RequestSpeculation)
    cache_salt: str | None = None
    noise: Noise = field(default_factory=lambda: Noise(0))
    round_idx: int = 0
    grammar: None = None
    prediction: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.tokens = [*self.prompt, *self.output]

    @property
    def num_left(self) -> int:
        return self.num_tokens - len(self.tokens)


class _Clock:
    """Shows the seconds of a look; it is read before, after, and around the drafter's answer."""

    def __init__(self, look_seconds: float) -> None:
        self._now, self._tick = 0.0, look_seconds / 3

    def __call__(self) -> float:
        self._now += self._tick
        return self._now


def recorded_texts() -> dict[str, list[Text]]:
    with gzip.open(_TEXTS, "rt", encoding="utf-8") as file:
        record = json.load(file)
    return {
        name: [Text(tuple(prompt), tuple(output)) for prompt, output in texts]
        for name, texts in record["classes"].items()
    }


def ratios(
    texts: Mapping[str, Sequence[Text]], machine: Machine = NEOVERSE
) -> dict[str, list[float]]:
    """Return plain decoding's time ÷ speculation's for every answer; classes alternate."""
    true_costs = PassCost(machine.passes.items())
    known = Costs(PassCost((size, true_costs.seconds(size)) for size in _CALIBRATED))
    drafters = GuardedDrafters({"suffix": SuffixLookup()}, vocab_size=1 << 17)
    speculation = Speculation(drafters, Controller(known), Budget(_DEPTH))
    found: dict[str, list[float]] = {name: [] for name in texts}
    rows = (zip(texts, row, strict=True) for row in zip(*texts.values(), strict=True))
    for number, (name, text) in enumerate(chain.from_iterable(rows)):
        plain = (len(text.output) - 1) * (true_costs.seconds(1) + machine.rest)
        found[name].append(plain / _seconds(speculation, number, text, true_costs, machine))
    return found


def _seconds(
    speculation: Speculation, number: int, text: Text, costs: PassCost, machine: Machine
) -> float:
    """Return the seconds from the first token to the last."""
    num_tokens = len(text.prompt) + len(text.output)
    request = Answer(number, text.prompt, list(text.output[:1]), num_tokens)
    clock, seconds = _Clock(machine.shown), 0.0
    speculation.begin(request)
    while request.num_left:
        times = StepTimes(clock, num_requests=1)
        choice = speculation.choose([request], 0, times)[number]
        (proposal,) = speculation.draft([request], [choice], times)
        verdict = _verdict(proposal, text.output[len(request.output) :])
        times.num_guesses = len(proposal)
        times.num_tokens = 1 + len(proposal)
        times.pass_seconds = costs.seconds(times.num_tokens)
        request.tokens += verdict.tokens
        request.output += verdict.tokens
        speculation.commit(request, choice, proposal, verdict)
        times.rest_seconds = machine.rest + (machine.verified if len(proposal) else 0.0)
        speculation.observe(times)
        seconds += (
            times.pass_seconds
            + times.rest_seconds
            + machine.looked(choice.reason, was_asked=bool(times.drafts))
        )
    assert speculation.end(request) == 0
    return seconds


def _verdict(proposal: Proposal, rest: Sequence[int]) -> Verdict:
    """Judge a chain by the recorded continuation."""
    pairs = zip(proposal.tokens, rest, strict=False)
    num_held = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(proposal), len(rest)))
    return Verdict(tuple(range(num_held)), tuple(rest[: num_held + 1]), None)


def geometric_mean_of_means(found: Mapping[str, Sequence[float]]) -> float:
    return math.exp(fmean(math.log(fmean(rows)) for rows in found.values()))


def geometric_mean(found: Mapping[str, Sequence[float]], kind: Kind) -> float:
    """Return the geometric mean of the medians of a kind's classes."""
    logs = [math.log(median(rows)) for name, rows in found.items() if KINDS[name] is kind]
    return math.exp(sum(logs) / len(logs))


def table() -> None:
    for machine in (NEOVERSE, XEON):
        found = ratios(recorded_texts(), machine)
        print(f"\n{machine.name}\n\n| class | median | mean | smallest | largest |")
        print("|---|---|---|---|---|")
        for name, rows in found.items():
            least, most = min(rows), max(rows)
            print(f"| {name} | {median(rows):.3f} | {fmean(rows):.3f} | {least:.2f} | {most:.2f} |")
        for kind in (Kind.COPY, Kind.FREE):
            print(f"\n{kind} classes together: {geometric_mean(found, kind):.3f}")
        print(f"\nall: {geometric_mean_of_means(found):.3f}")


def write() -> None:
    llm = LLM("smollm2-135m", max_model_len=2112, max_num_seqs=1)
    classes = {}
    for workload in build_workloads(_CLASSES, _NUM_TEXTS, seed=0):
        prompts = [prompt.encode(llm.tokenizer) for prompt in workload.prompts]
        results = (llm.generate([prompt], _GREEDY)[0].outputs[0] for prompt in prompts)
        answers = [list(result.token_ids) for result in results]
        classes[workload.name] = list(zip(prompts, answers, strict=True))
    _write_texts(classes)


def _write_texts(classes: Mapping[str, Sequence[tuple[Sequence[int], Sequence[int]]]]) -> None:
    record = {"model": "smollm2-135m", "seed": 0, "max_tokens": 64, "classes": classes}
    text = json.dumps(record, separators=(",", ":"))
    _TEXTS.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    {"write": write, "table": table}[sys.argv[1]]()
