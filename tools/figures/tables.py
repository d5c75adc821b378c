"""Markdown tables of the committed records, by the names that pages use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from aims import BENCH, Verdict, verdicts_on_all
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.prompts.workloads import FREE_FORM
from forerun.bench.records.cells import Cell
from forerun.bench.records.record import Record
from forerun.bench.records.report import read_any
from forerun.bench.views.reports import rounds_beside

_RECORDS: Final = BENCH / "records"
_LEAST: Final = 0.95  # the least lower bound that is not a miss
_NOT_REACHED: Final = "**not reached**"

CLASSES: Final = {
    "SmolLM2, two-core Xeon": "smollm2-x86-nine-classes-two-cores.json",
    "SmolLM2, newer Xeon": "smollm2-x86-nine-classes.json",
    "SmolLM2, ARM": "smollm2-side-by-side.json",
    "Qwen 1.5B, two-core Xeon": "qwen-x86-six-classes-two-cores.json",
}
BESIDE_LLAMACPP: Final = {
    "SmolLM2, two-core Xeon": "smollm2-x86-beside-llamacpp-two-cores.json",
    "SmolLM2, newer Xeon": "smollm2-x86-beside-llamacpp.json",
    "SmolLM2, newer Xeon, both without AVX-512": "smollm2-x86-beside-llamacpp-avx2.json",
    "SmolLM2, newer Xeon, beside another process on each core": (
        "smollm2-x86-beside-llamacpp-busy.json"
    ),
    "SmolLM2, two-core Xeon, behind 2,048 tokens": "smollm2-x86-beside-llamacpp-deep.json",
    "SmolLM2, ARM": "smollm2-beside-llamacpp.json",
    "Qwen 1.5B, two-core Xeon": "qwen-x86-beside-llamacpp-two-cores.json",
    "Qwen 1.5B's shape, newer Xeon": "qwen-x86-shape-beside-llamacpp.json",
    "Qwen 1.5B, ARM": "qwen-beside-llamacpp.json",
}
PASSES: Final = {
    "SmolLM2, two-core Xeon": "smollm2-x86-passes-two-cores.json",
    "SmolLM2, newer Xeon": "smollm2-x86-passes-int8.json",
    "SmolLM2, ARM": "smollm2-passes-int8.json",
    "Qwen 1.5B, two-core Xeon": "qwen-x86-passes-two-cores.json",
    "Qwen 1.5B's shape, newer Xeon": "qwen-x86-shape-passes.json",
}
PREDICTIONS: Final = {
    "SmolLM2, two-core Xeon": "serve-x86-prediction-two-cores.json",
    "SmolLM2, newer Xeon": "serve-x86-prediction.json",
    "SmolLM2, ARM": "serve.json",
}


def classes() -> Iterator[str]:
    """Forerun's default against plain decoding, class by class."""
    found = {heading: _cells(_RECORDS / name) for heading, name in CLASSES.items()}
    yield from _head("class", *found)
    yield _row("*plain, tokens/s*", *map(_plain_speeds, found.values()))
    best_first = sorted(FREE_FORM, key=lambda name: -_median(next(iter(found.values())), name))
    for name in best_first:
        yield _row(name, *(_times_plain(cells.get((name, DEFAULT))) for cells in found.values()))


def _cells(path: Path) -> dict[tuple[str, str], Cell]:
    record = read_any(path)
    assert isinstance(record, Record), path
    return {(cell.workload, cell.contender): cell for cell in record.cells}


def _median(cells: Mapping[tuple[str, str], Cell], name: str) -> float:
    ratio = cells[name, DEFAULT].ratio
    assert ratio is not None, name
    return ratio.median


def _plain_speeds(cells: Mapping[tuple[str, str], Cell]) -> str:
    speeds = [c.tokens_per_second for (_, name), c in cells.items() if name == PLAIN]
    known = [speed for speed in speeds if speed is not None]
    return " to ".join(dict.fromkeys(f"{speed:.0f}" for speed in (min(known), max(known))))


def _times_plain(cell: Cell | None) -> str:
    if cell is None or cell.ratio is None:
        return "–"
    return _interval(vars(cell.ratio), is_missed=cell.ratio.low < _LEAST)


def beside_llamacpp() -> Iterator[str]:
    """Tokens per second, and ÷ those of a llama.cpp that was built for the processor."""
    yield from _head("", "threads", "plain, tokens/s", "÷ llama.cpp", "prompt, tokens/s", "÷")
    for heading, name in BESIDE_LLAMACPP.items():
        for threads, sides in _read(name)["threads"].items():
            cells = [_speed_beside(sides, what) for what in ("plain", "prompt")]
            yield _row(heading, threads, *(cell for pair in cells for cell in pair))
            heading = ""


def briefly_beside_llamacpp() -> Iterator[str]:
    """The same with only ratios, and without special cases."""
    yield from _head("", "threads", "plain decoding", "prompt")
    for heading, name in BESIDE_LLAMACPP.items():
        if heading.count(",") == 1:
            threads = _read(name)["threads"]
            ours = [sides["int8"] for sides in threads.values()]
            plain, prompt = (
                " / ".join(f"{side[what]['ratio']:.2f}×" for side in ours)
                for what in ("plain", "prompt")
            )
            yield _row(heading, " / ".join(threads), plain, prompt)


def _speed_beside(sides: Mapping[str, Any], what: str) -> tuple[str, str]:
    """Return the speed and the ratio, with the smallest and the largest ratio of the rounds."""
    side, (low, high) = sides["int8"][what], rounds_beside(sides, "int8", what)
    ratio = f"{side['ratio']:.2f}× [{low:.2f}, {high:.2f}]"
    return f"{side['tokens_per_second']:,.0f}", ratio


def passes() -> Iterator[str]:
    """The cost of passes over several tokens."""
    sizes = ("2", "4", "5", "8", "16")
    yield from _head("", "one token, ms", *(f"{size} tokens" for size in sizes))
    for heading, name in PASSES.items():
        timed = _read(name)["passes"]
        plain = f"{1e3 * timed['1']['median_s']:.1f}"
        yield _row(heading, plain, *(f"{timed[size]['ratio']:.2f}" for size in sizes))


def predictions() -> Iterator[str]:
    """Answers of 200 tokens with `prediction`."""
    yield from _head("", "a tenth changed ÷ none", "÷ plain decoding", "all wrong ÷ none")
    missed = {(v.aim["record"], v.aim["figure"]) for v in verdicts_on_all() if v.word == "FAIL"}
    for heading, name in PREDICTIONS.items():
        found = _read(name)["prediction"]
        yield _row(
            heading,
            _interval(
                found["changed_ratio"],
                is_missed=(name, "prediction.changed_ratio.median") in missed,
            ),
            _interval(found.get("changed_plain_ratio")),
            _interval(
                found["wrong_ratio"], is_missed=(name, "prediction.wrong_ratio.low") in missed
            ),
        )


def _interval(found: Mapping[str, float] | None, *, is_missed: bool = False) -> str:
    """Return an interval; a bound missed by less than a hundredth gets more digits."""
    if found is None:
        return "–"
    low = f"{found['low']:.2f}"
    if is_missed and float(low) == _LEAST:
        low = f"{found['low']:.4f}"
    text = f"{found['median']:.2f}× [{low}, {found['high']:.2f}]"
    return f"{text}, {_NOT_REACHED}" if is_missed else text


def proofs() -> Iterator[str]:
    """All records of `forerun proof`."""
    sizes = ("num_cells", "num_tokens", "accepted_tokens", "num_different")
    yield from _head("record", "model", "kernels", "runs", "tokens", "accepted", "differ", "of")
    for path in sorted(_RECORDS.glob("*proof*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        counts = (f"{found[size]:,}" for size in sizes)
        made = found["created"][:10]
        yield _row(f"`{path.name}`", found["model"]["name"], found["kernels"], *counts, made)


def all_aims() -> Iterator[str]:
    """The aims and the figures of the records, machine by machine."""
    verdicts = verdicts_on_all()
    for machine in dict.fromkeys(verdict.aim["on"] for verdict in verdicts):
        yield from ("", f"**{machine}**", "")
        yield from _head("", "asked", "found", "record")
        for verdict in verdicts:
            if verdict.aim["on"] == machine:
                record = f"`{verdict.aim['record']}`"
                yield _row(verdict.aim["what"], verdict.wanted, _found(verdict), record)


def _found(verdict: Verdict) -> str:
    if not verdict.is_measured:
        return "not measured yet"
    missed = {"FAIL": f", {_NOT_REACHED}", "OPEN": ", few pairs"}.get(verdict.word, "")
    return f"{verdict.found}{missed}"


def count() -> Iterator[str]:
    """How many aims are reached."""
    verdicts = verdicts_on_all()
    reached, missed = (sum(v.word == word for v in verdicts) for word in ("PASS", "FAIL"))
    left = len(verdicts) - reached - missed
    yield (
        f"Of {len(verdicts)} aims {reached} are reached, {missed} are {_NOT_REACHED}, and {left} "
        "are not measured yet, or with too few pairs: [all](docs/measured.md#what-was-asked-for)."
    )


def _read(name: str) -> Any:
    return json.loads((_RECORDS / name).read_text(encoding="utf-8"))


def _head(first: str, *others: str) -> Iterator[str]:
    yield _row(first, *others)
    yield "|---" * (1 + len(others)) + "|"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


TABLES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "classes": classes,
    "beside llama.cpp": beside_llamacpp,
    "beside llama.cpp, in short": briefly_beside_llamacpp,
    "passes": passes,
    "predictions": predictions,
    "proofs": proofs,
    "aims": all_aims,
    "count of aims": count,
}


def table(name: str) -> Sequence[str]:
    return list(TABLES[name]())
