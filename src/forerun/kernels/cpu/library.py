"""The library of this kernel set's compiled functions, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from forerun.interrupts import Uninterrupted, safe_point
from forerun.kernels.cpu import operations
from forerun.kernels.cpu.attention.attend import make_attend
from forerun.kernels.cpu.attention.rope import rope_write
from forerun.kernels.cpu.codegen.code_cache import CodeCache
from forerun.kernels.cpu.codegen.compiled import Compiled
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.products.expand import make_expand
from forerun.kernels.cpu.products.product import make_product, max_rows, widest
from forerun.kernels.cpu.runtime import interpreter
from forerun.kernels.cpu.weights.load_report import Progress

_OPERATIONS: Final = {
    "add_norm": operations.add_norm,
    "silu_mul": operations.silu_mul,
    "select": operations.select,
    "place": operations.place,
    "read": operations.read,
}
DIGIT_MAKERS: Final = {  # what writes activations as digits
    "write": operations.make_write_digits,
    "norm": operations.make_norm_digits,
    "silu": operations.make_silu_digits,
}


class Operations(NamedTuple):
    """Addresses of the operations that are the same for all weights and activations."""

    add_norm: int
    silu_mul: int
    select: int
    place: int


class RowOperations(NamedTuple):
    """Addresses of the operations that write keys and values, and attend to them."""

    rope_write: int
    attend: int


class Library:
    """Compiles functions on first use; `progress` is called for each that is not on disk."""

    def __init__(
        self, machine: Machine, cache: CodeCache | None, progress: Progress | None
    ) -> None:
        self._machine = machine
        self._cache = cache
        self._progress = progress
        self._kinds: dict[tuple[str, str], int] = {}  # of an operation, like ("linear", "Q4_1")
        self._names: dict[int, str] = {}

    def operations(self) -> Operations:
        addresses = []
        for name in Operations._fields:
            safe_point()
            addresses.append(self.operation(name))
        return Operations(*addresses)

    def operation(self, name: str, source: Callable[..., None] | None = None) -> int:
        """Return the address of the operation `name`; `source` is its code if this library has
        none of that name."""
        return self._named(name, self.function(name, source or _OPERATIONS[name], 3))

    def row_operations(self, row_type: str) -> RowOperations:
        """Return the operations for keys and values that are stored as `row_type`."""
        machine = self._machine.with_rows(row_type)
        sources = {"rope_write": rope_write, "attend": _attend_source(machine)}
        addresses = []
        for name in RowOperations._fields:
            safe_point()
            suffix = f"-{row_type}-{machine.digest}"
            operation = self.function(name, sources[name], 3, suffix, machine)
            addresses.append(self._named(name, operation))
        return RowOperations(*addresses)

    def digits(self, maker: str) -> int:
        """Return the address of an operation that writes activations as digits: existing ones
        (`write`), or those that it computes itself (`norm`, `silu`)."""
        return self._kinds.get(("digits", maker)) or self._add("digits", maker, _digits_source)

    def linear(self, weight_format: str) -> int:
        """Return the address of the product with weights of a format."""
        return self._kinds.get(("linear", weight_format)) or self._add(
            "linear", weight_format, _linear_source
        )

    def embed(self, weight_format: str) -> int:
        """Return the address of the operation that expands rows of a format."""
        return self._kinds.get(("embed", weight_format)) or self._add(
            "embed", weight_format, _embed_source
        )

    def entry(self, name: str) -> Compiled:
        """Return a function of `interpreter`, compiled."""
        return self.function(name, getattr(interpreter, name), 2)

    def function(
        self,
        name: str,
        source: Callable[..., None],
        num_args: int,
        suffix: str = "",
        machine: Machine | None = None,
    ) -> Compiled:
        """Compile, or load, a function of `num_args` int64 arguments. `suffix` distinguishes its
        file from others of the same name; `machine` replaces the library's own."""
        is_kept = self._cache is not None and self._cache.has(name + suffix)
        if self._progress is not None and not is_kept:
            self._progress(f"compiling {name}, once for this machine", 0, 0)
        with Uninterrupted():  # an interrupt could leave Numba's or LLVM's state inconsistent
            return _compiled(name + suffix, source, num_args, self._cache, machine or self._machine)

    def _add(self, kind: str, which: str, make: Callable[[str, Machine], Any]) -> int:
        address = self._of_machine(f"{kind}-{which}", make(which, self._machine))
        self._kinds[kind, which] = address
        return address

    def _of_machine(self, name: str, source: Any) -> int:
        """Compile an operation whose code depends on the machine's lanes, tiles and digits, and
        return its address; the code of other operations is shared by all machines."""
        return self._named(name, self.function(name, source, 3, f"-{self._machine.digest}"))

    def _named(self, name: str, operation: Compiled) -> int:
        self._names[operation.address] = name
        return operation.address

    def name_of(self, operation: int) -> str:
        """Return the name of the operation at an address, such as `attend` or `linear-Q4_1`."""
        return self._names[operation]


@cache
def _linear_source(weight_format: str, machine: Machine) -> Any:
    product = make_product(weight_format, machine)
    widths = (of(weight_format, machine) for of in (max_rows, widest))
    return operations.make_linear(product, *widths)


@cache
def _attend_source(machine: Machine) -> Any:
    return make_attend(machine)


@cache
def _digits_source(maker: str, machine: Machine) -> Any:
    return DIGIT_MAKERS[maker](machine)


@cache
def _embed_source(weight_format: str, machine: Machine) -> Any:
    return operations.make_embed(make_expand(weight_format, machine))


@cache
def _compiled(
    name: str, source: Any, num_args: int, kept: CodeCache | None, machine: Machine
) -> Compiled:
    """Compile once per process: all libraries share the machine code."""
    return Compiled(name, source, num_args, kept, machine)
