"""What code is generated for."""

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

# The lanes are the same for AVX2 and AVX-512, and so are the bits.
AVX2_OUTPUTS: Final = (2, 1, 1, 1, 1, 1)  # 12 of 16 registers are sums at most
AVX512_OUTPUTS: Final = (4, 4, 4, 4, 4, 4, 3, 3)  # 24 of 32
NEON_OUTPUTS: Final = (4, 4, 4, 4, 2, 2, 2, 2)
ACTIVATIONS: Final = {"int8": 1, "int16": 2}  # how many digits
ROW_TYPES: Final = ("float32", "float16")


@dataclass(frozen=True)
class InstructionSet:
    """How integers are multiplied, and what LLVM must know to generate code for it."""

    name: str
    num_outputs: int  # of a tile of integer products: as many int32 as a vector has
    max_rows: tuple[int, int]  # of such a tile, with one digit and with two
    needs: tuple[str, ...]  # features, by LLVM's names
    processor: str | None = None  # that has these and no more, to generate code for
    has_wide_tile: bool = False  # of 16 rows and one digit, some of their floats in memory
    is_signed: bool = False  # weights that it multiplies, and not digits alone
    more: str = ""  # features that all kernels need, and that `processor` lacks

    @property
    def is_slow(self) -> bool:
        """Whether there is nothing special in it."""
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
    """A processor, and how exact products are to be."""

    num_lanes: int
    tile_outputs: tuple[int, ...]  # of tiles of 1, 2, 3 … rows; chosen so that sums fit registers
    num_digits: int = 1  # of an activation that meets packed weights
    instructions: InstructionSet = X86[-1]
    is_forced: bool = False  # whether the processor may have more
    row_type: str = ROW_TYPES[0]  # of keys and values that are stored

    @classmethod
    def host(cls, name: str | None = None) -> Machine:
        """The best instruction set of this processor, or the one that is asked for."""
        found = cls.offered()
        chosen = found[0] if name is None else _named(name, found)
        if _is_arm():
            return cls(4, NEON_OUTPUTS, instructions=chosen, is_forced=name is not None)
        outputs = AVX512_OUTPUTS if chosen.num_outputs == 16 else AVX2_OUTPUTS
        return cls(16, outputs, instructions=chosen, is_forced=name is not None)

    @classmethod
    def target(cls) -> Machine:
        """What code is being generated for."""
        return _targets[-1] if _targets else cls.host()

    @contextmanager
    def as_target(self) -> Iterator[None]:
        """Inside, code is generated for it; one thread at a time."""
        _targets.append(self)
        try:
            yield
        finally:
            _targets.pop()

    def with_activations(self, name: str | None) -> Machine:
        """As they are asked for; None: as they are."""
        if name is None:
            return self
        require_known("activations", ACTIVATIONS, name)
        return replace(self, num_digits=ACTIVATIONS[name])

    def with_rows(self, row_type: str) -> Machine:
        """Keys and values stored as numbers of a type."""
        return replace(self, row_type=row_type)

    @property
    def digest(self) -> str:
        """In the names of files with code that was generated for these lanes, tiles and digits."""
        products = replace(self, row_type=ROW_TYPES[0])
        return hashlib.sha256(repr(products).encode()).hexdigest()[:16]

    @staticmethod
    def offered() -> list[InstructionSet]:
        """What this processor has, the best first."""
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
    """As the code generator is told them."""
    told = getattr(config, "CPU_FEATURES", None)
    if told is not None:
        return {each[1:] for each in told.split(",") if each.startswith("+")}
    if getattr(config, "CPU_NAME", None):
        return set()  # generic code
    return {name for name, is_there in binding.get_host_cpu_features().items() if is_there}


_LINUX_FEATURES: Final = {"asimddp": "dotprod", "i8mm": "i8mm"}


def _arm_features() -> set[str]:
    """Where the code generator was told the processor's right name."""
    name = binding.get_host_cpu_name()
    if getattr(config, "CPU_NAME", None) or name in ("", "generic"):
        return set()
    try:
        found = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return {"dotprod"} if name.startswith("apple") else set()
    return {feature for linux, feature in _LINUX_FEATURES.items() if linux in found}
