"""Write the tables of README.md and docs/measured.md from records: python tools/figures/pages.py

A table stands between `<!-- figures: NAME -->` and `<!-- end of figures -->`; the text around it is
written by hand. A test compares the committed pages with this tool's output, so that no table is
older than its records.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tables import table

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "measured.md")
_END: Final = "<!-- end of figures -->"
_BLOCK: Final = re.compile(rf"(<!-- figures: (.+?) -->)\n.*?{_END}", re.DOTALL)


def written(page: Path) -> str:
    """Return the page with its tables made from the records."""

    def block(found: re.Match[str]) -> str:
        lines = "\n".join(table(found[2])).strip("\n")
        return f"{found[1]}\n\n{lines}\n\n{_END}"

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page), encoding="utf-8")
        print(f"wrote {page.relative_to(ROOT)}")
