"""One word per thing: names that were retired do not come back (docs/design.md has the words)."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

import forerun

ROOT = Path(forerun.__file__).parent

# Parts of names, and what to call the thing instead.
RETIRED = {
    "lookout": "looks",
    "company": "batch",
    "standing": "way",
    "narration": "event builder",
    "intake": "input processor",
    "tenant": "caller, cached request",
    "seat": "running request, row",
    "unseat": "release, evict",
    "errand": "deferred call",
    "foretold": "predicted",
    "circumstances": "record head",
    "conclusion": "outcome",
    "sweep": "fixed depths",
    "quads": "integer weights",
}
# Whole names whose parts are plain words.
RETIRED_NAMES = {"Ask", "Line", "Share", "Offer", "Turn", "kept_code"}
SOURCES = sorted(ROOT.rglob("*.py"))
# Pages hold rows and locks are held; guesses are accepted.
HELD = re.compile(r"\b(?:guess|guesses|nodes|what)(?: that)?(?: always)? (?:held|holds?)\b", re.I)


def parts(name: str) -> set[str]:
    """`max_num_seqs` and `MaxNumSeqs` have the same."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return {part.rstrip("s") for part in spaced.lower().split("_")} | set(spaced.lower().split("_"))


def names_in(text: str) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def retired_in(names: set[str]) -> set[str]:
    return {name for name in names if parts(name) & RETIRED.keys()} | (names & RETIRED_NAMES)


def test_retired_names_are_seen() -> None:
    assert retired_in({"num_seats", "Turn", "kept_code", "Lookout", "share", "line"}) == {
        "num_seats",
        "Turn",
        "kept_code",
        "Lookout",
    }


@pytest.mark.parametrize("room", sorted({path.parent for path in SOURCES}), ids=str)
def test_retired_names_stay_away(room: Path) -> None:
    for path in room.glob("*.py"):
        assert not retired_in(names_in(path.read_text("utf-8")) | {path.stem}), path


def test_guesses_are_accepted_wherever_a_user_reads_of_them() -> None:
    assert HELD.search("9 of 12 guesses held (75%)")
    top = ROOT.parents[1]
    read = [top / "README.md", *(top / "docs").glob("*.md"), *(top / "examples").rglob("*.*")]
    for path in (*read, *SOURCES):
        found = HELD.search(path.read_text("utf-8"))
        assert found is None, f"{path}: {found[0]}"


def test_no_room_is_crowded() -> None:
    rooms = {path.parent for path in SOURCES}
    crowded = {str(room): num for room in rooms if (num := len(list(room.glob("*.py")))) > 16}
    assert not crowded
