"""What code is generated for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llvmlite import binding
from numba.core import config

# The lanes are the same for AVX2 and AVX-512, and so are the bits.
AVX2_OUTPUTS: Final = (2, 1, 1, 1, 1, 1)  # 12 of 16 registers are sums at most
AVX512_OUTPUTS: Final = (4, 4, 2, 2, 2, 2, 2, 2)


@dataclass(frozen=True)
class Machine:
    """What code is generated for: a processor, and how exact it is to be."""

    num_lanes: int
    tile_outputs: tuple[int, ...]  # of tiles of 1, 2, 3 … rows; chosen so that sums fit registers
    num_digits: int = 0  # of an activation that meets packed weights; 0: a float

    @classmethod
    def host(cls) -> Machine:
        triple: str = binding.get_process_triple()
        if triple.startswith(("aarch64", "arm64")):
            return cls(4, (4, 4, 4, 4, 2, 2, 2, 2), 2 if _has_dot() else 0)
        wide = binding.get_host_cpu_features().get("avx512f", False)
        return cls(16, AVX512_OUTPUTS if wide else AVX2_OUTPUTS)


def _has_dot() -> bool:
    """Whether this ARM has SDOT, and the code generator was told its right name."""
    name = binding.get_host_cpu_name()
    if getattr(config, "CPU_NAME", None) or name in ("", "generic"):
        return False
    try:
        return "asimddp" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return bool(name.startswith("apple"))
