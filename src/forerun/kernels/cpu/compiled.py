"""Compiled functions by name, kept on disk between runs.

Numba's own cache looks at the file of the function alone and misses edits in what it calls. Here
the directory is named by a hash of all that could change the machine code: every source file of
this package, the versions of Numba, llvmlite and Python, and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final

import llvmlite
import numba
from llvmlite import binding
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from forerun.errors import ForerunError
from forerun.kernels.cpu.lanes import Machine

_OPTIONS: Final = {"nopython": True, "boundscheck": False, "error_model": "numpy"}


class CannotCompile(ForerunError, RuntimeError):
    """Numba does not work on this machine."""


def check_processor() -> None:
    """Raise where products would call a function for every number, if there is one to call.

    x86 has both instructions since 2013, but for small processors and some virtual machines;
    without F16C, LLVM calls a function that older systems lack, and that ends the process.
    """
    triple, _name, features = cpu_target.target_context.codegen().magic_tuple()
    missing = _missing(triple, features)
    if missing:
        raise CannotCompile(
            f"the CPU kernels need {' and '.join(missing)}, which this processor (or "
            "NUMBA_CPU_NAME) does not offer; use the reference kernels."
        )


def _missing(triple: str, features: str) -> list[str]:
    if not triple.startswith(("x86_64", "i386", "i686")):
        return []
    offered = features.split(",")
    return [name for name in ("fma", "f16c") if f"+{name}" not in offered]


class Compiled:
    """A function void(int64, …) as machine code."""

    def __init__(self, name: str, source: Callable[..., None], num_args: int, folder: Path | None):
        signature = (types.int64,) * num_args, types.void
        native: Any = CFunc(source, signature, locals={}, options=dict(_OPTIONS))
        if folder is not None and _is_writable(folder):
            native._cache = _NamedCache(source, name, folder)
        try:
            native.compile()
        except (NumbaError, RuntimeError, OSError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise CannotCompile(
                f"Numba cannot compile the CPU kernels here ({first_line}); "
                "reinstall numba, or use the reference kernels."
            ) from error
        self._native = native  # owns the code
        self.was_cached: bool = native.cache_hits > 0
        self.address: int = native.address
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * num_args)
        self.call: Callable[..., None] = kind(self.address)  # releases Python's lock


def cache_folder(cache_dir: Path, machine: Machine) -> Path:
    """Where this version of the kernels is kept for this processor."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    processor = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    digest.update(repr((versions, processor, machine)).encode())
    return cache_dir / "kernels" / digest.hexdigest()[:16]


def is_kept(name: str, folder: Path | None) -> bool:
    """Whether a function of this name need not be compiled again."""
    return folder is not None and (folder / f"{name}.nbi").exists()


def _is_writable(folder: Path) -> bool:
    """Without a place to keep code, it is compiled in every process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


class _Folder(CompileResultCacheImpl):
    """Numba's file format, without its search for a place."""

    def __init__(self, name: str) -> None:
        self._filename_base = name
        self._locator = self  # only asked to make its directory, which exists

    def ensure_cache_path(self) -> None:
        pass

    def check_cachable(self, _result: Any) -> bool:
        return True


class _NamedCache(FunctionCache):
    """One function under a name of ours; the folder says the rest."""

    def __init__(self, source: Callable[..., None], name: str, folder: Path) -> None:
        self._name, self._py_func = name, source
        self._impl = _Folder(name)
        self._cache_path = str(folder)
        file_of: Any = IndexDataCacheFile
        self._cache_file = file_of(str(folder), name, source_stamp=None)
        self._enabled = True

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (EOFError, OSError, ValueError, UnpicklingError):
            damaged: Any = self._cache_file
            damaged.flush()  # to be written anew
            return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return sig, codegen.magic_tuple(), self._name
