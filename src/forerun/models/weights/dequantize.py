"""Expand packed weights to float32 in numpy, bit for bit as llama.cpp's reference does."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import UnsupportedModel
from forerun.models.weights.formats import FORMATS

Floats = npt.NDArray[np.float32]

_FLOATS: Final[dict[str, Any]] = {"F32": np.float32, "F16": np.float16}


def dequantize(data: npt.NDArray[np.uint8], weight_format: str) -> Floats:
    """Expand uint8 [rows, bytes per row] to float32 [rows, row_len]."""
    rows = np.ascontiguousarray(data)
    if weight_format in _FLOATS:
        floats: Floats = rows.view(_FLOATS[weight_format]).astype(np.float32)
        return floats
    if weight_format == "BF16":
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return _by_library(rows, weight_format)


def _by_library(rows: npt.NDArray[np.uint8], weight_format: str) -> Floats:
    """Expand by the gguf library, imported late: kernels mostly multiply packed blocks."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as expand

    try:
        expanded: Floats = expand(rows, GGMLQuantizationType(FORMATS[weight_format].gguf_id))
    except NotImplementedError:
        raise UnsupportedModel(
            f"weights of format {weight_format} cannot be expanded; "
            "use a file in another quantisation, such as Q4_K_M or Q8_0."
        ) from None
    return expanded
