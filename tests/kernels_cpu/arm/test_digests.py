"""Emulated ARM code has the committed bits: a real ARM's, where they depend on the architecture."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.kernels_cpu.digests import FORMATS, cases, pinned, where

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the emulator looks into /proc")

ALL = [name for name, _compute in cases()]
GROUPS = {
    "families": [name for name in ALL if name.startswith("family")],
    **{each: [name for name in ALL if name.startswith(f"format {each},")] for each in FORMATS},
}
NEON = ["format Q8_0, int8", "format Q4_1, int8", "format Q4_1, int16"]
I8MM = ["format Q4_1, int8"]  # smmla is emulated in Python, which takes a minute


def digests(instruction_set: str, names: list[str]) -> dict[str, dict[str, str]]:
    command = [sys.executable, "-m", "tests.kernels_cpu.arm.process", instruction_set, *names]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def expected(names: list[str]) -> dict[str, dict[str, str]]:
    table = pinned()
    return {name: table[where(name, "aarch64")][name] for name in names}


def test_arm_has_the_committed_bits() -> None:
    names = ["format Q4_1, int8", "family smollm2"]
    assert digests("dotprod", names) == expected(names)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_arm_has_all_of_them(group: str) -> None:
    assert digests("dotprod", GROUPS[group]) == expected(GROUPS[group])


@pytest.mark.slow
@pytest.mark.parametrize(("instruction_set", "names"), [("neon", NEON), ("i8mm", I8MM)])
def test_its_other_instruction_sets_have_them_too(instruction_set: str, names: list[str]) -> None:
    assert digests(instruction_set, names) == expected(names)


@pytest.mark.soak
def test_smollm2_has_the_committed_bits_there() -> None:
    """The digests are of logits and of answers with speculation."""
    names = ["SmolLM2, int8"]
    assert digests("dotprod", names) == expected(names)
