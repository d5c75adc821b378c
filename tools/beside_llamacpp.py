"""Plain decoding and prompts beside llama-bench: python tools/beside_llamacpp.py record.json

SmolLM2 with 1, 2, 4 and 8 threads, as far as there are cores, each on as many (THREADS="1 2"
chooses others): 64 tokens without speculation, and a prompt of 512 (TOKENS and PROMPT choose
others). `llama-bench` (`make peers`, or its folder in PEERS) and Forerun with 8-bit and 16-bit
activations (ACTIVATIONS="int8": with these alone) run in turns, ROUNDS times; ratios are taken
within a round. DEPTH says how many tokens are there already (whole pages of 16), and FA=0 or 1
whether llama.cpp has flash attention (its own choice by default). llama-bench draws no tokens and
makes no text of them; Forerun does both. MODEL names another model, FORERUN_CPU forces an
instruction set, and BUSY=2 keeps each of those cores busy with two other processes.
`forerun bench show record.json` prints what was found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun import LLM, SamplingParams
from forerun.cli.bench.record_head import record_head
from forerun.errors import ForerunError, InvalidOption
from forerun.models.download.store import default_cache_dir, find_model

PEER: Final = "llama.cpp"
NUM_TOKENS: Final = int(os.environ.get("TOKENS", "64"))
PROMPT_LEN: Final = int(os.environ.get("PROMPT", "512"))
DEPTH: Final = int(os.environ.get("DEPTH", "0"))
FLASH_ATTENTION: Final = os.environ.get("FA", "auto")
INSTRUCTION_SET: Final = os.environ.get("FORERUN_CPU") or None
_USUAL_THREADS: Final = (1, 2, 4, 8)
_WARM: Final = 8  # tokens before the first that counts

Speeds = dict[str, float]  # tokens per second: plain, prompt


def peer_speeds(program: Path, model: Path, num_threads: int) -> Speeds:
    command = [program, "-m", model, "-t", num_threads, "-r", 1, "-o", "json"]
    command += ["-p", PROMPT_LEN, "-n", NUM_TOKENS, "-d", DEPTH, "-fa", FLASH_ATTENTION]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    runs = json.loads(done.stdout)
    return {"prompt" if run["n_prompt"] else "plain": run["avg_ts"] for run in runs}


def our_speeds(llm: LLM) -> Speeds:
    tokens = [1 + 7 * i % 40_000 for i in range(DEPTH + PROMPT_LEN)]
    few = tokens[: DEPTH + 4]
    short, long = (_seconds(llm, few, count) for count in (_WARM, _WARM + NUM_TOKENS))
    return {
        "plain": NUM_TOKENS / (long - short),
        "prompt": PROMPT_LEN / _seconds(llm, tokens, 1),
    }


def _seconds(llm: LLM, prompt: list[int], num_tokens: int) -> float:
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    llm.reset_prefix_cache()
    if DEPTH:
        llm.generate(prompt[:DEPTH], SamplingParams(max_tokens=1))  # found again below
    began = time.perf_counter()
    llm.generate(prompt, params)
    return time.perf_counter() - began


@contextmanager
def busy(cores: list[int], num_each: int) -> Iterator[None]:
    """So many processes on each core that do nothing but compute."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(["taskset", "-c", str(core), *command]) for core in cores * num_each]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measured(
    program: Path, name: str, num_threads: int, num_rounds: int, num_busy: int
) -> dict[str, Any]:
    model = find_model(name, default_cache_dir())
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:num_threads])
    contenders: dict[str, Callable[[], Speeds]] = {
        PEER: lambda: peer_speeds(program, model, num_threads)
    }
    for activations in os.environ.get("ACTIVATIONS", "int8 int16").split():
        llm = LLM(
            name,
            num_threads=num_threads,
            activations=activations,
            speculative_config=None,
            max_model_len=DEPTH + 1024,
            instruction_set=INSTRUCTION_SET,
        )
        our_speeds(llm)
        contenders[activations] = lambda llm=llm: our_speeds(llm)  # type: ignore[misc]
    with busy(cores[:num_threads], num_busy):
        rounds = [{name: run() for name, run in contenders.items()} for _ in range(num_rounds)]
    os.sched_setaffinity(0, cores)
    return {
        name: {
            what: {
                "tokens_per_second": round(median(each[name][what] for each in rounds), 1),
                "ratio": round(median(each[name][what] / each[PEER][what] for each in rounds), 3),
                "runs": [round(each[name][what], 1) for each in rounds],
            }
            for what in ("plain", "prompt")
        }
        for name in contenders
    }


def asked_threads() -> list[int]:
    num_cores = len(os.sched_getaffinity(0))
    given = os.environ.get("THREADS", "").split()
    for count in given:
        if not count.isdecimal() or not 1 <= int(count) <= num_cores:
            raise InvalidOption(
                f"THREADS has {count}; give counts from 1 to {num_cores}, the cores."
            )
    return list(map(int, given)) or [count for count in _USUAL_THREADS if count <= num_cores]


def main(record: str) -> int:
    try:
        compare(Path(record))
    except subprocess.CalledProcessError as error:
        told = (error.stderr or "").strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        print(f"llama-bench failed ({told[0]}); run `make peers` again.", file=sys.stderr)
        return 2
    except (ForerunError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def compare(record: Path) -> None:
    folder = Path(os.environ.get("PEERS", ".peers"))
    program = folder / "llama-bench"
    if not program.is_file():
        raise InvalidOption(f"{program} is not here; run `make peers`, or set PEERS.")
    threads = asked_threads()
    num_rounds, num_busy = int(os.environ.get("ROUNDS", "7")), int(os.environ.get("BUSY", "0"))
    name = os.environ.get("MODEL", "smollm2-135m")
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    settings = {
        "tokens": NUM_TOKENS,
        "prompt_tokens": PROMPT_LEN,
        "depth": DEPTH,
        "flash_attention": FLASH_ATTENTION,
        "rounds": num_rounds,
        "instruction_set": INSTRUCTION_SET,
        "busy": num_busy,
        "peer": about,
    }
    head = record_head(name, settings, about["from"])
    found = {}
    for num_threads in threads:
        found[str(num_threads)] = measured(program, name, num_threads, num_rounds, num_busy)
        is_complete = len(found) == len(threads)
        report = {
            **head,
            "measured": "beside-llamacpp",
            "is_complete": is_complete,
            "threads": found,
        }
        record.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        print(f"{num_threads} threads measured", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
