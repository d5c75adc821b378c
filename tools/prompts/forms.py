"""How people ask, and words to fill it with: of each kind a list, in forms.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

FORMS: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("forms.json").read_text("utf-8")
)
