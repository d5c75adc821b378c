"""Every format of weights that is read as it is."""

from __future__ import annotations

from typing import Final

from forerun.kernels.cpu.products.decoders import BLOCK_DECODERS, FLOAT_DECODERS, Decoder
from forerun.kernels.cpu.products.k_decoders import K_DECODERS

DECODERS: Final[dict[str, Decoder]] = {**FLOAT_DECODERS, **BLOCK_DECODERS, **K_DECODERS}
