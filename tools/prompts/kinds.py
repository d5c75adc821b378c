"""Prompts by kind of use: forms that are filled with topics, texts and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tools.prompts.forms import FORMS
from tools.prompts.sources import Article, Sources
from tools.prompts.sums import word_problem

Turns = list[str]


@dataclass
class Questions:
    """Makes prompts of each kind; two calls give the same prompt only by chance."""

    sources: Sources
    rng: Random

    @property
    def kinds(self) -> dict[str, Callable[[], Turns]]:
        return {
            "chat": self.chat,
            "translation": self.translation,
            "summarization": self.summarization,
            "qa": self.qa,
            "maths": self.maths,
            "rag": self.rag,
            "code": self.code,
        }

    def chat(self) -> Turns:
        turns = [self._filled(self.rng.choice(FORMS["chat"]))]
        if self.rng.random() < 0.5:
            turns.append(self._filled(self.rng.choice(FORMS["then"])))
        return turns

    def code(self) -> Turns:
        one, other = self.rng.sample(FORMS["code_ideas"], 2)
        form = self._filled(self.rng.choice(FORMS["coding"]))
        return [form.replace("{x}", one).replace("{y}", other)]

    def translation(self) -> Turns:
        rng, sentence = self.rng, self.rng.choice(self.sources.german)
        if rng.random() < 0.4:
            sentence = rng.choice(FORMS["german_news"])
            for key, words in {
                "c": FORMS["cities"],
                "o": FORMS["organs"],
                "s": FORMS["stock"],
                "d": FORMS["german_days"],
                "n": self.sources.names,
                "z": range(11, 95),
            }.items():
                while f"{{{key}}}" in sentence:
                    sentence = sentence.replace(f"{{{key}}}", str(rng.choice(words)), 1)
        return [rng.choice(FORMS["translate"]).format(sentence)]

    def summarization(self) -> Turns:
        text = self._text(self.rng.choice((self.rng.randint(60, 300), self.rng.randint(60, 800))))
        return [self.rng.choice(FORMS["summarize"]).replace("{}", text)]

    def qa(self) -> Turns:
        rng = self.rng
        forms, kinds = rng.choice(
            (
                (FORMS["person"], ("18",)),
                (FORMS["place"], ("15",)),
                (FORMS["thing"], ("05", "06", "13", "20", "27", "10", "04", "26")),
            )
        )
        form = rng.choice(forms)
        while "{}" in form:
            form = form.replace("{}", self._noun(*kinds, named=forms is not FORMS["thing"]), 1)
        found = form.replace("{y}", str(rng.randint(1950, 2020)))
        return [found if rng.random() < 0.6 else found[0] + found[1:].lower()]

    def maths(self) -> Turns:
        return [word_problem(self.rng, self.sources.names)]

    def rag(self) -> Turns:
        """Return up to 500 words, in passages of 100, of one or two articles, and a question."""
        rng = self.rng
        articles = rng.sample(self._articles, rng.choice((1, 1, 2)))
        words: list[str] = []
        num_words = rng.choice((505, rng.randint(90, 400), rng.randint(90, 400)))
        while len(words) < num_words:
            words += self._cut(rng.choice(articles), 100).split()
        topic = articles[0].title.split(" (")[0] or "this"
        question = rng.choice(FORMS["of_passage"]).format(topic)
        if rng.random() < 0.5:
            question = question[0] + question[1:].lower()
        passages = " ".join(words[:num_words])
        return [
            rng.choice(FORMS["about_passages"]).replace("{q}", question).replace("{p}", passages)
        ]

    @property
    def _articles(self) -> list[Article]:
        return self.sources.encyclopedia

    def _text(self, num_words: int) -> str:
        """Return a text, four times in ten news; longer texts are several in a row."""
        rng, s = self.rng, self.sources
        pool = rng.choices((s.news, s.encyclopedia, s.speeches, s.handbook), (4, 4, 1, 1))[0]
        text = self._cut(rng.choice(pool), num_words)
        while len(text.split()) < min(num_words, 100):
            text += " " + self._cut(rng.choice(pool), num_words)
        return text

    def _cut(self, article: Article, num_words: int) -> str:
        """Return `num_words` words of an article, from the start of a random paragraph."""
        paragraphs = article.paragraphs or self._articles[0].paragraphs
        first = self.rng.randrange(len(paragraphs))
        return " ".join(" ".join(paragraphs[first : first + 12]).split()[:num_words])

    def _noun(self, *kinds: str, named: bool = False) -> str:
        """Return a name if `named`, else a common noun."""
        while True:
            found = self.rng.choice(self.sources.nouns[self.rng.choice(kinds)])
            if found[0].isupper() == named:
                return found

    def _filled(self, form: str) -> str:
        rng, s = self.rng, self.sources
        makers: dict[str, Callable[[], str]] = {
            **dict.fromkeys(
                "abc", lambda: self._noun("04", "06", "05", "07", "10", "13", "26", "09")
            ),
            **dict.fromkeys("nmo", lambda: rng.choice(s.names)),
            "w": lambda: self._noun("18"),
            "code": lambda: rng.choice(FORMS["code"]),
            "f": lambda: rng.choice(FORMS["fields"]),
            "lang": lambda: rng.choice(FORMS["languages"]),
            "data": lambda: rng.choice(FORMS["data"]),
            "do": lambda: rng.choice(FORMS["code_does"]),
            "task": lambda: rng.choice(FORMS["code_tasks"]),
            "thing": lambda: rng.choice(FORMS["code_things"]),
            "rows": lambda: rng.choice(FORMS["code_rows"]),
            "text": lambda: self._text(rng.randint(40, 160)),
            "v": lambda: rng.choice(FORMS["verbs"]),
            "place": lambda: self._noun("15", named=True),
            "place2": lambda: self._noun("15", named=True),
            "war": lambda: self._noun("04", named=True),
            "food": lambda: self._noun("13"),
            "food2": lambda: self._noun("13"),
            "sum": lambda: word_problem(rng, s.names),
        }
        for key, make in makers.items():
            if f"{{{key}}}" in form:
                form = form.replace(f"{{{key}}}", make())
        return form
