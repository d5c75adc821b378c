"""Trained heads: drafters trained for one target, most of which read its hidden states."""

from forerun.drafters.heads.card import Card
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.fed_back import FedBack
from forerun.drafters.heads.folder import HeadFolder, export_head, save_head
from forerun.drafters.heads.kinds.block import Block
from forerun.drafters.heads.kinds.block_head import BlockHead
from forerun.drafters.heads.kinds.blockwise import BlockwiseHeads
from forerun.drafters.heads.kinds.eagle3_head import Eagle3Head
from forerun.drafters.heads.kinds.look_ahead import LookAhead
from forerun.drafters.heads.kinds.medusa import MedusaHeads
from forerun.drafters.heads.kinds.mtp import MtpHead
from forerun.drafters.heads.kinds.registry import HEAD_KINDS, build_head
from forerun.drafters.heads.last_hidden import LastHidden
from forerun.drafters.heads.shipped import model_fingerprint, shipped_heads

__all__ = [
    "HEAD_KINDS",
    "Block",
    "BlockHead",
    "BlockwiseHeads",
    "Card",
    "Eagle3Head",
    "FedBack",
    "HeadConfig",
    "HeadFolder",
    "LastHidden",
    "LookAhead",
    "MedusaHeads",
    "MtpHead",
    "build_head",
    "export_head",
    "model_fingerprint",
    "save_head",
    "shipped_heads",
]
