"""How far rounding moves distributions from float32: python tools/kl_divergence.py [record.json]

SmolLM2 reads the texts in the package in contexts of 512 tokens. After each token from the 257th
on, the distribution of the next token is compared with that of float32 arithmetic: for activations
of 16 and of 8 bits, each with float32 and float16 KV rows, and for llama.cpp, whose
llama-perplexity is needed (`make peers`, or its folder in PEERS). All use the same packed weights.
THREADS sets the number of cores, and LAWS the file of llama-perplexity's output (2 GB), which is
made if it is missing.

llama.cpp writes log-probabilities as 16 bits over the 16 nats below the best token. Therefore
tokens more than 15 nats below it in float32 are left out for all, and the rest is normalised.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from forerun.bench.measure.teacher_forcing import text_logits
from forerun.bench.prompts.data_files import read_rows
from forerun.cli.bench.record_head import record_head
from forerun.kernels.cpu import CpuKernels
from forerun.models.download.store import default_cache_dir, find_model
from forerun.models.gguf.file import GgufCheckpoint
from forerun.models.llama import LlamaModel
from forerun.models.opening import open_checkpoint
from forerun.models.weights.checkpoint import Tensor
from forerun.types import FloatArray

CONTEXT: Final = 512
FIRST: Final = CONTEXT // 2  # the first token whose successor is compared
NUM_CHUNKS: Final = 80  # with 255 compared tokens each
NATS: Final = 15.0
ROUNDINGS: Final = tuple(product(("int16", "int8"), ("float32", "float16")))  # and KV rows

Chunk = dict[str, list[tuple[float, bool]]]  # by name: KL and agreement of each compared token


def text() -> str:
    """Return every article, prompt and function of the package, then the same in reverse order:
    enough for 20,000 compared tokens, each in a context of its own."""
    rows = [row for name in ("articles", "named_prompts", "functions") for row in read_rows(name)]
    parts = [row.get("text") or row["code"] for row in rows]
    return "\n\n".join([*parts, *parts[::-1]])


class LlamaLaws:
    """The file of llama-perplexity: the tokens, then a row for each compared token."""

    def __init__(self, file: BinaryIO) -> None:
        assert file.read(8) == b"_logits_", "not a file of llama-perplexity"
        context, self.num_tokens, num_chunks = struct.unpack("<3i", file.read(12))
        assert context == CONTEXT, context
        raw = file.read(4 * context * num_chunks)
        self.chunks = np.frombuffer(raw, np.int32).reshape(num_chunks, context)[:NUM_CHUNKS]
        self._row_len = 2 * ((self.num_tokens + 1) // 2) + 4
        self._file = file

    def read(self) -> FloatArray:
        """Return the log-probabilities of the next chunk: [255, V]."""
        num_rows = CONTEXT - 1 - FIRST
        raw = self._file.read(2 * self._row_len * num_rows)
        rows = np.frombuffer(raw, np.uint16).reshape(num_rows, self._row_len)
        scale, least = np.ascontiguousarray(rows[:, :4]).view(np.float32).T[:, :, None]
        return np.asarray(scale * rows[:, 4 : 4 + self.num_tokens] + least)


def divergence(exact: FloatArray, other: FloatArray) -> tuple[float, bool]:
    """Return KL(exact ‖ other) of two rows of logits, and whether their best tokens agree."""
    is_kept = exact >= exact.max() - NATS
    p, q = (_log_softmax(row[is_kept]) for row in (exact, other))
    return float((np.exp(p) * (p - q)).sum()), bool(exact.argmax() == other.argmax())


def _log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits.astype(np.float64) - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


class Expanded(GgufCheckpoint):
    """The same weights as floats, so that activations are not rounded either."""

    def tensor(self, name: str) -> Tensor:
        packed = super().tensor(name)
        return Tensor(name, packed.shape, "F32", packed.floats(0, len(packed.data)).view(np.uint8))


def models(path: Path, num_threads: int) -> dict[str, LlamaModel]:
    """Load the models; the first is the reference for the others."""
    found = {"float32": LlamaModel.load(Expanded(path), CpuKernels(num_threads))}
    for activations, row_type in ROUNDINGS:
        kernels = CpuKernels(num_threads, activations=activations, kv_cache_dtype=row_type)
        found[f"{activations}, {row_type} rows"] = LlamaModel.load(open_checkpoint(path), kernels)
    return found


def compared(laws: LlamaLaws, loaded: dict[str, LlamaModel], num_threads: int) -> Iterator[Chunk]:
    for done, chunk in enumerate(laws.chunks.tolist(), 1):
        found = {
            name: text_logits(model, chunk[: FIRST + 1], chunk[FIRST + 1 :])
            for name, model in loaded.items()
        }
        exact = found.pop("float32")
        found["llama.cpp"] = laws.read()
        with ThreadPoolExecutor(num_threads) as pool:
            yield {name: list(pool.map(divergence, exact, law)) for name, law in found.items()}
        print(f"\r{done} of {len(laws.chunks)} chunks", end="", file=sys.stderr, flush=True)


def summed(chunks: list[Chunk]) -> dict[str, Any]:
    summary = {}
    for name in chunks[0]:
        kl, same = np.array([row for chunk in chunks for row in chunk[name]]).T
        summary[name] = {
            "mean_kl": float(kl.mean()),
            "standard_error": float(kl.std() / np.sqrt(len(kl))),
            "kl_99th_percentile": float(np.quantile(kl, 0.99)),
            "top1_agreement": float(same.mean()),
            "num_tokens": len(kl),
        }
    return summary


def main(record: str | None = None) -> int:
    program = Path(os.environ.get("PEERS", ".peers")) / "llama-perplexity"
    if not program.is_file():
        print(f"{program} is not here; run `make peers`, or set PEERS.", file=sys.stderr)
        return 2
    threads = int(os.environ.get("THREADS", "2"))
    path = find_model("smollm2-135m", default_cache_dir())
    with tempfile.TemporaryDirectory() as folder:
        laws = Path(os.environ.get("LAWS", f"{folder}/laws"))
        if not laws.exists():
            words = Path(folder) / "text"
            words.write_text(text(), encoding="utf-8")
            command = [program, "-m", path, "-f", words, "-c", CONTEXT, "-t", threads]
            command += ["--chunks", NUM_CHUNKS, "--save-all-logits", laws]
            subprocess.run(list(map(str, command)), check=True, capture_output=True)
        with laws.open("rb") as file:
            summary = summed(list(compared(LlamaLaws(file), models(path, threads), threads)))
    about = json.loads((program.parent / "about.json").read_text(encoding="utf-8"))
    settings = {"context": CONTEXT, "threads": threads, "from": "float32", "peer": about}
    head = record_head("smollm2-135m", settings, about["from"])
    report = {**head, "measured": "kl-divergence", "is_complete": True, "laws": summary}
    print("", json.dumps(report, indent=1), sep="\n")
    if record is not None:
        Path(record).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
