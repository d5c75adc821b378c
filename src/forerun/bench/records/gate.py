"""The rollout gate: whether a canary may replace the baseline, decided class by class.

the same tokens        the sampler is untouched
p95 latency lower      speculation makes tokens come sooner
throughput ≥ 0.95 ×    and costs the machine little
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.bench.measure.bootstrap import Quantiles
from forerun.bench.records.cells import Cell
from forerun.bench.records.record import InvalidRecord, Record
from forerun.option_checks import require_known

MIN_THROUGHPUT: Final = 0.95

# The meanings of "inter-token latency". Tokens of one round come together, so the p95 of single
# waits is the time of one round and cannot fall below a plain pass; the mean wait within an
# answer is what a reader feels.
LATENCIES: Final[Mapping[str, Callable[[Cell], Quantiles | None]]] = {
    "answer": lambda cell: cell.answer_ms,
    "wait": lambda cell: cell.wait_ms,
}
# The fields that must agree, by parts of a record.
_SAME: Final[Mapping[str, Sequence[str]]] = {
    "model": ("num_bytes", "sha256"),
    "machine": ("cpu", "num_cores", "architecture", "features", "memory_bytes"),
    "settings": (
        *("max_tokens", "temperature", "seed", "acceptance", "prompt_tokens"),
        *("threads", "kernels", "quantization", "activations", "kv_cache_dtype"),
        "instruction_set",
        *("chat_template", "max_model_len"),
    ),
}
_NOT_RECORDED: Final = "not recorded"  # in older records: equals only the same
# Defaults for records without the field; the kernels in _NO_CHOICE have one cache type.
_ACTIVATIONS_ONCE, _CACHE_ONCE = "int16", "float32"
_NO_CHOICE: Final = ("CudaKernels", "ReferenceKernels")


@dataclass(frozen=True)
class Check:
    workload: str
    what: str
    baseline: str
    canary: str
    passed: bool


@dataclass(frozen=True)
class Side:
    """One record, and the contender to compare."""

    label: str  # the file, as the user named it
    record: Record
    contender: str

    def __post_init__(self) -> None:
        require_known(f"contender of {self.label}", self.record.contenders, self.contender)

    @property
    def cells(self) -> dict[str, Cell]:
        return {c.workload: c for c in self.record.cells if c.contender == self.contender}

    @property
    def digests(self) -> dict[tuple[str, int], str]:
        return {
            (run["workload"], run["pair"]): run["digest"]
            for run in self.record.runs
            if run["contender"] == self.contender
        }


def check_rollout(baseline: Side, canary: Side, latency: str = "answer") -> list[Check]:
    """Return three checks per class; the canary is promoted if all pass."""
    require_known("latency", LATENCIES, latency)
    _check_comparable(baseline, canary)
    checks: list[Check] = []
    before, after = baseline.cells, canary.cells
    for workload in baseline.record.workloads:
        if workload not in before or workload not in after:
            raise InvalidRecord(f"class {workload} was not measured in both; measure it again.")
        checks.append(_parity(workload, baseline, canary))
        checks.append(_latency(workload, before[workload], after[workload], latency))
        checks.append(_throughput(workload, before[workload], after[workload]))
    return checks


def _check_comparable(baseline: Side, canary: Side) -> None:
    """Raise `InvalidRecord` with the first field that makes the records incomparable."""
    one, other = baseline.record, canary.record
    for side in (baseline, canary):
        if not side.record.is_complete:
            raise InvalidRecord(f"{side.label} was interrupted; measure it again, to its end.")
    for part, keys in _SAME.items():
        for key in keys:
            before, after = (_recorded(record, part, key) for record in (one, other))
            if before != after:
                raise InvalidRecord(
                    f"{canary.label} was measured with another {part.removesuffix('s')} than "
                    f"{baseline.label}: {key} is {after!r}, not {before!r}; measure both alike."
                )
    if set(one.workloads) != set(other.workloads):
        raise InvalidRecord(
            f"{baseline.label} and {canary.label} hold different classes; measure the same."
        )
    for name, workload in one.workloads.items():
        if workload["digest"] != other.workloads[name]["digest"]:
            raise InvalidRecord(f"class {name} has other prompts in {canary.label}; use one seed.")
    _check_answers(baseline, canary)


def _recorded(record: Record, part: str, key: str) -> Any:
    value = getattr(record, part).get(key, _NOT_RECORDED)
    if key == "activations" and value in (None, _NOT_RECORDED):
        return _ACTIVATIONS_ONCE
    if key == "instruction_set" and value == _NOT_RECORDED:
        return None  # the best one, as none was forced
    if key == "kv_cache_dtype" and value == _NOT_RECORDED:
        return None if record.settings.get("kernels") in _NO_CHOICE else _CACHE_ONCE
    return value


def _check_answers(baseline: Side, canary: Side) -> None:
    """Raise unless both answered the same prompts, at least one."""
    if not baseline.digests:
        raise InvalidRecord(
            f"{baseline.label} has no answer of {baseline.contender}; measure it again."
        )
    odd = baseline.digests.keys() ^ canary.digests.keys()
    if odd:
        workload, pair = min(odd)
        has_it = baseline if (workload, pair) in baseline.digests else canary
        raise InvalidRecord(
            f"only {has_it.label} has an answer to prompt {pair} of class {workload}; "
            f"measure both with the same --pairs."
        )


def _parity(workload: str, baseline: Side, canary: Side) -> Check:
    mine, theirs = baseline.digests, canary.digests
    shared = [key for key in mine if key[0] == workload and key in theirs]
    num_same = sum(mine[key] == theirs[key] for key in shared)
    found = f"{num_same} of {len(shared)} answers"
    passed = bool(shared) and num_same == len(shared)
    return Check(workload, "same tokens", f"{len(shared)} answers", found, passed)


def _latency(workload: str, before: Cell, after: Cell, latency: str) -> Check:
    one, other = LATENCIES[latency](before), LATENCIES[latency](after)
    what = f"p95 ms per token ({latency})"
    if one is None or other is None:
        return Check(workload, what, "–", "–", False)
    passed = other["p95"] < one["p95"]
    return Check(workload, what, f"{one['p95']:.2f}", f"{other['p95']:.2f}", passed)


def _throughput(workload: str, before: Cell, after: Cell) -> Check:
    one, other = before.tokens_per_second, after.tokens_per_second
    what = f"tokens/s ≥ {MIN_THROUGHPUT} ×"
    if one is None or other is None:
        return Check(workload, what, "–", "–", False)
    return Check(workload, what, f"{one:.1f}", f"{other:.1f}", other >= MIN_THROUGHPUT * one)
