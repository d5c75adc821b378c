"""Compile the kernels of the fast tests, once after installing (`make test` does it).

Otherwise the processes that share the tests each compile what they need, most of it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from forerun.engine import LLM
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.types import SamplingParams
from tests.contracts.kernel_sets import CACHE_DIR
from tests.kernels.sources import normal
from tests.kernels_cpu.digests import of_format
from tests.kernels_cpu.packed import PackedSource, packed
from tests.kernels_cpu.products.test_formats import (
    CASES,
    HOST,
    SHAPES,
    SHORT,
    embedded,
    kernels,
    product,
)
from tests.tiny_model import write_tiny_model

_NUM_PROCESSES: Final = 2


def _product(weight_format: str, machine: Machine) -> None:
    ours, source = kernels(1, machine), PackedSource(weight_format, packed(weight_format, 33, 256))
    product(ours, source, normal(1, 1, 256))
    embedded(ours, ours.load_matrix(source, ["w"]), [0])


def _pass() -> None:
    of_format("Q4_1", "int8")


def _draws() -> None:
    kernels(1).load_array(np.arange(3))  # compiles what guesses a chain, too
    with TemporaryDirectory() as folder:
        llm = LLM(write_tiny_model(Path(folder) / "model", seed=0), cache_dir=CACHE_DIR)
        llm.generate("abcabc", SamplingParams(max_tokens=8, temperature=0.8, top_p=0.9, seed=1))


def jobs() -> list[Callable[[], object]]:
    """List what to compile, longest first: what a whole pass needs, then single products."""
    cases = [*CASES, *SHORT]
    named = {each.values: each for each in cases if not each.marks}
    lanes = [("F32", Machine(16, outputs)) for outputs in SHAPES.values() if outputs]
    host = [case for case in named if case[1] == HOST]
    others = [case for case in named if case[1] != HOST]
    products = [partial(_product, *case) for case in (*host, *others, *lanes)]
    return [_pass, _draws, *products]


def run(idx: int) -> None:
    jobs()[idx]()


def main() -> None:
    with ProcessPoolExecutor(_NUM_PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(run, range(len(jobs()))))


if __name__ == "__main__":
    main()
