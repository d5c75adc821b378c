"""Plain decoding and prompts beside llama-bench: python tools/beside_llamacpp.py record.json

`llama-bench` (`make peers`, or its folder in PEERS) and Forerun with 8-bit and 16-bit activations
run in turns; ratios are taken within a round. llama-bench neither samples tokens nor decodes them
to text; Forerun does both. `forerun bench show record.json` prints the record. Environment:

    THREADS="1 2"         numbers of threads, each on as many cores; by default 1, 2, 4 and 8, as
                          far as there are cores
    TOKENS, PROMPT        tokens to generate without speculation (64), and of the prompt (512)
    DEPTH                 tokens in the cache beforehand (0; a multiple of 16)
    ROUNDS                repetitions (7)
    ACTIVATIONS="int8"    only these activations
    FA=0 or 1             flash attention of llama.cpp (its own choice by default)
    MODEL                 the model (smollm2-135m)
    FORERUN_CPU           forces an instruction set
    BUSY=2                keeps each of the cores busy with two other processes
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun import LLM, SamplingParams
from forerun.cli.bench.record_head import record_head
from forerun.errors import ForerunError, InvalidOption
from forerun.models.download.store import default_cache_dir, find_model

PEER: Final = "llama.cpp"
_USUAL_THREADS: Final = (1, 2, 4, 8)
_WARM: Final = 8  # tokens before the first timed one

Speeds = dict[str, float]  # tokens per second: plain, prompt


@dataclass(frozen=True)
class Asked:
    """The settings from the environment."""

    threads: Sequence[int]
    num_tokens: int
    prompt_len: int
    depth: int
    num_rounds: int
    num_busy: int
    activations: Sequence[str]
    flash_attention: str
    instruction_set: str | None
    model: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Asked:
        num_cores = len(os.sched_getaffinity(0))

        def count(name: str, usual: int, least: int = 1) -> int:
            given = environ.get(name, str(usual))
            if not given.isdecimal() or int(given) < least:
                raise InvalidOption(f"{name} has {given}; give a whole number from {least} on.")
            return int(given)

        threads = environ.get("THREADS", "").split()
        for one in threads:
            if not one.isdecimal() or not 1 <= int(one) <= num_cores:
                raise InvalidOption(
                    f"THREADS has {one}; give counts from 1 to {num_cores}, the cores."
                )
        return cls(
            threads=list(dict.fromkeys(map(int, threads)))
            or [one for one in _USUAL_THREADS if one <= num_cores],
            num_tokens=count("TOKENS", 64),
            prompt_len=count("PROMPT", 512),
            depth=count("DEPTH", 0, least=0),
            num_rounds=count("ROUNDS", 7),
            num_busy=count("BUSY", 0, least=0),
            activations=environ.get("ACTIVATIONS", "int8 int16").split(),
            flash_attention=environ.get("FA", "auto"),
            instruction_set=environ.get("FORERUN_CPU") or None,
            model=environ.get("MODEL", "smollm2-135m"),
        )


def peer_speeds(program: Path, model: Path, num_threads: int, asked: Asked) -> Speeds:
    command = [program, "-m", model, "-t", num_threads, "-r", 1, "-o", "json"]
    command += ["-p", asked.prompt_len, "-n", asked.num_tokens, "-d", asked.depth]
    command += ["-fa", asked.flash_attention]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    try:
        runs = json.loads(done.stdout)
    except ValueError:
        raise InvalidOption(f"{program} printed no JSON; run `make peers` again.") from None
    return {"prompt" if run["n_prompt"] else "plain": run["avg_ts"] for run in runs}


def our_speeds(llm: LLM, asked: Asked) -> Speeds:
    depth, num_tokens = asked.depth, asked.num_tokens
    tokens = [1 + 7 * i % 40_000 for i in range(depth + asked.prompt_len)]
    few = tokens[: depth + 4]
    short, long = (_seconds(llm, few, depth, count) for count in (_WARM, _WARM + num_tokens))
    return {
        "plain": num_tokens / (long - short),
        "prompt": asked.prompt_len / _seconds(llm, tokens, depth, 1),
    }


def _seconds(llm: LLM, prompt: list[int], depth: int, num_tokens: int) -> float:
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    llm.reset_prefix_cache()
    if depth:
        llm.generate(prompt[:depth], SamplingParams(max_tokens=1))  # is in the prefix cache below
    began = time.perf_counter()
    llm.generate(prompt, params)
    return time.perf_counter() - began


@contextmanager
def busy(cores: list[int], num_each: int) -> Iterator[None]:
    """Run `num_each` processes on each core that do nothing but compute."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(["taskset", "-c", str(core), *command]) for core in cores * num_each]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measured(program: Path, num_threads: int, asked: Asked) -> dict[str, Any]:
    model = find_model(asked.model, default_cache_dir())
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:num_threads])
    contenders: dict[str, Callable[[], Speeds]] = {
        PEER: lambda: peer_speeds(program, model, num_threads, asked)
    }
    for activations in asked.activations:
        llm = LLM(
            asked.model,
            num_threads=num_threads,
            activations=activations,
            speculative_config=None,
            max_model_len=asked.depth + max(1024, asked.prompt_len + 64, asked.num_tokens + 64),
            instruction_set=asked.instruction_set,
        )
        our_speeds(llm, asked)
        contenders[activations] = partial(our_speeds, llm, asked)
    with busy(cores[:num_threads], asked.num_busy):
        rounds = [
            {name: run() for name, run in contenders.items()} for _ in range(asked.num_rounds)
        ]
    os.sched_setaffinity(0, cores)
    return {
        name: {
            what: {
                "tokens_per_second": round(median(each[name][what] for each in rounds), 1),
                "ratio": round(median(each[name][what] / each[PEER][what] for each in rounds), 3),
                "runs": [round(each[name][what], 4) for each in rounds],
            }
            for what in ("plain", "prompt")
        }
        for name in contenders
    }


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
    asked = Asked.of(os.environ)
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    settings = {
        "tokens": asked.num_tokens,
        "prompt_tokens": asked.prompt_len,
        "depth": asked.depth,
        "flash_attention": asked.flash_attention,
        "rounds": asked.num_rounds,
        "instruction_set": asked.instruction_set,
        "busy": asked.num_busy,
        "peer": about,
    }
    head = record_head(asked.model, settings, about["from"])
    found = {}
    for num_threads in asked.threads:
        found[str(num_threads)] = measured(program, num_threads, asked)
        is_complete = len(found) == len(asked.threads)
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
