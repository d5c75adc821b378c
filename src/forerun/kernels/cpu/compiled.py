"""Compiled functions by name, kept on disk between runs.

Numba's own cache looks at the file of the function alone and misses edits in what it calls. Here
the directory is named by a hash of all that could change the machine code: every source file of
this package, those of the noise, the versions of Numba, llvmlite and Python, and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
from numba import types
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from forerun.errors import CannotCompile
from forerun.kernels.cpu.kept_code import KeptCode
from forerun.kernels.cpu.lanes import Machine
from forerun.sampling.noise import Stream
from forerun.sampling.philox import philox

_OPTIONS: Final = {"nopython": True, "boundscheck": False, "error_model": "numpy"}


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
        if folder is not None:
            native._cache = KeptCode(_path(name, folder))
        try:
            native.compile()
        except (NumbaError, RuntimeError, OSError) as error:
            raise CannotCompile.because("compile the CPU kernels here", error) from error
        self._native = native  # owns the code
        self.was_cached: bool = native.cache_hits > 0
        self.address: int = native.address
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * num_args)
        self.call: Callable[..., None] = kind(self.address)  # releases Python's lock


def cache_folder(cache_dir: Path, machine: Machine) -> Path:
    """Where this version of the kernels is kept for this processor."""
    digest = hashlib.sha256()
    sources = sorted(Path(__file__).parent.glob("*.py"))
    noise = (Path(inspect.getfile(source)) for source in (philox, Stream))
    for path in (*sources, *noise):
        digest.update(path.read_bytes())
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    processor = cpu_target.target_context.codegen().magic_tuple()  # or what NUMBA_CPU_NAME says
    digest.update(repr((versions, processor, machine)).encode())
    return cache_dir / "kernels" / digest.hexdigest()[:16]


def is_kept(name: str, folder: Path | None) -> bool:
    """Whether a function of this name need not be compiled again."""
    return folder is not None and os.path.exists(_path(name, folder))  # False if unreadable


def _path(name: str, folder: Path) -> Path:
    return folder / f"{name}.code"
