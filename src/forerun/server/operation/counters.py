"""What `/metrics` shows: the engine's counts, and latencies and statuses of HTTP requests."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter
from prometheus_client import generate_latest as exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from forerun.server.answers.delta import Delta
from forerun.server.answers.group import Group

PREFIX: Final = "forerun:"
_FIRST_TOKEN: Final = (*(0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3), 0.6, 1.2, 2.5, 5, 10, 30, 60)
_BETWEEN: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5)
_WHOLE: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)

Snapshot = Mapping[str, Any]


class Histogram(Collector):
    """A histogram without a lock, as only the event loop observes; a value may count repeatedly."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name, self._text, self._bounds = PREFIX + name, text, bounds
        self._nums = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, num: int = 1) -> None:
        self._nums[bisect_left(self._bounds, value)] += num
        self._sum += value * num

    def collect(self) -> Iterator[Metric]:
        names = (*map(floatToGoString, self._bounds), "+Inf")
        buckets = list(zip(names, accumulate(self._nums), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets, self._sum)


class Counters:
    """One server's metrics; `snapshot` returns the engine's, or None before it is loaded."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(EngineCollector(snapshot))
        self.first = self._histogram(
            "time_to_first_token_seconds", "From the request to its first token.", _FIRST_TOKEN
        )
        self.between = self._histogram(
            "inter_token_latency_seconds", "Between two tokens of one answer.", _BETWEEN
        )
        self.whole = self._histogram(
            "e2e_request_latency_seconds", "From the request to its last token.", _WHOLE
        )
        self._answers = Counter(
            PREFIX + "http_responses",
            "HTTP answers by path and status.",
            ("path", "status"),
            registry=self._registry,
        )

    def watch(self, group: Group, began: float) -> None:
        """Observe the deltas of a group whose request began at `began`."""
        group.on_delta = Watch(self, began).saw

    def responded(self, path: str, status: int) -> None:
        self._answers.labels(path, str(status)).inc()

    def exposition(self) -> bytes:
        return exposition(self._registry)

    def _histogram(self, name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
        found = Histogram(name, text, bounds)
        self._registry.register(found)
        return found


class Watch:
    """Observes the latencies of one request."""

    def __init__(self, counters: Counters, began: float) -> None:
        self._counters = counters
        self._began = began
        self._latest: dict[int, float] = {}  # answer -> when its last token came

    def saw(self, delta: Delta) -> None:
        now = time.perf_counter()
        if delta.tokens:
            if delta.index in self._latest:
                seconds, num_tokens = now - self._latest[delta.index], len(delta.tokens)
                self._counters.between.observe(seconds / num_tokens, num_tokens)
            else:
                self._counters.first.observe(now - self._began)
            self._latest[delta.index] = now
        if delta.output is not None:
            self._counters.whole.observe(now - self._began)


class EngineCollector(Collector):
    """The engine's metrics at the moment of a scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot | None]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterator[Metric]:
        return iter(())  # nothing is known before the model is loaded

    def collect(self) -> Iterator[Metric]:
        found = self._snapshot()
        if found is not None:
            yield from _counted(found)
            yield from _speculation(found["drafters"])
            yield from _now(found)


def _counted(found: Snapshot) -> Iterator[Metric]:
    for name, label, key, text in (
        ("request_success", "finished_reason", "requests", "Requests that ended, by reason."),
        ("rounds_by_depth", "depth", "rounds_by_depth", "Rounds by the depth of their guesses."),
        ("controller_choices", "reason", "choices", "Why a round guessed so deep, or not."),
    ):
        family = CounterMetricFamily(PREFIX + name, text, labels=[label])
        for value, num in found[key].items():
            family.add_metric([str(value)], num)
        yield family
    for name, key, text in (
        ("prompt_tokens", "prompt_tokens", "Tokens of prompts, for each of n answers."),
        ("generation_tokens", "emitted_tokens", "Tokens of answers."),
        ("prefix_cache_queries", "prompt_tokens", "Prompt tokens looked up in the cache."),
        ("prefix_cache_hits", "cached_prompt_tokens", "Prompt tokens found in the cache."),
        ("target_passes", "passes", "Passes of the target."),
        ("target_pass_tokens", "pass_tokens", "Tokens that the target's passes ran."),
        ("num_preemptions", "preemptions", "Requests that gave up their pages for a while."),
        ("drafter_failures", "drafter_failures", "Failures of drafters; texts went on."),
    ):
        yield CounterMetricFamily(PREFIX + name, text, found[key])
    yield CounterMetricFamily(
        PREFIX + "passes_saved",
        "Tokens that needed no round of their own, as a guess was accepted.",
        found["emitted_tokens"] - found["rounds"],
    )


def _speculation(drafters: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield metrics under vLLM's names; summed over the label `drafter` they are vLLM's figures."""
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        family = CounterMetricFamily(
            f"{PREFIX}spec_decode_{name}", f"Speculation: {name}.", labels=["drafter"]
        )
        for drafter, counts in drafters.items():
            family.add_metric([drafter], counts[name])
        yield family
    family = CounterMetricFamily(
        f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
        "Speculation: guesses that were accepted, by position.",
        labels=["drafter", "position"],
    )
    for drafter, counts in drafters.items():
        for position, num in enumerate(counts["accepted_per_position"]):
            family.add_metric([drafter, str(position)], num)
    yield family


def _now(found: Snapshot) -> Iterator[Metric]:
    num_used = found["num_pages"] - found["num_free_pages"]
    for name, value, text in (
        ("num_requests_running", found["num_running"], "Requests in the batch."),
        ("num_requests_waiting", found["num_waiting"], "Requests in the queue."),
        ("kv_cache_usage_perc", num_used / found["num_pages"], "Share of cache pages held."),
    ):
        yield GaugeMetricFamily(PREFIX + name, text, value)
