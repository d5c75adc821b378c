"""Compiled functions: where they cannot be made, and how they are kept on disk."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import CannotCompile
from forerun.kernels.cpu import CpuKernels, compiled
from forerun.kernels.cpu.operations import select
from tests.contracts.kernel_sets import CACHE_DIR


def made(folder: Path) -> compiled.Compiled:
    return compiled.Compiled("select", select, 3, folder)


def test_the_cache_folder_is_named_by_sources_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from forerun.kernels.cpu.lanes import Machine

    host, wide = Machine.host(), Machine(16, (1,))
    here = compiled.cache_folder(Path("x"), host)
    assert here == compiled.cache_folder(Path("x"), host)
    assert here != compiled.cache_folder(Path("x"), wide)
    for name in ("philox", "Stream"):  # code from other rooms
        with monkeypatch.context() as patch:
            patch.setattr(compiled, name, Machine)
            assert here != compiled.cache_folder(Path("x"), host)
    monkeypatch.setattr("numba.__version__", "another")
    assert here != compiled.cache_folder(Path("x"), host)


def test_compiled_code_is_found_again_by_another_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path;"
        "from forerun.kernels.cpu.compiled import Compiled;"
        "from forerun.kernels.cpu.operations import select;"
        "print(Compiled('select', select, 3, Path(sys.argv[1])).was_cached)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["False", "True"]


def test_a_machine_where_numba_fails_is_told_in_one_sentence() -> None:
    def broken(step: int, _chunk: int, _scratch: int) -> None:
        step.no_such_attribute  # type: ignore[attr-defined]  # noqa: B018

    with pytest.raises(CannotCompile, match="Numba cannot compile the CPU kernels here"):
        compiled.Compiled("broken", broken, 3, None)


@pytest.mark.parametrize(
    ("triple", "features", "missing"),
    [
        ("x86_64-unknown-linux-gnu", "+avx2,+f16c,+fma", None),
        ("x86_64-unknown-linux-gnu", "+avx,+f16c,-fma", "fma"),
        ("x86_64-pc-windows-msvc", "", "fma and f16c"),
        ("aarch64-unknown-linux-gnu", "", None),
    ],
)
def test_an_old_x86_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: str, missing: str | None
) -> None:
    from numba.core.codegen import JITCPUCodegen

    target = (triple, "any", features)
    monkeypatch.setattr(JITCPUCodegen, "magic_tuple", lambda _self: target)
    if missing is None:
        compiled.check_processor()
    else:
        with pytest.raises(CannotCompile, match=f"need {missing}, which"):
            CpuKernels(cache_dir=CACHE_DIR)


@pytest.mark.parametrize("message", ["", "\n", "one\ntwo"])
def test_whatever_numba_says_becomes_one_sentence(
    monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    def fail(*_args: Any) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr("numba.core.ccallback.CFunc.compile", fail)
    with pytest.raises(CannotCompile, match=r"here \((RuntimeError|one)\); reinstall numba"):
        compiled.Compiled("select", select, 3, None)


def kept(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize("place", [0, 31, 32, 40, 0.3, 0.6, 0.9, -1])
def test_a_changed_bit_is_seen_and_the_file_replaced(tmp_path: Path, place: float) -> None:
    """In the checksum, the pickle or the machine code: LLVM must never get to see it."""
    made(tmp_path)
    whole = bytearray(kept(tmp_path).read_bytes())
    whole[place if isinstance(place, int) else int(place * len(whole))] ^= 8
    kept(tmp_path).write_bytes(whole)
    assert not made(tmp_path).was_cached
    assert made(tmp_path).was_cached


@pytest.mark.parametrize("content", [b"", b"short", None])
def test_a_cut_file_is_compiled_anew(tmp_path: Path, content: bytes | None) -> None:
    made(tmp_path)
    path = kept(tmp_path)
    path.write_bytes(path.read_bytes()[:400] if content is None else content)
    assert not made(tmp_path).was_cached
    assert made(tmp_path).was_cached


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, AttributeError, ImportError])
def test_whatever_loading_raises_the_function_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def fail(*_args: Any) -> None:
        raise error

    made(tmp_path)
    monkeypatch.setattr("numba.core.compiler.CompileResult._rebuild", fail)
    assert not made(tmp_path).was_cached


def test_a_full_disk_costs_the_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    assert not made(tmp_path).was_cached
    assert not list(tmp_path.iterdir())


def test_a_folder_that_may_not_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)

    def refuse(*_args: Any, **_options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("mkdir", "write_bytes", "replace"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr("os.access", lambda *_args: False)
    assert made(tmp_path).was_cached


def test_without_a_place_to_keep_it_a_function_is_compiled(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    assert not made(not_a_folder / "x").was_cached
    assert not made(not_a_folder / "x").was_cached
