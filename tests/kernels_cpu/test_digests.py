"""Logits and tokens have the committed bits, whichever machine runs this."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.kernels.cpu.codegen.machine import Machine
from tests.kernels_cpu.digests import (
    EVERYWHERE,
    FORMATS,
    WIDE_ROWS,
    Digests,
    cases,
    of_format,
    of_smollm2,
    pinned,
    where,
)

PINNED = pinned()
SLOW = [f"format {name}, int16" for name in FORMATS if name not in ("Q8_0", "Q4_1")]
SLOW += [f"format {name}, {WIDE_ROWS}" for name in FORMATS if name != "Q4_1"]
SLOW.append("format Q5_K, int8")
CASES = [
    pytest.param(name, digests, id=name, marks=pytest.mark.slow if name in SLOW else ())
    for name, digests in cases()
]
OTHER_SETS = [each.name for each in Machine.offered()[1:]]


def expected(name: str) -> Digests:
    part = where(name)
    if part != EVERYWHERE and part not in PINNED:
        pytest.skip(f"no floats are pinned for {part}: run python -m tests.kernels_cpu.digests")
    return PINNED[part][name]


@pytest.mark.parametrize(("name", "digests"), CASES)
def test_tiny_models_have_the_committed_bits(
    name: str, digests: Callable[[str | None], Digests]
) -> None:
    assert digests(None) == expected(name)


@pytest.mark.parametrize(
    "rounding", ["int8", *(pytest.param(x, marks=pytest.mark.slow) for x in (WIDE_ROWS, "int16"))]
)
def test_smollm2_has_the_committed_bits(smollm2_path: Path, rounding: str) -> None:
    assert of_smollm2(smollm2_path, rounding) == expected(f"SmolLM2, {rounding}")


@pytest.mark.slow  # compiles a whole pass; products with all sets are fast tests
@pytest.mark.parametrize("instruction_set", OTHER_SETS)
def test_other_instruction_sets_have_them_too(instruction_set: str) -> None:
    assert of_format("Q4_1", "int8", instruction_set) == expected("format Q4_1, int8")


@pytest.mark.soak
@pytest.mark.parametrize(("name", "digests"), CASES)
@pytest.mark.parametrize("instruction_set", OTHER_SETS)
def test_other_instruction_sets_have_all_of_them(
    name: str, digests: Callable[[str | None], Digests], instruction_set: str
) -> None:
    assert digests(instruction_set) == expected(name)
