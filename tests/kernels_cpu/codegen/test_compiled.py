"""Compiled functions: what their cache keys cover, and machines that cannot compile them."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.errors import CannotCompile
from forerun.kernels import cpu
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen import compiled
from forerun.kernels.cpu.codegen.code_cache import CodeCache
from forerun.kernels.cpu.codegen.machine import AVX2_OUTPUTS, ROW_TYPES, InstructionSet, Machine
from forerun.kernels.cpu.library import Library
from forerun.kernels.cpu.operations import select
from tests.contracts.kernel_sets import CACHE_DIR

FOR_ANOTHER = Machine(
    16, (1,), instructions=InstructionSet("other", 8, (1, 1), (), "another"), is_forced=True
)


def test_compiled_code_is_named_by_sources_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Machine.host()
    here = compiled.code_key(host)
    assert here == compiled.code_key(host)
    assert here != compiled.code_key(FOR_ANOTHER)
    for name in ("philox", "Stream"):  # code from other rooms
        with monkeypatch.context() as patch:
            patch.setattr(compiled, name, Machine)
            assert here != compiled.code_key(host)
    monkeypatch.setattr("numba.__version__", "another")
    assert here != compiled.code_key(host)


def test_code_for_a_forced_set_has_what_all_kernels_need() -> None:
    """On any x86, kernels need fused multiply-add (FMA) and float16 conversion (F16C)."""
    forced = InstructionSet("old", 4, (4, 4), (), "x86-64", more="+avx,+fma,+f16c")
    triple, _, own = compiled._target(Machine.host())
    target = compiled._target(Machine(4, (1,), instructions=forced, is_forced=True))
    assert target == (triple, "x86-64", "+avx,+fma,+f16c")
    unforced = Machine(4, (1,), instructions=forced)
    assert compiled._target(unforced)[2] == own


def test_lanes_tiles_and_digits_share_what_does_not_know_them(tmp_path: Path) -> None:
    """Both machines use one `select`; each has its own `embed`, in the same folder."""
    machines, heard = [Machine(16, AVX2_OUTPUTS), Machine(8, AVX2_OUTPUTS)], list[str]()
    for machine in machines:
        cache = CodeCache.open(tmp_path, compiled.code_key(machine))
        library = Library(machine, cache, lambda what, *_: heard.append(what))
        library.operation("select")
        library.embed("F32")
    select, embed = (f"compiling {name}, once for this machine" for name in ("select", "embed-F32"))
    assert heard == [select, embed, embed]
    files = {path.name for path in tmp_path.rglob("*.code")}
    assert files == {"select.code", *(f"embed-F32-{machine.digest}.code" for machine in machines)}


def test_attention_is_kept_by_the_tiles_and_rows_that_it_was_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two instruction sets of one processor may have the same key, so the names must differ."""
    kept: list[str] = []

    def function(_: Library, name: str, *args: Any) -> SimpleNamespace:
        kept.append(name + (args[2] if len(args) > 2 else ""))
        return SimpleNamespace(address=1)

    monkeypatch.setattr(Library, "function", function)
    for num_outputs in (4, 16):
        instructions = InstructionSet("some", num_outputs, (1, 1), ())
        library = Library(Machine(16, (1,), instructions=instructions), None, None)
        for row_type in ROW_TYPES:
            library.row_operations(row_type)
    for operation in ("attend", "rope_write"):
        assert len({name for name in kept if name.startswith(operation)}) == 4


@pytest.mark.parametrize("edited", ["__init__.py", "deep/down/below.py"])
def test_an_edit_anywhere_below_changes_the_name(tmp_path: Path, edited: str) -> None:
    package = tmp_path / "cpu"
    (package / "deep" / "down").mkdir(parents=True)
    for path in ("__init__.py", "deep/__init__.py", "deep/down/below.py"):
        (package / path).write_text("x = 1")
    before = compiled.source_digest(package)
    assert compiled.source_digest(shutil.copytree(package, tmp_path / "copy")) == before
    (package / edited).write_text("x = 2")
    assert compiled.source_digest(package) != before


ROOMS = ("codegen", "products", "attention", "runtime", "weights", "draws")


@pytest.mark.parametrize("edited", ["kernels.py", *(f"{room}/__init__.py" for room in ROOMS)])
def test_an_edit_in_any_room_changes_the_key(monkeypatch: pytest.MonkeyPatch, edited: str) -> None:
    package = Path(cpu.__file__).parent
    assert (package / edited).exists()
    before, read = compiled.code_key(Machine.host()), Path.read_bytes

    def edit(path: Path) -> bytes:
        return read(path) + (b" " if path == package / edited else b"")

    monkeypatch.setattr(Path, "read_bytes", edit)
    assert compiled.code_key(Machine.host()) != before


def test_moving_code_between_files_changes_the_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    before = compiled.source_digest(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert compiled.source_digest(tmp_path) != before


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

    monkeypatch.setattr("numba.core.compiler.compile_extra", fail)
    with pytest.raises(CannotCompile, match=r"here \((RuntimeError|one)\); reinstall numba"):
        compiled.Compiled("select", select, 3, None)
