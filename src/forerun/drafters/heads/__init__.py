"""Drafters that were trained on what one target says, and look at its hidden states."""

from forerun.drafters.heads.block import Block
from forerun.drafters.heads.block_head import BlockHead
from forerun.drafters.heads.card import Card
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.eagle3 import Eagle3
from forerun.drafters.heads.eagle3_head import Eagle3Head
from forerun.drafters.heads.folder import HeadFolder, export_head, save_head
from forerun.drafters.heads.medusa import Medusa, MedusaHeads
from forerun.drafters.heads.shipped import model_fingerprint, shipped_heads

__all__ = [
    "Block",
    "BlockHead",
    "Card",
    "Eagle3",
    "Eagle3Head",
    "HeadConfig",
    "HeadFolder",
    "Medusa",
    "MedusaHeads",
    "export_head",
    "model_fingerprint",
    "save_head",
    "shipped_heads",
]
