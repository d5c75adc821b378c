"""Compare a small model's logits on the device with the reference kernels' in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from forerun.bench.gpu.synthetic import SyntheticCheckpoint
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.config import ModelConfig
from forerun.models.llama import LlamaModel
from forerun.types import Span

if TYPE_CHECKING:
    from forerun.kernels import Kernels
    from forerun.kernels.cuda import CudaKernels

PLACES: Final = (1, 130, 257, 1024, 2048)  # lengths of a text after which logits are compared
_CONFIG: Final = ModelConfig(
    "llama",
    vocab_size=512,
    hidden_size=256,
    intermediate_size=512,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_dim=64,
    max_len=max(PLACES),
)
_CHUNK_LEN: Final = 256
# ‖found − exact‖ / ‖exact‖ of a row; of it, packed weights alone cause up to 0.026.
_BOUNDS: Final = {"bfloat16": 0.03, "float16": 0.004, "float32": 3e-5}
_FOR_PACKING: Final = 0.04


def measure_numerics(kernels: CudaKernels) -> dict[str, Any]:
    """Return the relative errors against the reference kernels, which pack nothing."""
    checkpoint = SyntheticCheckpoint(_CONFIG, added=1.0)
    tokens = np.random.default_rng(7).integers(0, _CONFIG.vocab_size, max(PLACES)).tolist()
    exact, found = (_logits(checkpoint, ks, tokens) for ks in (ReferenceKernels(), kernels))
    errors = np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)
    bound = _BOUNDS[str(kernels.dtype).removeprefix("torch.")]
    if kernels.weight_size < 2:  # bytes
        bound += _FOR_PACKING
    return {
        "places": list(PLACES),
        "errors": errors.tolist(),
        "bound": bound,
        "is_near": bool(errors.max() < bound),
    }


def _logits(
    checkpoint: SyntheticCheckpoint, kernels: Kernels, tokens: list[int]
) -> npt.NDArray[np.float32]:
    """Return the logits at each of `PLACES`."""
    model = LlamaModel.load(checkpoint, kernels)
    cache = model.new_cache(-(-len(tokens) // 16), 16)
    table = cache.new_table()
    rows = []
    for first in range(0, len(tokens), _CHUNK_LEN):
        chunk = tokens[first : first + _CHUNK_LEN]
        span = Span.all_wanted(table.reserve(len(chunk)), chunk)
        rows.append(model.forward(Plan.build([(span, table)]), cache))
    found: npt.NDArray[np.float32] = np.concatenate(rows)[np.array(PLACES) - 1]
    return found
