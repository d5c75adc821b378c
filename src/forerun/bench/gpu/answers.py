"""A real model through `LLM`: seconds per token with all host work, and equal tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from forerun.bench.prompts.named_prompts import named_prompts
from forerun.bench.proof.proof import Method, Proof
from forerun.engine import LLM
from forerun.types import SamplingParams

_QUESTION: Final = "Explain in a few sentences why the sky is blue and the sunset is red."
_COPIED: Final = (
    "Repeat this text: The quick brown fox jumps over the lazy dog, and then the lazy dog jumps "
    "over the quick brown fox, until both of them are tired and go home."
)
_SAMPLINGS: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 1.0, "top_p": 0.9, "seed": 2},
    {"temperature": 0.7, "top_k": 40, "repetition_penalty": 1.1, "seed": 3},
)
NUM_BATCH: Final = 16
_NUM_TIMED: Final = 256
_NUM_COMPARED: Final = 192
_NUM_REPEATS: Final = 5


def measure_answers(load: Callable[[], LLM], progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure answers; `load` returns a model without speculation, with room for a whole batch."""
    progress("loading the model")
    began = time.perf_counter()
    plain = load()
    loaded = time.perf_counter() - began
    plain.generate(_chat(plain, _QUESTION), SamplingParams(temperature=0, max_tokens=1))
    first = time.perf_counter() - began
    progress("timing answers")
    default = plain.with_speculation({"method": "auto"})
    found: dict[str, Any] = {
        "load_s": loaded,
        "first_token_s": first,
        "plain_s": _seconds_per_token(plain, _QUESTION),
        "plain_copy_s": _seconds_per_token(plain, _COPIED),
        "default_copy_s": _seconds_per_token(default, _COPIED),
        "default_copy_tokens_per_pass": _tokens_per_pass(default, _COPIED),
        "sampled": [
            {"sampling": options, "plain_s": _seconds_per_token(plain, _QUESTION, options)}
            for options in _SAMPLINGS[1:]
        ],
        "num_batch": NUM_BATCH,
        "batch_round_s": _seconds_per_token(plain, _QUESTION, num_requests=NUM_BATCH),
    }
    progress("comparing tokens")
    cells = list(small_proof(plain).run())
    drawing = getattr(plain.model.kernels, "drawing", None)  # the CPU kernels have none
    return found | {
        "num_runs": len(cells),
        "num_different": sum(cell.first_difference is not None for cell in cells),
        "num_rows_asked": drawing and drawing.num_asked,
        "num_rows_left_to_host": drawing and drawing.num_left,
    }


def _chat(llm: LLM, text: str) -> list[int]:
    return llm.tokenizer.encode_chat([{"role": "user", "content": text}])


def small_proof(plain: LLM) -> Proof:
    """Return a proof with drafters that need no other model; `forerun proof` runs thousands."""
    methods = ["suffix", "prompt_lookup", "own_layers", "random"]
    num_layers = max(1, plain.model.num_layers // 8)
    shared = {"method": "choice", "methods": methods, "num_layers": num_layers}
    named = {name: Method(shared, name) for name in methods}
    return Proof(plain, named_prompts(12), named, 8, 24, seed=1, min_cells=_NUM_COMPARED)


def _seconds_per_token(
    llm: LLM, text: str, sampling: dict[str, Any] = _SAMPLINGS[0], num_requests: int = 1
) -> float:
    """Return the seconds per token of one answer, with `num_requests` running concurrently."""
    params = SamplingParams(max_tokens=_NUM_TIMED, ignore_eos=True, **sampling)
    prompt, seconds = _chat(llm, text), []
    for _ in range(_NUM_REPEATS + 1):
        began = time.perf_counter()
        llm.generate([prompt] * num_requests, params)
        seconds.append((time.perf_counter() - began) / _NUM_TIMED)
    return median(seconds[1:])


def _tokens_per_pass(llm: LLM, text: str) -> float:
    params = SamplingParams(max_tokens=_NUM_TIMED, ignore_eos=True, temperature=0)
    (answer,) = llm.generate(_chat(llm, text), params)
    return _NUM_TIMED / float(answer.outputs[0].stats["target_passes"])
