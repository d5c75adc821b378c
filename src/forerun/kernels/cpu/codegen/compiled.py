"""Compiled functions by name, kept on disk between runs.

Numba's own cache checks the function's own file alone and misses edits in functions that it calls.
Here the key is a hash of all that could change the machine code: every source file of this package
and of the noise, the versions of Numba, llvmlite and Python, and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
import numpy.typing as npt
from llvmlite import binding
from numba import types
from numba.core import compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from forerun.errors import CannotCompile
from forerun.kernels.cpu.codegen.code_cache import CodeCache
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.object_code import ObjectCode
from forerun.sampling.noise import Stream
from forerun.sampling.philox import philox

# mypy: disable-error-code="no-untyped-call"

_OPTIONS: Final = {"nopython": True, "boundscheck": False, "error_model": "numpy"}
_ENTRY: Final = "forerun_entry"


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's data, in a third of the time of `array.ctypes`."""
    if array.size and array.flags.carray:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return int(array.ctypes.data)


def check_processor() -> None:
    """Raise if an x86 processor has no instruction for multiply-adds (FMA) or float16 (F16C).

    Processors since 2013 have both, except small ones and some virtual machines. Without them LLVM
    calls a function for every number; that for float16 is missing on older systems, which ends the
    process.
    """
    triple, _name, features = cpu_target.target_context.codegen().magic_tuple()
    missing = _missing(triple, features)
    if missing:
        raise CannotCompile(
            f"the CPU kernels need {' and '.join(missing)}, which this processor (or "
            "NUMBA_CPU_NAME) does not offer; use the reference kernels."
        )


def _missing(triple: str, features: str) -> list[str]:
    if not _is_x86(triple):
        return []
    offered = features.split(",")
    return [name for name in ("fma", "f16c") if f"+{name}" not in offered]


def _is_x86(triple: str) -> bool:
    return triple.startswith(("x86_64", "i386", "i686"))


class Compiled:
    """A function void(int64, …) as machine code."""

    def __init__(
        self,
        name: str,
        source: Callable[..., None],
        num_args: int,
        cache: CodeCache | None,
        machine: Machine | None = None,
    ) -> None:
        code = None if cache is None else cache.load(name)
        self.was_cached: bool = code is not None
        try:
            if code is None:
                code = _object_code(source, num_args, machine or Machine.host())
                if cache is not None:
                    cache.save(name, code)
            self._engine, self.address = _loaded(code)  # the engine owns the code
        except (NumbaError, RuntimeError, OSError) as error:
            raise CannotCompile.because("compile the CPU kernels here", error) from error
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * num_args)
        self.call: Final[Callable[..., None]] = kind(self.address)  # releases Python's lock


@global_compiler_lock  # type: ignore[untyped-decorator]
def _object_code(source: Callable[..., None], num_args: int, machine: Machine) -> ObjectCode:
    """Compile a function: Numba generates LLVM IR, LLVM generates machine code."""
    flags: Any = compiler.Flags()
    cpu_target.options.parse_as_flags(flags, dict(_OPTIONS))
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    contexts = cpu_target.typing_context, cpu_target.target_context
    args = (types.int64,) * num_args
    with machine.as_target():
        result: Any = compiler.compile_extra(*contexts, source, args, types.void, flags, {})
    result.library.finalize()
    module = binding.parse_assembly(result.library.get_llvm_str())
    module.link_in(binding.parse_assembly(_entry(result.fndesc.llvm_func_name, num_args)))
    outside = (f.name for f in module.functions if f.is_declaration)
    needed = tuple(name for name in outside if not name.startswith("llvm."))
    return ObjectCode((_ENTRY, *needed), _target_machine(machine).emit_object(module))


def _entry(inner: str, num_args: int) -> str:
    """Return the IR of an entry that calls Numba's function and drops its status and two pointers,
    which serve exceptions: these functions never raise one."""
    kinds = ", ".join(["i64"] * num_args)
    args = ", ".join(f"i64 %{idx}" for idx in range(num_args))
    return f"""
        declare i32 @"{inner}"(ptr, ptr, {kinds})
        define void @{_ENTRY}({args}) {{
            %result = alloca ptr
            %error = alloca ptr
            %status = call i32 @"{inner}"(ptr %result, ptr %error, {args})
            ret void
        }}
    """


def _target(machine: Machine) -> tuple[str, str, str]:
    """Return triple, processor and features to generate code for: Numba's own, or those of a
    forced instruction set."""
    triple, name, features = cpu_target.target_context.codegen().magic_tuple()
    if machine.is_forced and machine.instructions.processor is not None:
        return triple, machine.instructions.processor, machine.instructions.more
    return triple, name, features


def _target_machine(machine: Machine) -> Any:
    triple, name, features = _target(machine)
    return binding.Target.from_triple(triple).create_target_machine(
        cpu=name,
        features=features,
        opt=3,
        reloc="static" if _is_x86(triple) else "default",
        codemodel="jitdefault",
        jit=True,
    )


def _loaded(code: ObjectCode) -> tuple[Any, int]:
    """Return an engine that owns the code, and the address of the function.

    Each function has its own engine: those compiled by different processes may share symbol names.
    """
    entry, *needed = code.symbols
    for name in needed:  # LLVM would silently leave its address zero
        if not binding.address_of_symbol(name):
            raise RuntimeError(f"{name} is not to be found")
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), _target_machine(Machine.host())
    )
    engine.add_object_file(binding.ObjectFileRef.from_data(code.code))
    engine.finalize_object()
    return engine, engine.get_function_address(entry)


def code_key(machine: Machine) -> bytes:
    """Return a hash of all that could change the machine code for this processor, except lanes,
    tiles and digits: functions that depend on these have a digest of them in their names."""
    digest = hashlib.sha256(source_digest(Path(__file__).parents[1]))
    for source in (philox, Stream):
        digest.update(Path(inspect.getfile(source)).read_bytes())
    versions = (numba.__version__, llvmlite.__version__, sys.version)
    processor = cpu_target.target_context.codegen().magic_tuple()  # may come from NUMBA_CPU_NAME
    digest.update(repr((versions, processor, _target(machine))).encode())
    return digest.digest()


def source_digest(package: Path) -> bytes:
    """Return a hash of every source file of a package, in all its folders, and of their names."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        contents = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(contents)}\n".encode())
        digest.update(contents)
    return digest.digest()
