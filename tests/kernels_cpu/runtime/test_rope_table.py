"""cos and sin of positions, computed ahead of use."""

from __future__ import annotations

import numpy as np

from forerun.kernels.cpu.runtime.batch import RopeTable


def test_a_position_has_the_same_bits_in_whatever_order_they_are_asked_for() -> None:
    inv_freq = 10000.0 ** -(np.arange(32) / 32)
    forwards, alone = RopeTable(inv_freq), RopeTable(inv_freq)
    for position in range(70):
        forwards.rotations([position])
    alone.rotations([600])  # of a table that is large enough
    for position in reversed(range(70)):
        alone.rotations([position])
    for position in range(70):
        angles = position * inv_freq
        expected = np.array([np.cos(angles), np.sin(angles)], np.float32)
        for table in (forwards, alone):
            rows, addresses = table.rotations([position])
            at = (addresses[0] - rows.ctypes.data) // rows.strides[0]
            np.testing.assert_array_equal(rows[at], expected)
