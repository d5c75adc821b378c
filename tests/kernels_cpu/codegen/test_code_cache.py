"""Compiled functions on disk: which files are loaded, and who may have written them."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forerun
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen import code_cache
from forerun.kernels.cpu.codegen.code_cache import CodeCache
from forerun.kernels.cpu.codegen.compiled import Compiled
from forerun.kernels.cpu.codegen.object_code import MAGIC, ObjectCode, unpacked
from forerun.kernels.cpu.operations import select, silu_mul

KEY = bytes(range(32))
needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files")


def opened(root: Path, key: bytes = KEY) -> CodeCache:
    cache = CodeCache.open(root, key)
    assert cache is not None
    return cache


@pytest.fixture
def cache(tmp_path: Path) -> CodeCache:
    tmp_path.chmod(0o700)
    return opened(tmp_path)


def made(cache: CodeCache) -> Compiled:
    return Compiled("select", select, 3, cache)


def kept(cache: CodeCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("code")
    folder.chmod(0o700)
    made(opened(folder))
    return kept(opened(folder)).read_bytes()


@pytest.fixture
def filled(cache: CodeCache, code: bytes) -> CodeCache:
    """The cache as `made` leaves it, without compiling again."""
    path = cache.folder / "select.code"
    path.write_bytes(code)
    path.chmod(0o600)
    return cache


@pytest.mark.slow
def test_code_is_found_again_by_another_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path;"
        "from forerun.kernels.cpu.codegen.code_cache import CodeCache;"
        "from forerun.kernels.cpu.codegen.compiled import Compiled;"
        "from forerun.kernels.cpu.operations import select;"
        "cache = CodeCache.open(Path(sys.argv[1]), bytes(32));"
        "print(Compiled('select', select, 3, cache).was_cached)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in runs] == ["False", "True"]


def test_what_is_loaded_runs(filled: CodeCache) -> None:
    source, target = np.arange(32, dtype=np.float32), np.zeros(16, np.float32)
    chosen = np.array([1])
    addresses = (a.ctypes.data for a in (source, chosen, target))
    step = np.array([0, 1, 1, 16, 64, *addresses], np.int64)
    loaded = made(filled)
    assert loaded.was_cached
    loaded.call(step.ctypes.data, 0, 0)
    assert target.tolist() == list(range(16, 32))


def test_bytes_come_back_as_they_were() -> None:
    code = ObjectCode(("entry", "memset"), b"\x7fELF\0\n")
    assert unpacked(code.packed(KEY), KEY) == code


@pytest.mark.parametrize("place", [0, 8, 12, 44, 48, 56, 90, 0.3, 0.6, 0.9, -1])
def test_a_changed_bit_is_seen(filled: CodeCache, place: float) -> None:
    """In any field of the header, the names or the code: LLVM must never see the file."""
    whole = bytearray(kept(filled).read_bytes())
    whole[place if isinstance(place, int) else int(place * len(whole))] ^= 8
    assert filled.load("select") is not None
    kept(filled).write_bytes(whole)
    assert filled.load("select") is None


@pytest.mark.parametrize("length", [0, 5, 87, 88, 200, -1])
def test_a_cut_file_is_not_taken(filled: CodeCache, length: int) -> None:
    path = kept(filled)
    path.write_bytes(path.read_bytes()[:length])
    assert filled.load("select") is None


def test_a_longer_file_is_compiled_anew_and_replaced(filled: CodeCache) -> None:
    with kept(filled).open("ab") as file:
        file.write(b"\0")
    assert not made(filled).was_cached
    assert made(filled).was_cached


def test_code_of_another_key_or_another_function_is_not_taken(
    filled: CodeCache, tmp_path: Path
) -> None:
    other = opened(tmp_path, bytes(32))
    (other.folder / "select.code").write_bytes(kept(filled).read_bytes())
    assert other.load("select") is None
    kept(filled).rename(filled.folder / "attend.code")
    assert filled.load("attend") is None


class Planted:
    """Unpickling this makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("prefix", [b"", MAGIC, "checksum"])
def test_a_planted_pickle_is_never_run(
    filled: CodeCache, tmp_path: Path, prefix: bytes | str
) -> None:
    planted = pickle.dumps(Planted(tmp_path / "run"))
    start = hashlib.sha256(planted).digest() if isinstance(prefix, str) else prefix
    kept(filled).write_bytes(start + planted)
    assert not made(filled).was_cached
    assert not (tmp_path / "run").exists()
    pickle.loads(planted)  # unpickled, it runs
    assert (tmp_path / "run").exists()


def test_nothing_in_the_package_can_interpret_what_it_reads() -> None:
    """No module of the package imports or calls what turns bytes into objects or code."""
    banned = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    sources = sorted(Path(forerun.__file__).parent.rglob("*.py"))
    assert len(sources) > 50
    suspect = re.compile("|".join((*banned, "serialize", "eval", "exec")))
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if suspect.search(text) else "")):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), source
            parts = {part for name in names for part in name.split(".")}
            assert not parts & (banned | {"serialize"}), (source, names)


def open_to_others(path: Path) -> None:
    path.chmod(0o777 if path.is_dir() else 0o666)


@needs_owners
@pytest.mark.parametrize("which", [".", "kernels", "kernels/0001020304050607"])
@pytest.mark.usefixtures("filled")
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, which: str) -> None:
    open_to_others(tmp_path / which)
    with pytest.warns(RuntimeWarning, match=r"may be changed by others \(run: chmod go-w"):
        assert CodeCache.open(tmp_path, KEY) is None
    (tmp_path / which).chmod(0o755)
    assert made(opened(tmp_path)).was_cached


@pytest.mark.slow
@needs_owners
def test_kernels_say_once_that_they_compile_in_memory(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    with pytest.warns(RuntimeWarning, match="every start compiles anew") as said:
        CpuKernels(1, cache_dir=tmp_path)
    assert len(said) == 1
    assert not list(tmp_path.rglob("*.code"))


@needs_owners
def test_the_group_of_one_user_alone_may_write(
    cache: CodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The umask of many systems allows it; a group of several users is refused."""
    import grp
    import pwd

    user = pwd.getpwuid(os.geteuid())
    os.chown(tmp_path, -1, user.pw_gid)
    tmp_path.chmod(0o775)
    alone = grp.struct_group((user.pw_name, "x", user.pw_gid, []))
    monkeypatch.setattr(grp, "getgrgid", lambda _id: alone)
    assert opened(tmp_path) == cache
    several = grp.struct_group((user.pw_name, "x", user.pw_gid, ["another"]))
    monkeypatch.setattr(grp, "getgrgid", lambda _id: several)
    with pytest.warns(RuntimeWarning, match="may be changed by others"):
        assert CodeCache.open(tmp_path, KEY) is None


@needs_owners
def test_a_file_that_others_may_write_to_is_replaced(filled: CodeCache) -> None:
    open_to_others(kept(filled))
    assert not made(filled).was_cached
    assert kept(filled).stat().st_mode & 0o022 == 0
    assert made(filled).was_cached


@needs_owners
def test_what_belongs_to_someone_else_is_not_used(
    cache: CodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(cache.folder, 12345, -1)
    else:
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.warns(RuntimeWarning, match="belongs to someone else"):
        assert CodeCache.open(tmp_path, KEY) is None


@needs_owners
def test_a_file_of_someone_else_is_replaced(cache: CodeCache) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    made(cache)
    os.chown(kept(cache), 12345, -1)
    assert not made(cache).was_cached
    assert kept(cache).stat().st_uid == 0


@needs_owners
def test_a_link_is_not_followed(filled: CodeCache, tmp_path: Path) -> None:
    kept(filled).rename(tmp_path / "elsewhere.code")
    (filled.folder / "select.code").symlink_to(tmp_path / "elsewhere.code")
    assert not made(filled).was_cached
    assert not kept(filled).is_symlink()  # replaced, and its target is left alone
    assert (tmp_path / "elsewhere.code").exists()
    filled.folder.rename(tmp_path / "moved")
    filled.folder.symlink_to(tmp_path / "moved")
    with pytest.warns(RuntimeWarning, match="is a link to elsewhere"):
        assert CodeCache.open(tmp_path, KEY) is None


@needs_owners
def test_the_cache_itself_may_be_reached_by_a_link(cache: CodeCache, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert opened(tmp_path / "link") == cache


@needs_owners
def test_a_pipe_in_its_place_holds_nobody_up(filled: CodeCache) -> None:
    kept(filled).unlink()
    os.mkfifo(filled.folder / "select.code")
    assert not made(filled).was_cached


@pytest.fixture
def open_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@needs_owners
@pytest.mark.usefixtures("open_mask")
def test_folders_of_ours_are_private_whatever_the_mask(tmp_path: Path) -> None:
    root = tmp_path / "new" / "cache"
    made(opened(root))
    cache = opened(root)
    assert made(cache).was_cached
    for path in (root, cache.folder.parent, cache.folder, kept(cache)):
        assert path.stat().st_mode & 0o022 == 0, path


def test_writers_at_the_same_time_leave_one_whole_file(cache: CodeCache) -> None:
    codes = [ObjectCode(("entry",), bytes([idx]) * 300_000) for idx in range(8)]

    def write_and_read(idx: int) -> None:
        for _ in range(20):
            cache.save("select", codes[idx])
            assert cache.load("select") in codes

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write_and_read, range(8)))
    assert kept(cache).name == "select.code"


def test_a_full_disk_costs_the_file_alone(
    cache: CodeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(path: Path, contents: bytes) -> None:
        path.write_bytes(contents[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(code_cache, "_write", half)
    assert not made(cache).was_cached
    assert not list(cache.folder.iterdir())


def test_a_folder_that_may_not_be_written_is_read(
    filled: CodeCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(*_args: Any, **_options: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(code_cache, "_write", refuse)
    assert made(opened(tmp_path)).was_cached
    assert not Compiled("silu_mul", silu_mul, 3, filled).was_cached


def test_without_a_place_to_keep_it_a_function_is_compiled(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    assert CodeCache.open(not_a_folder / "x", KEY) is None
    assert not Compiled("select", select, 3, None).was_cached
