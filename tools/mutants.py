"""Plant small mistakes, one at a time, in a copy of the tree, and see which ones the tests catch.

    python tools/mutants.py                     the planted mistakes, and a sample of mutants
    python tools/mutants.py --planted           only the planted mistakes
    python tools/mutants.py --only src/forerun/verify/rejection.py --sample 20
    python tools/mutants.py --again survivors   after writing a test
    python tools/mutants.py --table             write docs/mutants.md from the record, run nothing
    python tools/mutants.py --seed 99 --record other.json      another sample; the page stays

Run it with the interpreter that runs the tests. The record is written after every mutant, so an
interrupted run resumes where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.mutation.operators import fingerprint, mutants_of
from tools.mutation.server import Copy, Outcome, import_what_is_slow
from tools.mutation.table import written_table

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = Path(__file__).parent / "mutation"
RECORD: Final = FOLDER / "record.json"
SEED: Final = 13
SAMPLE: Final = 320

# The mutated files, and the tests that should catch the mistakes, the likeliest tests first.
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "src/forerun/verify/**/*.py": (
        *("tests/verify/test_matching.py", "tests/verify/test_refusals.py"),
        *("tests/verify/test_rounds.py", "tests/verify/test_lenient.py"),
        "tests/verify/test_law_rejection.py",
        "tests/verify/test_coupled.py::test_any_guesses_any_noise_same_tokens",
        "tests/verify/test_coupled.py::test_greedy_is_the_special_case_of_both",
        "tests/verify/test_coupled.py::test_origins",
    ),
    "src/forerun/sampling/**/noise.py": ("tests/sampling/test_noise.py",),
    "src/forerun/sampling/**/philox.py": ("tests/sampling/test_noise.py",),
    "src/forerun/sampling/**/draws.py": (
        *("tests/sampling/test_draws.py", "tests/verify/test_refusals.py"),
        "tests/verify/test_rounds.py",
    ),
    "src/forerun/sampling/**/transforms.py": (
        *("tests/sampling/test_penalties.py", "tests/sampling/test_transforms.py"),
        "tests/sampling/test_truncation.py",
    ),
    **dict.fromkeys(
        (f"src/forerun/sampling/**/{name}.py" for name in ("truncation", "largest", "softmax")),
        ("tests/sampling/test_bounds.py", "tests/sampling/test_truncation.py"),
    ),
    "src/forerun/engine/**/judge.py": (
        *("tests/engine/test_judge.py", "tests/engine/test_rounds.py"),
        "tests/engine/request/test_ends.py",
    ),
    "src/forerun/engine/**/cut.py": (
        "tests/engine/request/test_cut.py",
        "tests/engine/request/test_ends.py",
    ),
    "src/forerun/engine/**/step.py": (
        *("tests/engine/test_step.py", "tests/engine/test_judge.py"),
        *("tests/engine/request/test_ends.py", "tests/engine/test_rounds.py"),
        "tests/engine/test_metrics.py",
        *("tests/speculation/test_guarded_drafters.py", "tests/speculation/test_methods.py"),
        *("tests/engine/request/test_prompt_logprobs.py", "tests/engine/test_bits.py"),
    ),
    "src/forerun/cache/**/block_table.py": (
        *("tests/cache/test_block_table.py", "tests/cache/test_shared_prefixes.py"),
        "tests/cache/test_cache_machine.py",
    ),
    "src/forerun/drafters/**/law.py": (
        *("tests/drafters/test_law.py", "tests/contracts/test_drafters.py"),
    ),
}
# Further files in which mistakes are planted by hand.
PLANTED: Final[dict[str, tuple[str, ...]]] = {
    "src/forerun/drafters/**/combined.py": ("tests/drafters/test_combined.py",),
    "src/forerun/drafters/**/suffix.py": ("tests/drafters/test_suffix.py",),
    "src/forerun/grammars/matched.py": ("tests/grammars/test_matched.py",),
    "src/forerun/speculation/speculation.py": ("tests/engine/test_step.py",),
    "src/forerun/speculation/guarded_drafters.py": ("tests/speculation/test_guarded_drafters.py",),
}


@dataclass(frozen=True)
class Job:
    """One mistake to plant; the record keeps its `text`."""

    key: str
    path: str
    source: bytes
    tests: tuple[str, ...]
    text: dict[str, Any]


def planted() -> Iterator[Job]:
    """Yield the mistakes of `planted.json`; they are found by their text, even in a moved file."""
    for one in json.loads((FOLDER / "planted.json").read_text()):
        path = place_of(one)
        before = (ROOT / path).read_text()
        source = before.replace(one["old"], one["new"]).encode()
        key = key_of(fingerprint(before), one["name"], one["old"], one["new"])
        text = {"path": path, "operator": "planted", "name": one["name"], "new": one["new"].strip()}
        yield Job(key, path, source, relevant_tests(path), text)


def place_of(one: dict[str, str]) -> str:
    """Return the file that has a planted mistake's old text exactly once: its own, or another."""
    named = ROOT / one["file"]
    for files in ([named], sorted((ROOT / "src").rglob("*.py"))):
        holding = [f for f in files if f.exists() and f.read_text().count(one["old"]) == 1]
        if len(holding) == 1:
            return str(holding[0].relative_to(ROOT))
    raise SystemExit(
        f"The planted mistake {one['name']!r} has lost its place: {one['old'].strip()!r} does not "
        f"stand once in {one['file']}; write it anew in tools/mutation/planted.json."
    )


def mutants() -> list[Job]:
    jobs = []
    for pattern, tests in TARGETS.items():
        for file in files_of(pattern):
            path, source = str(file.relative_to(ROOT)), file.read_text()
            before, num_alike = fingerprint(source), Counter[tuple[str, ...]]()
            for one in mutants_of(path, source):
                alike = (one.operator, one.code, one.old, one.new)
                num_alike[alike] += 1
                fields = ("path", "line", "code", "operator", "old", "new")
                text = {name: getattr(one, name) for name in fields}
                key = key_of(file.name, before, *alike, str(num_alike[alike]))
                jobs.append(Job(key, path, one.applied(source.encode()), tests, text))
    return jobs


def sampled(jobs: Sequence[Job], num: int, seed: int) -> list[Job]:
    """Sample by hashes, so that a change to one file does not change the sample of the others."""
    return sorted(jobs, key=lambda job: key_of(str(seed), job.key))[:num]


def key_of(*parts: str) -> str:
    """Return a key that changes with the file's code, so that old results are not reused."""
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def files_of(pattern: str) -> list[Path]:
    files = [file for file in sorted(ROOT.glob(pattern)) if file.name != "__init__.py"]
    if not files:
        raise SystemExit(f"No file is named {pattern}; correct the table in tools/mutants.py.")
    return files


def relevant_tests(path: str) -> tuple[str, ...]:
    for pattern, tests in (TARGETS | PLANTED).items():
        if ROOT / path in files_of(pattern):
            return tests
    raise SystemExit(f"No tests are named for {path}; add it to the table in tools/mutants.py.")


def measured(copy: Copy, jobs: Sequence[Job]) -> dict[tuple[str, ...], float]:
    """Return the seconds of each list of tests without a mistake; all of them must pass."""
    seconds = {}
    for tests in sorted({job.tests for job in jobs}):
        missing = [test for test in tests if not (ROOT / test.split("::")[0]).exists()]
        if missing:
            raise SystemExit(f"There is no {missing[0]}; correct the table in tools/mutants.py.")
        copy.start(tests, limit=900)
        outcome = waited(copy)
        if outcome.killer is not None:
            tail = (copy.folder / "output.txt").read_text()[-3000:]
            raise SystemExit(f"{tail}\nWithout a mistake {outcome.killer} fails; mend it first.")
        print(f"{outcome.num_passed:5} tests, {outcome.seconds:5.1f} s: {tests[0]} …", flush=True)
        seconds[tests] = outcome.seconds
    return seconds


def waited(copy: Copy) -> Outcome:
    while (outcome := copy.poll()) is None:
        time.sleep(0.02)
    return outcome


def run(jobs: Sequence[Job], record: dict[str, Any], file: Path, num_workers: int) -> None:
    """Run every job that is not in the record, `num_workers` at a time."""
    todo = [job for job in jobs if job.key not in record]
    print(f"{len(jobs)} mistakes, {len(jobs) - len(todo)} of them done before", flush=True)
    if not todo:
        return
    import_what_is_slow()
    copies = [Copy(ROOT)]
    busy: dict[int, Job] = {}
    try:
        seconds = measured(copies[0], todo)
        copies += [Copy(copies[0].folder) for _ in range(min(num_workers, len(todo)) - 1)]
        waiting, num_done = todo[::-1], 0
        while waiting or busy:
            for idx, copy in enumerate(copies):
                if idx in busy:
                    outcome = copy.poll()
                    if outcome is None:
                        continue
                    num_done += 1
                    note(record, file, busy.pop(idx), outcome, f"{num_done}/{len(todo)}")
                if waiting:
                    busy[idx] = job = waiting.pop()
                    copy.start(job.tests, 20 + 4 * seconds[job.tests], job.path, job.source)
            time.sleep(0.02)
    finally:
        for idx in busy:
            copies[idx].stop()
        for copy in copies:
            copy.remove()


def note(record: dict[str, Any], file: Path, job: Job, outcome: Outcome, count: str) -> None:
    record[job.key] = {**job.text, "killer": outcome.killer, "seconds": round(outcome.seconds, 1)}
    write(file, record)
    what = job.text.get("name") or f"{job.path}:{job.text['line']} {job.text['operator']}"
    verdict = f"seen by {outcome.killer}" if outcome.killer else "SURVIVED"
    print(f"{count} {outcome.seconds:5.1f} s  {what}: {verdict}", flush=True)


def write(file: Path, record: dict[str, Any]) -> None:
    """Write the record whole or not at all."""
    ordered = sorted(record.items(), key=lambda item: (item[1]["path"], item[1].get("line", 0)))
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in ordered)
    partial = file.with_suffix(".partial")
    partial.write_text("{\n" + rows + "\n}\n")
    partial.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sample", type=int, default=SAMPLE, help="mutants beside the planted")
    parser.add_argument("--seed", type=int, default=SEED, help="of the sample")
    parser.add_argument("--only", default="", help="paths that begin so")
    parser.add_argument("--planted", action="store_true", help="no mutants but the planted")
    parser.add_argument("--again", choices=("survivors", "late", "all"), help="forget these")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that copies are removed

    every = mutants()
    sample = sampled(every, options.sample, options.seed)
    chosen = [*planted(), *([] if options.planted else sample)]
    jobs = [job for job in chosen if job.path.startswith(options.only)]
    record = json.loads(options.record.read_text()) if options.record.exists() else {}
    known = {job.key for job in (*every, *planted())}
    record = {key: one for key, one in record.items() if key in known}
    forgotten = {"survivors": (None,), "late": ("time limit",)}.get(options.again or "", ())
    for job in jobs:
        if job.key in record and (options.again == "all" or record[job.key]["killer"] in forgotten):
            del record[job.key]
    if not options.table:
        run(jobs, record, options.record, options.workers)
    reasons = json.loads((FOLDER / "survivors.json").read_text())
    shown = {job.key: record[job.key] for job in (*planted(), *sample) if job.key in record}
    page, is_good = written_table(shown, reasons, len(every), options.seed)
    if options.record == RECORD:
        (ROOT / "docs" / "mutants.md").write_text(page)
    print(page.split("## ")[1])
    if not is_good:
        raise SystemExit("Too many live, or one that lives is not explained in survivors.json.")


if __name__ == "__main__":
    main()
