"""Which instruction set code is generated for."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun.engine_config import DEFAULT_ACTIVATIONS
from forerun.errors import InvalidOption
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen import machine
from forerun.kernels.cpu.codegen.machine import ACTIVATIONS, ARM, X86, Machine

ALL_X86 = {"avx512vnni", "avx512vl", "avx512bw", "avxvnni", "avx2"}


def on_x86(monkeypatch: pytest.MonkeyPatch, *features: str) -> None:
    monkeypatch.setattr(machine, "_is_arm", lambda: False)
    monkeypatch.setattr(machine, "_x86_features", lambda: set(features))


@pytest.mark.parametrize(
    ("features", "best"),
    [
        (ALL_X86, "vnni"),
        (ALL_X86 - {"avx512vnni"}, "avx512"),
        ({"avx2", "avxvnni"}, "avxvnni"),
        ({"avx2"}, "avx2"),
        ({"avx512f", "avx2"}, "avx2"),  # the first AVX-512, without byte operations
        (set(), "sse"),
    ],
)
def test_the_best_that_is_there_is_taken(
    monkeypatch: pytest.MonkeyPatch, features: set[str], best: str
) -> None:
    on_x86(monkeypatch, *features)
    assert Machine.host().instructions.name == best
    assert Machine.host().num_digits == ACTIVATIONS[DEFAULT_ACTIVATIONS] == 1


@pytest.mark.parametrize(
    ("features", "best"),
    [({"i8mm", "dotprod"}, "i8mm"), ({"dotprod"}, "dotprod"), ({"i8mm"}, "neon"), (set(), "neon")],
)
def test_arm_has_sets_of_its_own(
    monkeypatch: pytest.MonkeyPatch, features: set[str], best: str
) -> None:
    monkeypatch.setattr(machine, "_is_arm", lambda: True)
    monkeypatch.setattr(machine, "_arm_features", lambda: features)
    assert Machine.host().instructions.name == best


def test_vnni_may_be_that_of_256_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    on_x86(monkeypatch, "avx2", "avxvnni")
    assert Machine.host("vnni").instructions.name == "avxvnni"


def test_what_the_processor_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on_x86(monkeypatch, "avx2")
    with pytest.raises(InvalidOption, match=r"does not have vnni; choose one of avx2, sse\."):
        CpuKernels(instruction_set="vnni")
    with pytest.raises(InvalidOption, match=r"does not have dotprod"):
        CpuKernels(instruction_set="dotprod")


def test_an_unknown_set_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'avx512'"):
        CpuKernels(instruction_set="avx51")


def test_a_forced_set_is_generated_for_a_processor_without_more() -> None:
    assert all(each.processor for each in X86 if each.name in ("avx512", "avxvnni", "avx2"))
    weakest = Machine.offered()[-1]
    assert Machine.host(weakest.name).is_forced
    assert not Machine.host().is_forced
    assert weakest in (*X86, *ARM)


def test_slower_code_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Machine.offered()[-1]
    monkeypatch.setattr(Machine, "offered", lambda: [slow])

    def stop(*_args: object) -> None:
        raise KeyboardInterrupt  # before anything is compiled

    monkeypatch.setattr("forerun.kernels.cpu.kernels.code_key", stop)
    with (
        pytest.warns(RuntimeWarning, match="neither AVX2 nor SDOT") as said,
        pytest.raises(KeyboardInterrupt),
    ):
        CpuKernels(1)
    assert len(said) == 1


@pytest.mark.parametrize("command", ["bench kernels", "proof --prompts 1 --model", "demo"])
def test_the_command_line_reads_the_variable(
    command: str, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from forerun.cli import app

    monkeypatch.setenv("FORERUN_CPU", "abacus")
    monkeypatch.setattr("forerun.cli.pull.pull_with_progress", lambda *_: tiny_path)
    monkeypatch.setattr("forerun.cli.demo.DEFAULT_MODEL", str(tiny_path))
    words = command.split()
    result = CliRunner().invoke(app, [*words, str(tiny_path)] if "--model" in words else words)
    assert result.exit_code == 2
    assert "unknown instruction set 'abacus'" in result.output


def test_amx_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match=r"no kernel uses AMX \(docs/adr/018\)"):
        Machine.host("amx")
