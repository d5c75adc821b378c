"""The machine that code is generated for: instruction set, lanes, tiles and digits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from llvmlite import binding
from numba.core import config

from forerun.errors import InvalidOption
from forerun.option_checks import require_known

# The outputs of a float tile of 1, 2, 3 … rows. AVX2 and AVX-512 have the same lanes, and so the
# same bits.
AVX2_OUTPUTS: Final = (2, 1, 1, 1, 1, 1)  # at most 12 of 16 registers are sums
AVX512_OUTPUTS: Final = (4, 4, 4, 4, 4, 4, 3, 3)  # 24 of 32
NEON_OUTPUTS: Final = (4, 4, 4, 4, 2, 2, 2, 2)
ACTIVATIONS: Final = {"int8": 1, "int16": 2}  # the number of digits
ROW_TYPES: Final = ("float32", "float16")


@dataclass(frozen=True)
class InstructionSet:
    """An instruction set for integer products, and what LLVM must know to generate code for it."""

    name: str
    num_outputs: int  # outputs of an integer tile: as many as a vector has int32
    max_rows: tuple[int, int]  # the most rows of such a tile, with one digit and with two
    needs: tuple[str, ...]  # required features, by LLVM's names
    processor: str | None = None  # LLVM's processor that has these and no more, to generate for
    has_wide_tile: bool = False  # a tile of 16 rows and one digit pays, even if it spills floats
    is_signed: bool = False  # weights are multiplied as signed bytes, not only digits (ARM)
    more: str = ""  # features that all kernels need and `processor` lacks

    @property
    def is_slow(self) -> bool:
        """Whether it has no instructions for integer products."""
        return not self.needs


X86: Final = (  # the best first
    InstructionSet("vnni", 16, (8, 8), ("avx512vnni", "avx512vl", "avx512bw"), None, True),
    InstructionSet("avx512", 16, (8, 8), ("avx512bw", "avx512vl"), "skylake-avx512", True),
    InstructionSet("avxvnni", 8, (4, 4), ("avxvnni",), "alderlake"),
    InstructionSet("avx2", 8, (4, 4), ("avx2",), "haswell"),
    InstructionSet("sse", 4, (4, 4), (), "x86-64", more="+avx,+fma,+f16c"),
)
ARM: Final = (
    InstructionSet("i8mm", 4, (8, 8), ("i8mm", "dotprod"), None, True, is_signed=True),
    InstructionSet("dotprod", 4, (8, 8), ("dotprod",), None, True, is_signed=True),
    InstructionSet("neon", 4, (8, 8), (), is_signed=True),
)


@dataclass(frozen=True)
class Machine:
    """A processor, and the number types for which code is generated."""

    num_lanes: int
    tile_outputs: tuple[int, ...]  # of float tiles of 1, 2, 3 … rows, so that sums fit registers
    num_digits: int = 1  # of an activation, in products with packed weights
    instructions: InstructionSet = X86[-1]
    is_forced: bool = False  # the user chose the instruction set; the processor may have a better
    row_type: str = ROW_TYPES[0]  # of stored keys and values

    @classmethod
    def host(cls, name: str | None = None) -> Machine:
        """Return this processor, with its best instruction set or the one called `name`."""
        found = cls.offered()
        chosen = found[0] if name is None else _named(name, found)
        if _is_arm():
            return cls(4, NEON_OUTPUTS, instructions=chosen, is_forced=name is not None)
        outputs = AVX512_OUTPUTS if chosen.num_outputs == 16 else AVX2_OUTPUTS
        return cls(16, outputs, instructions=chosen, is_forced=name is not None)

    @classmethod
    def target(cls) -> Machine:
        """Return the machine that code is being generated for."""
        return _targets[-1] if _targets else cls.host()

    @contextmanager
    def as_target(self) -> Iterator[None]:
        """Make this machine the `target` inside the context; one thread at a time."""
        _targets.append(self)
        try:
            yield
        finally:
            _targets.pop()

    def with_activations(self, name: str | None) -> Machine:
        """Return a machine with these activations; None leaves them unchanged."""
        if name is None:
            return self
        require_known("activations", ACTIVATIONS, name)
        return replace(self, num_digits=ACTIVATIONS[name])

    def with_rows(self, row_type: str) -> Machine:
        """Return a machine whose keys and values are stored as `row_type`."""
        return replace(self, row_type=row_type)

    @property
    def digest(self) -> str:
        """A digest of lanes, tiles and digits: part of the file names of code that uses them."""
        products = replace(self, row_type=ROW_TYPES[0])
        return hashlib.sha256(repr(products).encode()).hexdigest()[:16]

    @staticmethod
    def offered() -> list[InstructionSet]:
        """Return the instruction sets of this processor, the best first."""
        known, features = (ARM, _arm_features()) if _is_arm() else (X86, _x86_features())
        return [each for each in known if features.issuperset(each.needs)]


_targets: list[Machine] = []


def _is_arm() -> bool:
    return bool(binding.get_process_triple().startswith(("aarch64", "arm64")))


def _named(name: str, found: list[InstructionSet]) -> InstructionSet:
    offered = ", ".join(each.name for each in found)
    if name == "amx":
        raise InvalidOption(
            f"no kernel uses AMX (docs/adr/018); choose one of {offered}, or none for the best."
        )
    require_known("instruction set", [each.name for each in (*X86, *ARM)], name)
    names = (name, "avxvnni") if name == "vnni" else (name,)
    for each in found:
        if each.name in names:
            return each
    raise InvalidOption(f"this processor does not have {name}; choose one of {offered}.")


def _x86_features() -> set[str]:
    """Return the processor's features, as Numba tells them to LLVM."""
    told = getattr(config, "CPU_FEATURES", None)
    if told is not None:
        return {each[1:] for each in told.split(",") if each.startswith("+")}
    if getattr(config, "CPU_NAME", None):
        return set()  # generic code
    return {name for name, is_there in binding.get_host_cpu_features().items() if is_there}


_LINUX_FEATURES: Final = {"asimddp": "dotprod", "i8mm": "i8mm"}


def _arm_features() -> set[str]:
    """Return the processor's features; none if Numba does not generate code for its true name."""
    name = binding.get_host_cpu_name()
    if getattr(config, "CPU_NAME", None) or name in ("", "generic"):
        return set()
    try:
        found = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return {"dotprod"} if name.startswith("apple") else set()
    return {feature for linux, feature in _LINUX_FEATURES.items() if linux in found}
