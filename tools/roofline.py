"""When a pass is memory-bound: arithmetic intensity and the weight-streaming floor.

Only weights count: KV reads, activations and launches come on top. So these are lower bounds to
compare measurements with, not forecasts.
"""

from __future__ import annotations

from forerun.theory.ranges import check_count, check_positive


def arithmetic_intensity(num_tokens: int, bytes_per_weight: float) -> float:
    """Return operations per byte of weights: each weight serves one multiply-add per token."""
    operations_per_weight = 2 * check_count(num_tokens, "the number of tokens")
    return operations_per_weight / check_positive(bytes_per_weight, "bytes per weight")


def weight_read_seconds(weight_bytes: float, bytes_per_second: float) -> float:
    """Return the least time of a pass that reads every weight once."""
    size = check_positive(weight_bytes, "the weights' size")
    return size / check_positive(bytes_per_second, "the memory bandwidth")


def free_tokens(
    operations_per_second: float, bytes_per_second: float, bytes_per_weight: float
) -> float:
    """Return how many tokens a pass can have before arithmetic takes longer than the weights."""
    operations = check_positive(operations_per_second, "the arithmetic rate")
    bandwidth = check_positive(bytes_per_second, "the memory bandwidth")
    return operations / bandwidth / arithmetic_intensity(1, bytes_per_weight)
