"""Attention writes its output as the digits that the next product reads."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import AttentionShape, Plan
from forerun.kernels.cpu import CpuKernels
from forerun.types import Span, Tree
from tests.contracts.kernel_sets import CACHE_DIR
from tests.contracts.test_kernel_attention import Scattered
from tests.kernels.sources import normal
from tests.kernels_cpu.packed import PackedSource, packed


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("num_tokens", [1, 5, 16, 40])
@pytest.mark.parametrize("heads", [(9, 3, 64), (4, 2, 48), (50, 2, 32)], ids=str)
def test_they_are_those_of_its_rows(
    heads: tuple[int, int, int], num_tokens: int, activations: str
) -> None:
    """A product of them equals one of the rows; also for heads that are no whole blocks (which get
    no digits), and for more heads than attention takes at once."""
    k, shape = CpuKernels(activations=activations, cache_dir=CACHE_DIR), AttentionShape(*heads)
    matrix = k.load_matrix(PackedSource("Q8_0", packed("Q8_0", 32, shape.q_len, seed=1)), ["w"])
    qkv = normal(2, num_tokens, shape.q_len + 2 * shape.kv_len)
    span = Span(0, (0,) * num_tokens, Tree.chain(num_tokens), ())
    plan = Plan.build([(span, Scattered(num_tokens, seed=3))])
    batch, store = k.begin(plan, shape, np.zeros(shape.head_dim // 2)), k.new_store(shape, 1, 40)
    mixed = k.attend(k.rope_write(k.rows(qkv), batch, store, 0), batch, store, 0)
    assert (mixed.digits is None) == (shape.head_dim % 32 != 0)
    got = np.asarray(k.linear(mixed, matrix))
    np.testing.assert_array_equal(got, np.asarray(k.linear(k.rows(np.asarray(mixed)), matrix)))
