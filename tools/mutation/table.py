"""The page docs/mutants.md: which mistakes the tests catch."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

LEAST_SHARE: Final = 0.95

_HEAD: Final = """\
# Mistakes, planted

A test that nobody has seen fail proves nothing. `tools/mutants.py` plants mistakes in a copy of
the tree, one at a time, and runs the tests that should see them:

    .venv/bin/python tools/mutants.py                      # what is new since the record
    .venv/bin/python tools/mutants.py --planted            # only those planted by hand
    .venv/bin/python tools/mutants.py --only src/forerun/verify --sample 1000
    .venv/bin/python tools/mutants.py --again survivors    # after writing a test

- The tool imports numpy, numba and pytest once and forks for every mutant. It never edits the
  checkout.
- An interrupted run resumes where it stopped: `tools/mutation/record.json` keeps each result until
  the file that it is about changes.
- The table at the top of the tool says which files are mutated, and which tests run for each.
- Mistakes planted by hand are data: `tools/mutation/planted.json`.
- Imports, types, the texts of errors, and `strict=` of `zip` are not mutated.

The tool writes this page.

"""


def written_table(
    record: dict[str, Any], reasons: list[dict[str, str]], num_possible: int, seed: int
) -> tuple[str, bool]:
    """Return the page, and whether enough mutants die and all survivors are explained."""
    by_hand = [one for one in record.values() if one["operator"] == "planted"]
    mutants = [one for one in record.values() if one["operator"] != "planted"]
    page = _HEAD + "## What was seen\n\n" + _summary(by_hand, mutants, num_possible, seed)
    page += "## Planted by hand\n\n| mistake | seen by |\n|---|---|\n"
    alive = [one for one in mutants if not one["killer"]]
    lines, num_open = [], 0
    for one in by_hand:
        seen, note = one["killer"] and f"`{_short(one['killer'])}`", _reason(one, reasons)
        num_open += not (seen or note)
        told = "; ".join(word for word in (seen, note) if word)
        page += f"| {one['name']} | {told or '**nothing, and not explained**'} |\n"
    for one in alive:
        why = _reason(one, reasons)
        num_open += why is None
        lines.append(
            f"| `{_place(one)}` `{_cell(one['code'])}` | {one['operator']}: "
            f"`{_cell(one['new'])}` | {why or '**not explained**'} |\n"
        )
    page += "\n## Survivors of the sample, one by one\n\n"
    page += "| where | mistake | why nobody sees it |\n|---|---|---|\n" + "".join(lines)
    share = 1 - len(alive) / max(1, len(mutants))
    return page, share >= LEAST_SHARE and num_open == 0


def _summary(
    by_hand: list[dict[str, Any]], mutants: list[dict[str, Any]], num_possible: int, seed: int
) -> str:
    num_seen = sum(bool(one["killer"]) for one in mutants)
    num_late = sum(one["killer"] == "time limit" for one in mutants)
    num_by_hand = sum(bool(one["killer"]) for one in by_hand)
    text = (
        f"{num_by_hand} of {len(by_hand)} mistakes planted by hand, and "
        f"{num_seen} of {len(mutants)} mutants ({num_seen / max(1, len(mutants)):.1%}; "
        f"{num_late} of them by the time limit), a sample with seed {seed} of the "
        f"{num_possible} that the operators make.\n\n| file | mutants | seen |\n|---|---|---|\n"
    )
    totals = Counter(one["path"] for one in mutants)
    seen = Counter(one["path"] for one in mutants if one["killer"])
    for path in sorted(totals):
        text += f"| `{path.removeprefix('src/forerun/')}` | {totals[path]} | {seen[path]} |\n"
    return text + "\n"


def _reason(one: dict[str, Any], reasons: list[dict[str, str]]) -> str | None:
    """Return the reason for a survivor, found by its code and not by its line."""
    for reason in reasons:
        if one["operator"] == "planted":
            if reason.get("name") == one["name"]:
                return reason["why"]
        elif reason.get("code") == one["code"] and reason.get("new") == one["new"]:
            return reason["why"]
    return None


def _short(killer: str) -> str:
    return killer.split("[")[0].removeprefix("tests/")


def _place(one: dict[str, Any]) -> str:
    return f"{one['path'].removeprefix('src/forerun/')}:{one['line']}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
