"""Products fused with what follows them: a row's bits do not depend on how many rows there are."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import AttentionShape, Norm, Plan
from forerun.types import Span, Tree
from tests.contracts.kernel_sets import CUDA_PACKED, CUDA_SETS
from tests.contracts.test_kernel_attention import Scattered
from tests.kernels.sources import F32, ArraySource, normal

pytestmark = pytest.mark.gpu

NUM_ROWS = (*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 256)
NUM_COMPARED = 65
# [E, F, heads, key/value heads, head_dim]: SmolLM2, Llama-3.2-1B and -3B, and odd ones.
SHAPES = (
    (576, 1536, 9, 3, 64),
    (2048, 8192, 32, 8, 64),
    (3072, 8192, 24, 8, 128),
    (48, 80, 6, 2, 8),
    (37, 53, 5, 1, 6),
)
IN_STEPS = (576, 1728, 9, 3, 64)  # no multiple of 128: as a head that fuses states of SmolLM2
WITHOUT_SEGMENTS = ((1056, 1088, 11, 1, 96), (1060, 1092, 3, 1, 20))  # in float32 alone


# Every kernel, shape and number of rows is compiled, so float32 is tested where it is small.
CASES = (
    *(("cuda-bfloat16", shape) for shape in SHAPES),
    *(("cuda-float32", shape) for shape in SHAPES if shape[0] < 1024),
    *(("cuda-float32", shape) for shape in WITHOUT_SEGMENTS),
    *(("cuda-float16", shape) for shape in (*SHAPES[:1], IN_STEPS)),
    ("cuda-bfloat16", IN_STEPS),
    *(("cuda-float16-int8", shape) for shape in SHAPES if shape[0] % 32 == 0),
    *(("cuda-int8", shape) for shape in SHAPES[:1]),
)


def weights(*shape: int) -> F32:
    scaled: F32 = normal(sum(shape), *shape) / np.sqrt(np.float32(shape[-1]))
    return scaled


@pytest.mark.parametrize(("kernel_set", "shape"), CASES, ids=str)
def test_a_row_is_the_same_in_any_batch(kernel_set: str, shape: tuple[int, ...]) -> None:
    ks = (CUDA_SETS | CUDA_PACKED)[kernel_set]()
    width, inner, *heads = shape
    attention, k = AttentionShape(*heads), ks.kernels
    qkv_len = attention.q_len + 2 * attention.kv_len
    arrays: dict[str, F32] = {
        "gate_up": weights(2 * inner, width),
        "down": weights(width, inner),
        "qkv": weights(qkv_len, width),
        "out": weights(width, attention.q_len),
        "norm": np.float32(1) + normal(3, width),
    }
    source = ArraySource(arrays)
    names = ("gate_up", "down", "qkv", "out")
    gate_up, down, qkv, out = (k.load_matrix(source, [name]) for name in names)
    norm = Norm(k.load_vector(source, "norm"), 1e-5)
    x = normal(1, max(NUM_ROWS), width)

    def layer(rows: F32, first: int) -> tuple[F32, ...]:
        """Run a layer's norms and products, and return the result of each."""
        span = Span(first, (0,) * len(rows), Tree.chain(len(rows)), ())
        plan = Plan.build([(span, Scattered(first + len(rows), 1))])
        inv_freq = 10000.0 ** (-np.arange(attention.head_dim // 2) / attention.head_dim)
        batch = k.begin(plan, attention, inv_freq)
        store = k.new_store(attention, 1, first + len(rows))
        stream, h = k.add_norm(ks.put(rows), None, norm)
        turned = k.rope_write(k.linear(h, qkv), batch, store, 0)
        q = ks.get(turned)
        stored = ks.get(type(stream)(store.rows[:, 0, :-1].flatten(2).transpose(0, 1).flatten(1)))
        stream, h = k.add_norm(stream, k.linear(turned, out), norm)
        inner_rows = k.silu_mul(k.linear(h, gate_up))
        total, after = k.add_norm(stream, k.linear(inner_rows, down), norm)
        plain, long = ks.get(k.linear(after, gate_up)), ks.get(k.linear(inner_rows, down))
        found = (stored[plan.write_slots], ks.get(inner_rows), ks.get(total), ks.get(after))
        return q, *found, plain, long

    alone = [layer(x[t : t + 1], t) for t in range(NUM_COMPARED)]
    for num_rows in NUM_ROWS:
        together = layer(x[:num_rows], 0)
        for part, name in enumerate(("q", "kv", "inner", "stream", "normed", "plain", "long")):
            expected = np.concatenate([row[part] for row in alone[:num_rows]])
            assert np.array_equal(together[part][:NUM_COMPARED], expected), (name, num_rows)
