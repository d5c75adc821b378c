"""Make a model of the same shape and formats whose weights are a few blocks, repeated.

    python tools/models/repeated_weights.py model.gguf shape.gguf

It is as slow as the original model and compresses to some megabytes, so that kernels can be
measured on machines that the model cannot be copied to. Its output is nonsense.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGUFReader

_NUM_BLOCKS: Final = 4000  # of each packed format: the first ones of its first tensor


def main(model: str, target: str) -> None:
    shutil.copyfile(Path(model), Path(target))
    data = np.memmap(target, np.uint8, "r+")
    blocks: dict[str, npt.NDArray[np.uint8]] = {}
    for tensor in GGUFReader(target).tensors:
        name, first, size = tensor.tensor_type.name, int(tensor.data_offset), int(tensor.n_bytes)
        if name in ("F32", "F16", "BF16"):
            continue
        here = data[first : first + size]
        if name not in blocks:
            _block_len, block_bytes = GGML_QUANT_SIZES[tensor.tensor_type]
            blocks[name] = here[: _NUM_BLOCKS * block_bytes].copy()
        here[:] = np.resize(blocks[name], size)
    data.flush()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
