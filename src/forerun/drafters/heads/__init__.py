"""Drafters that were trained on what one target says, and look at its hidden states."""

from forerun.drafters.heads.eagle3 import Eagle3
from forerun.drafters.heads.folder import HeadConfig, HeadFolder, save_head

__all__ = ["Eagle3", "HeadConfig", "HeadFolder", "save_head"]
