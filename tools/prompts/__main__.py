"""Write prompts as JSON lines with `turns`, the kinds in turn, without duplicates.

python -m tools.prompts --sources FOLDER --out prompts.jsonl --num 24000
forerun train --prompts prompts.jsonl …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random

from tools.prompts.kinds import Questions
from tools.prompts.sources import Sources, fetch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="packages; fetched if missing")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--num", type=int, default=24000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if not args.sources.exists():
        fetch(args.sources)
    kinds = Questions(Sources(args.sources), Random(args.seed)).kinds
    found: dict[str, str] = {}
    while len(found) < args.num:
        for kind, make in kinds.items():
            line = json.dumps({"category": kind, "turns": make()}, ensure_ascii=False)
            found.setdefault(line.lower(), line)
    args.out.write_text("\n".join(list(found.values())[: args.num]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
