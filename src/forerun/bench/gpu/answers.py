"""A real model through `LLM`: seconds of a token with all host work, and bits on and off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

from forerun.engine import LLM
from forerun.types import SamplingParams

_QUESTION: Final = "Explain in a few sentences why the sky is blue and the sunset is red."
_COPIED: Final = (
    "Repeat this text: The quick brown fox jumps over the lazy dog, and then the lazy dog jumps "
    "over the quick brown fox, until both of them are tired and go home."
)
_PROMPTS: Final = (
    _QUESTION,
    _COPIED,
    "Name three fruits.",
    "Write a Python function that adds two numbers.",
    "Write a short poem about the sea.",
    "What is the capital of France?",
)
_SAMPLINGS: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.0},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 1.0, "top_p": 0.9, "seed": 2},
    {"temperature": 0.7, "top_k": 40, "repetition_penalty": 1.1, "seed": 3},
)
_SPECULATIONS: Final[tuple[dict[str, Any], ...]] = (
    {"method": "prompt_lookup", "num_speculative_tokens": 5},
    {"method": "suffix", "num_speculative_tokens": 8},
    {"method": "own_layers", "num_layers": 4, "num_speculative_tokens": 3, "num_branches": 3},
    {"method": "random", "num_speculative_tokens": 6, "num_branches": 4},
)
NUM_BATCH: Final = 16
_NUM_TIMED: Final = 256
_NUM_COMPARED: Final = 24
_NUM_REPEATS: Final = 5
_BATCHES: Final = (1, len(_PROMPTS))


def measure_answers(load: Callable[[], LLM], progress: Callable[[str], None]) -> dict[str, Any]:
    """`load` gives a model without speculation and with seats for all prompts."""
    progress("loading the model")
    began = time.perf_counter()
    plain = load()
    loaded = time.perf_counter() - began
    plain.generate(_prompts(plain)[:1], SamplingParams(temperature=0, max_tokens=1))
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
    runs = list(_differences(plain))
    drawing = getattr(plain.model.kernels, "drawing", None)  # the processor has none
    return found | {
        "num_runs": len(runs),
        "num_different": sum(runs),
        "num_rows_asked": drawing and drawing.num_asked,
        "num_rows_left_to_host": drawing and drawing.num_left,
    }


def _prompts(llm: LLM) -> list[list[int]]:
    return [
        list(llm.tokenizer.encode_chat([{"role": "user", "content": text}])) for text in _PROMPTS
    ]


def _seconds_per_token(
    llm: LLM, text: str, sampling: dict[str, Any] = _SAMPLINGS[0], num_requests: int = 1
) -> float:
    """Of one answer, while `num_requests` of them are made side by side."""
    params = SamplingParams(max_tokens=_NUM_TIMED, ignore_eos=True, **sampling)
    prompt = llm.tokenizer.encode_chat([{"role": "user", "content": text}])
    seconds = []
    for _ in range(_NUM_REPEATS + 1):
        began = time.perf_counter()
        llm.generate([list(prompt)] * num_requests, params)
        seconds.append((time.perf_counter() - began) / _NUM_TIMED)
    return median(seconds[1:])


def _tokens_per_pass(llm: LLM, text: str) -> float:
    params = SamplingParams(max_tokens=_NUM_TIMED, ignore_eos=True, temperature=0)
    prompt = llm.tokenizer.encode_chat([{"role": "user", "content": text}])
    (answer,) = llm.generate([list(prompt)], params)
    return _NUM_TIMED / float(answer.outputs[0].stats["target_passes"])


def _differences(plain: LLM) -> Iterator[bool]:
    """For every answer with speculation, whether it is not the plain one."""
    prompts = _prompts(plain)
    samplings = [
        SamplingParams(max_tokens=_NUM_COMPARED, ignore_eos=True, **options)
        for options in _SAMPLINGS
    ]
    expected = [[_tokens(plain, [prompt], params)[0] for prompt in prompts] for params in samplings]
    for config in _SPECULATIONS:
        llm = plain.with_speculation(config)
        for params, answers in zip(samplings, expected, strict=True):
            for size in _BATCHES:
                for lo in range(0, len(prompts), size):
                    found = _tokens(llm, prompts[lo : lo + size], params)
                    pairs = zip(found, answers[lo : lo + size], strict=True)
                    yield from (left != right for left, right in pairs)


def _tokens(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> list[list[int]]:
    return [list(out.outputs[0].token_ids) for out in llm.generate(prompts, params)]
