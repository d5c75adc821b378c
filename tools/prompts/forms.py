"""The lists of forms.json: forms of prompts by kind, and words to fill them with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

FORMS: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("forms.json").read_text("utf-8")
)
