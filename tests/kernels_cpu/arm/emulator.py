"""Run ARM machine code on any processor.

The emulator is QEMU, from the package `unicorn`. It works on this process's own memory, at the same
addresses: each stretch is mapped when the code first touches it. Calls of C functions are answered
by this process's C library.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import mul
from pathlib import Path
from typing import Any, Final

import unicorn
from llvmlite import binding
from unicorn import arm64_const as arm

TRIPLE: Final = "aarch64-unknown-linux-gnu"
_STACK_BYTES: Final = 1 << 20
_UNDEFINED: Final = 1  # the exception number of an unknown instruction
_FLOATS_ON: Final = 3 << 20  # in CPACR_EL1
# smmla Vd.4S, Vn.16B, Vm.16B without its register numbers; this QEMU does not know it.
_SMMLA, _SMMLA_MASK = 0x4E80A400, 0xFFE0FC00
_BYTES: Final = struct.Struct("16b")
_INTS: Final = struct.Struct("<4i")


class Emulator:
    """An emulated ARM processor, for one thread."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _STACK_BYTES)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._stack, self._end = start + _STACK_BYTES - mmap.PAGESIZE, start  # no code is there
        self._uc: Any = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        uc = self._uc
        uc.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)
        uc.reg_write(arm.UC_ARM64_REG_CPACR_EL1, _FLOATS_ON)
        uc.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._show)
        uc.hook_add(unicorn.UC_HOOK_INTR, self._on_exception)
        self._functions = dict(_c_functions())
        for address in self._functions:
            uc.hook_add(unicorn.UC_HOOK_CODE, self._on_call, None, address, address)

    @contextmanager
    def loaded(self, code: bytes, target: Any) -> Iterator[Callable[[str], int]]:
        """Load an object file; yield a function from names to addresses."""
        with binding.create_mcjit_compiler(binding.parse_assembly(""), target) as engine:
            engine.add_object_file(binding.ObjectFileRef.from_data(code))
            engine.finalize_object()
            yield engine.get_function_address
        self._uc.ctl_flush_tb()  # the next code may be loaded at these addresses

    def call(self, address: int, *args: int) -> None:
        """Call a void(int64, …): eight arguments are in registers, the others on the stack."""
        uc, stack = self._uc, self._stack
        for idx, value in enumerate(args[:8]):
            uc.reg_write(arm.UC_ARM64_REG_X0 + idx, value & (1 << 64) - 1)
        for idx, value in enumerate(args[8:]):
            uc.mem_write(stack + 8 * idx, struct.pack("<q", value))
        uc.reg_write(arm.UC_ARM64_REG_SP, stack)
        uc.reg_write(arm.UC_ARM64_REG_X30, self._end)  # the return address
        uc.emu_start(address, self._end)

    def _show(self, uc: Any, _kind: int, address: int, _size: int, _value: int, _: Any) -> bool:
        """Map the stretch of memory around `address`, but for parts that are mapped already."""
        first, end = next((a, b) for a, b in _stretches() if a <= address < b)
        for shown, last, _rights in uc.mem_regions():
            first = max(first, last + 1) if last < address else first
            end = min(end, shown) if shown > address else end
        uc.mem_map_ptr(first, end - first, unicorn.UC_PROT_ALL, first)
        return True

    def _on_call(self, uc: Any, address: int, _size: int, _: Any) -> None:
        self._functions[address](uc)
        uc.reg_write(arm.UC_ARM64_REG_PC, uc.reg_read(arm.UC_ARM64_REG_X30))

    def _on_exception(self, uc: Any, number: int, _: Any) -> None:
        """Run consecutive smmla instructions; nothing else may raise an exception."""
        at = first = uc.reg_read(arm.UC_ARM64_REG_PC)
        while number == _UNDEFINED and (word := _word_at(at)) & _SMMLA_MASK == _SMMLA:
            _smmla(uc, word & 31, word >> 5 & 31, word >> 16 & 31)
            at += 4
        assert at > first, f"exception {number} at {first:#x}: {_word_at(first):#010x}"
        uc.reg_write(arm.UC_ARM64_REG_PC, at)


def _smmla(uc: Any, sums: int, left: int, right: int) -> None:
    """Add the products of two rows of eight bytes each to `sums`, as ARM's manual says."""
    numbers = [arm.UC_ARM64_REG_Q0 + each for each in (sums, left, right)]
    total, x, y = (uc.reg_read(each).to_bytes(16, "little") for each in numbers)
    rows, columns = ([each[:8], each[8:]] for each in map(_BYTES.unpack, (x, y)))
    products = [sum(map(mul, row, column)) for row in rows for column in columns]
    found = [_int32(a + b) for a, b in zip(_INTS.unpack(total), products, strict=True)]
    uc.reg_write(numbers[0], int.from_bytes(_INTS.pack(*found), "little"))


def _int32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _word_at(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _stretches() -> Iterator[tuple[int, int]]:
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        first, end = (int(each, 16) for each in line.split(maxsplit=1)[0].split("-"))
        yield first, end


def _c_functions() -> Iterator[tuple[int, Callable[[Any], None]]]:
    """Yield the C functions that kernels call, by the addresses that are compiled into them."""
    for name in ("memset", "memcpy", "memmove"):
        yield binding.address_of_symbol(name), _of_memory(getattr(ctypes, name, ctypes.memmove))
    for name in ("log", "log1p"):
        yield binding.address_of_symbol(name), _of_a_double(getattr(ctypes.CDLL(None), name))
    yield binding.address_of_symbol("sched_yield"), lambda _uc: None


def _of_memory(function: Callable[[int, int, int], Any]) -> Callable[[Any], None]:
    def run(uc: Any) -> None:
        function(*(uc.reg_read(arm.UC_ARM64_REG_X0 + idx) for idx in range(3)))

    return run


def _of_a_double(function: Any) -> Callable[[Any], None]:
    function.argtypes, function.restype = [ctypes.c_double], ctypes.c_double

    def run(uc: Any) -> None:
        (value,) = struct.unpack("<d", struct.pack("<Q", uc.reg_read(arm.UC_ARM64_REG_D0)))
        (bits,) = struct.unpack("<Q", struct.pack("<d", function(value)))
        uc.reg_write(arm.UC_ARM64_REG_D0, bits)

    return run
