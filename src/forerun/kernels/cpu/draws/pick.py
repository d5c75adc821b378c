"""A drafter's guess, made where its logits are.

Only a guess: what the target says decides, so nothing here must equal `sampling` bit for bit.
"""

from __future__ import annotations

from numba import float32, float64, uint64

from forerun.kernels.cpu.codegen.native import doubles, floats, int_at, ints, leading_zeros
from forerun.kernels.cpu.codegen.scalar import exp32
from forerun.kernels.cpu.codegen.step import arg
from forerun.kernels.cpu.draws.gumbel import MOST, gumbel_noise
from forerun.kernels.cpu.draws.noise_words import first_word

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

# A token this far below the best wins once in 10^7 draws, and weighs as little in a sum.
_FAR = 16.0


def pick(step, _chunk, _scratch):
    """The id of the best logit, under noise at a temperature above 0, its probability, and where
    it stands among the ids."""
    logits, ids, num = floats(arg(step, 0)), ints(arg(step, 1)), arg(step, 2)
    temperature, key = doubles(arg(step, 3))[0], int_at(arg(step, 3), 1)
    position = int_at(arg(step, 3), 2) + arg(step, 4)
    best, top = 0, logits[0]
    for i in range(1, num):
        if logits[i] > top:
            best, top = i, logits[i]
    total = float32(0)
    for i in range(num):
        if logits[i] > top - float32(_FAR):
            total += exp32(logits[i] - top)
    if temperature > 0:
        inverse = 1 / temperature
        most = float64(top) * inverse + gumbel_noise(key, position, ids[best])
        for i in range(num):
            value = float64(logits[i]) * inverse
            if value + _FAR >= most:
                zeros = leading_zeros(uint64(first_word(key, position, ids[i]))) - 32
                if value + MOST[zeros] >= most:
                    noisy = value + gumbel_noise(key, position, ids[i])
                    if noisy > most:
                        best, most = i, noisy
    picked = floats(arg(step, 6))
    picked[0], picked[1] = float32(ids[best]), exp32(logits[best] - top) / total
    picked[2] = float32(best)
    if arg(step, 5) != 0:
        ints(arg(step, 5))[0] = ids[best]
