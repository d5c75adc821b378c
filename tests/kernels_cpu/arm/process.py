"""Print the digests of models as ARM computes them.

    python -m tests.kernels_cpu.arm.process dotprod "family llama2" …      prints them as JSON

This needs a process of its own: Numba is made to generate code for ARM, which runs in an emulator.
All else is what users run, including how code is kept on disk and loaded into memory.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

from llvmlite import binding

from tests.kernels_cpu.arm.emulator import TRIPLE, Emulator

_FEATURES: Final = {"i8mm": {"dotprod", "i8mm"}, "dotprod": {"dotprod"}, "neon": set[str]()}


def become_arm(instruction_set: str) -> None:
    """Make Numba generate code for ARM; call this before it is imported."""
    features = _FEATURES[instruction_set]
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.get_process_triple = lambda: TRIPLE
    os.environ["NUMBA_CPU_NAME"] = "generic"
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{each}" for each in sorted(features))

    from forerun.kernels.cpu import library
    from forerun.kernels.cpu.codegen import compiled, machine

    emulator = Emulator()

    class Emulated(compiled.Compiled):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            address = self.address
            vars(self)["call"] = lambda *values: emulator.call(address, *values)

    vars(library)["Compiled"] = Emulated
    vars(machine)["_arm_features"] = lambda: features


def main(instruction_set: str, names: list[str]) -> None:
    become_arm(instruction_set)
    from tests.kernels_cpu.digests import cases, smollm2_cases

    computed = dict(cases(num_threads=1))  # an emulator runs one
    if not computed.keys() >= set(names):
        computed |= dict(smollm2_cases())
    print(json.dumps({name: computed[name](None) for name in names}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
