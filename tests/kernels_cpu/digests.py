"""SHA-256 of what the CPU kernels compute, pinned in golden/digests.json.

    python -m tests.kernels_cpu.digests      write what this machine computes

Logits of packed weights are the same bits on every processor. Products with float weights are
folded in 16 lanes on x86 and in 4 on ARM: the same bits on every instruction set of an architecture
(ADR 014).
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun import LLM, SamplingParams
from forerun.kernels.cpu import CpuKernels
from forerun.models.download.pull import pull
from forerun.models.llama import LlamaModel
from forerun.models.opening import open_checkpoint
from forerun.sampling import Noise
from tests.contracts.kernel_sets import CACHE_DIR
from tests.kernels_cpu.packed import MIXED_CONFIG, MIXED_FORMATS, MixedCheckpoint
from tests.models_llama.runs import chain_logits
from tests.models_llama.test_parity import FAMILIES, GOLDEN

TABLE: Final = GOLDEN / "digests.json"
FORMATS: Final = ("F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K")
_NUM_TOKENS: Final = 37
_TEXT: Final = "Once upon a time there was a small village in the mountains, and"

WIDE_ROWS: Final = "int8, float32 rows"
ROUNDINGS: Final[dict[str, dict[str, Any]]] = {  # only the first stores float16 rows
    "int8": {"activations": "int8"},
    WIDE_ROWS: {"activations": "int8", "kv_cache_dtype": "float32"},
    "int16": {"activations": "int16"},
}

EVERYWHERE: Final = "every processor"

Digests = dict[str, str]  # of logits and of tokens


def architecture() -> str:
    return {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def pinned() -> dict[str, dict[str, Digests]]:
    """The committed digests by architecture (or "every processor"), then by name."""
    return dict(json.loads(TABLE.read_text(encoding="utf-8"))) if TABLE.exists() else {}


def where(name: str, machine: str | None = None) -> str:
    """The part of the table with a model's digests on `machine`, or on this architecture."""
    packed = name.startswith(("SmolLM2", "format Q"))
    return EVERYWHERE if packed else machine or architecture()


def cases(num_threads: int = 2) -> Iterator[tuple[str, Callable[[str | None], Digests]]]:
    """Yield names, and functions that compute the digests with an instruction set."""
    for family in FAMILIES:
        yield f"family {family}", partial(of_family, family, num_threads=num_threads)
    for weight_format in FORMATS:
        for rounding in ROUNDINGS:
            if weight_format != "F16" or rounding != WIDE_ROWS:  # F16 has no other rows
                name = f"format {weight_format}, {rounding}"
                yield name, partial(of_format, weight_format, rounding, num_threads=num_threads)


def smollm2_cases() -> Iterator[tuple[str, Callable[[str | None], Digests]]]:
    path = pull("smollm2-135m")
    for rounding in ROUNDINGS:
        yield f"SmolLM2, {rounding}", partial(of_smollm2, path, rounding)


def of_family(family: str, instruction_set: str | None = None, num_threads: int = 2) -> Digests:
    kernels = CpuKernels(num_threads, cache_dir=CACHE_DIR, instruction_set=instruction_set)
    return _of_model(LlamaModel.load(open_checkpoint(GOLDEN / "families" / family), kernels))


def of_format(
    weight_format: str, rounding: str, instruction_set: str | None = None, num_threads: int = 2
) -> Digests:
    options = {} if weight_format == "F16" else ROUNDINGS[rounding]
    options |= {"cache_dir": CACHE_DIR, "instruction_set": instruction_set}
    kernels = CpuKernels(num_threads, **options)
    formats = dict.fromkeys(MIXED_FORMATS, weight_format)
    return _of_model(LlamaModel.load(MixedCheckpoint(MIXED_CONFIG, formats=formats), kernels))


def of_smollm2(path: Path, rounding: str, instruction_set: str | None = None) -> Digests:
    """Digests of a prompt's logits, and of the tokens of a greedy and a sampled answer."""
    options = {"instruction_set": instruction_set, "cache_dir": CACHE_DIR, **ROUNDINGS[rounding]}
    llm = LLM(path, num_threads=1, **options)
    tokens = llm.tokenizer.encode(_TEXT)
    params = [SamplingParams(temperature=t, max_tokens=32, seed=5) for t in (0.0, 0.8)]
    answers = [llm.generate(_TEXT, each)[0].outputs[0].token_ids for each in params]
    return _digests(chain_logits(llm.model, tokens), [t for answer in answers for t in answer])


def _of_model(model: LlamaModel) -> Digests:
    vocabulary, noise = model.config.vocab_size, Noise(11)
    tokens = np.random.default_rng(3).integers(0, vocabulary, _NUM_TOKENS).tolist()
    logits = chain_logits(model, tokens)
    assert isinstance(model.kernels, CpuKernels)
    draws = [model.kernels.gumbel_argmax(row, noise, at) for at, row in enumerate(logits)]
    return _digests(logits, draws)


def _digests(logits: np.ndarray, tokens: list[int]) -> Digests:
    numbers = {"logits": logits.astype("<f4"), "tokens": np.array(tokens, "<i8")}
    return {name: hashlib.sha256(data.tobytes()).hexdigest() for name, data in numbers.items()}


def write() -> None:
    found = {name: compute(None) for name, compute in (*cases(), *smollm2_cases())}
    table = pinned()
    for name, digests in found.items():
        table.setdefault(where(name), {})[name] = digests
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
