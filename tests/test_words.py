"""One word per thing: retired names do not come back (docs/design.md lists the words in use)."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import forerun

ROOT = Path(forerun.__file__).parent

# Retired parts of names, and what to use instead.
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
# Retired as whole names only: their parts are ordinary words.
RETIRED_NAMES = {"Ask", "Line", "Share", "Offer", "Turn", "kept_code"}
RETIRED_WORDS = re.compile(rf"\b(?:{'|'.join(RETIRED)})s?\b", re.I)
MAYBE_RETIRED = re.compile(rf"(?i:{'|'.join(RETIRED)})|\b(?:{'|'.join(RETIRED_NAMES)})\b")
TOP = ROOT.parents[1]
SOURCES = sorted(ROOT.rglob("*.py"))
BESIDE = [path for room in ("tests", "tools") for path in sorted((TOP / room).rglob("*.py"))]
READ = [TOP / "README.md", *(TOP / "docs").glob("*.md"), *(TOP / "examples").rglob("*.*")]
# "Hold" is for pages and locks; guesses are "accepted".
HELD = re.compile(r"\b(?:guess|guesses|nodes|what)(?: that)?(?: always)? (?:held|holds?)\b", re.I)


def parts(name: str) -> set[str]:
    """Split a snake_case or CamelCase name into lower-case words, as written and in singular."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return {part.rstrip("s") for part in spaced.lower().split("_")} | set(spaced.lower().split("_"))


def names_in(text: str) -> set[str]:
    """Return the names in this text, or none if it has no retired part: tokenizing is slow."""
    if not MAYBE_RETIRED.search(text):
        return set()
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


def test_retired_names_stay_away() -> None:
    assert retired_in(names_in("num_seats = 1  # Turn")) == {"num_seats"}
    for path in (*SOURCES, *BESIDE):
        assert not retired_in(names_in(path.read_text("utf-8")) | {path.stem}), path


def test_retired_words_are_not_written_either() -> None:
    """Not in comments, help texts or documents either; ADRs are history and may."""
    assert RETIRED_WORDS.search("Requests at once, and seats.")
    for path in {*READ, *SOURCES, *BESIDE} - {Path(__file__)}:
        found = RETIRED_WORDS.search(path.read_text("utf-8"))
        assert found is None, f"{path}: {found[0]}"


def test_guesses_are_accepted_wherever_a_user_reads_of_them() -> None:
    assert HELD.search("9 of 12 guesses held (75%)")
    for path in (*READ, *SOURCES):
        found = HELD.search(" ".join(path.read_text("utf-8").split()))
        assert found is None, f"{path}: {found[0]}"


def test_no_folder_is_crowded() -> None:
    """At most 16 files per folder of the package, the tests and the tools; caches do not count."""
    left = {"__pycache__", ".DS_Store"}
    for top in (ROOT, TOP / "tests", TOP / "tools"):
        for folder in (top, *(path for path in top.rglob("*") if path.is_dir())):
            files = [p for p in folder.iterdir() if p.is_file() and p.name not in left]
            assert folder.name in left or len(files) <= 16, (folder, len(files))


def test_the_structure_names_what_is_there() -> None:
    """Every `Class.method` and `module.function` that docs/structure.md names exists."""
    known = set[str]()
    for path in SOURCES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                known.add(f"{path.stem}.{node.name}")
            elif isinstance(node, ast.ClassDef):
                known |= {f"{node.name}.{getattr(each, 'name', '')}" for each in node.body}
    page = (TOP / "docs" / "structure.md").read_text("utf-8")
    named = set(re.findall(r"`((?:step|[A-Z]\w*)\.[a-z]\w*)(?:\(\))?`", page))
    assert len(named) > 15
    assert named <= known
