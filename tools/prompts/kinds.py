"""How people ask: for each kind of use, forms that are filled with topics, texts and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tools.prompts.sources import Article, Sources
from tools.prompts.sums import word_problem

Turns = list[str]

_TRANSLATE: Final = (
    "Translate German to English: {}", "Translate German to English: {}", "Translate German to English: {}",
    "Translate the following German sentence into English: {}", "Please translate this into English: {}",
    "What does this mean in English? {}", "{}\n\nTranslate this text to English.", "German: {}\nEnglish:",
)  # fmt: skip
_SUMMARIZE: Final = (
    "Summarize: {}", "Summarize: {}", "Summarize: {}", "Summarize the following article:\n\n{}",
    "{}\n\nTL;DR:", "Give a short summary of this text.\n\n{}", "What is this text about? {}",
    "Write one paragraph that sums up the article below.\n\n{}", "{}\n\nList the main points of this text.",
)  # fmt: skip
_ABOUT_PASSAGES: Final = (
    "{p}\n{q}", "{p}\n{q}", "{p}\n{q}", "{p}\n\nQuestion: {q}\nAnswer:",
    "Answer the question with the passages below.\n\n{p}\n\nQuestion: {q}", "Context: {p}\n\n{q}",
)  # fmt: skip
_OF_PASSAGE: Final = (
    "What is {}?", "Who was {}?", "What is the history of {}?", "Why is {} important?", "When did {} begin?",
    "Describe {} in a few sentences.", "What are the different kinds of {}?", "Where is {} found?",
    "How does {} work?", "What is the most important fact about {}?", "How many are there of {}?",
    "What is the origin of the word {}?", "What do critics say about {}?", "Who discovered {}?",
)  # fmt: skip
_PERSON: Final = (
    "Who was {}?", "When was {} born?", "Where was {} born?", "What is {} famous for?", "When did {} die?",
    "What did {} discover or create?", "Which country did {} come from?", "Who was married to {}?",
    "How did {} become famous?", "What was the first book of {}?", "Who played {} in the movie?",
)  # fmt: skip
_PLACE: Final = (
    "Where is {}?", "What is the capital of {}?", "What is the population of {}?", "Who was the first ruler of {}?",
    "What language is spoken in {}?", "When was {} founded?", "What is {} known for?",
    "How far is {} from London?", "What is the weather like in {}?", "Who owns the land around {}?",
)  # fmt: skip
_THING: Final = (
    "What is {}?", "What is the difference between {} and {}?", "Who invented the {}?", "What is a {} used for?",
    "Where does the word {} come from?", "How long does a {} last?", "What are the side effects of {}?",
    "When was the first {} made?", "How many kinds of {} are there?", "What is the meaning of {} in law?",
    "What is another word for {}?", "Where does {} take place in the body?", "Who sings the song {}?",
    "When does the new season of {} come out?", "Which part of the {} is the largest?", "Why do people like {}?",
    "Who wrote the book {}?", "What year did the movie {} come out?", "Where was the film {} made?",
    "What is the name of the {} in the story?", "Who won the prize for {} in {y}?", "How do you make {}?",
)  # fmt: skip
_CHAT: Final = (
    "Write a blog post about {a}, with a few tips and a clear ending.",
    "Draft a polite email to a colleague about {a} and ask for {b}.",
    "Imagine you are writing a short story about {a} and {b}. Begin with a surprising sentence.",
    "Describe {a} so that a reader can see it. Use fewer than two paragraphs.",
    "Write a persuasive letter to a friend who is afraid of {a}.",
    "Write a poem about {a} in which {b} plays a part.",
    "Write the plot of a movie in three parts about {a}.",
    "Propose four titles for an article on {a} and {b}.",
    "Pretend to be a {w} and explain {a} to me.",
    "You are a {w} in a small town. Stay in this role. How would you talk about {a}?",
    "Act as a {w} and answer my questions about {a}. What should I know first?",
    "Suppose you are a {w} who must choose between {a} and {b}. What do you do, and why?",
    "If {n} is taller than {m}, and {m} is taller than {o}, who is the shortest? Explain.",
    "{n} stands in a line in front of {m}. {o} is behind {m}. Who is in the middle?",
    "Which word does not belong: {a}, {b}, {c}? Explain your choice.",
    "One morning {n} saw a shadow to the left. In which direction was {n} looking?",
    "What would happen to {b} if there were no {a}?",
    "{sum}", "{sum}", "{sum}",
    "Write a Python function that finds {code} in a list of numbers.",
    "Write a program in {lang} that reads a file and prints {code} of its lines.",
    "Implement a function in {lang} to compute {code}, and explain how long it takes.",
    "Write an HTML page with a button that shows a random fact about {a}.",
    "Write a regular expression in {lang} that matches {a} and nothing else.",
    "Given two sorted arrays, write a function that returns {code}.",
    "Explain what a {data} is, and write a class for it in {lang}.",
    "Extract all names and dates from this text:\n\n{text}",
    "Read this text and answer: who, when and where? Give the answer as JSON.\n\n{text}",
    "Rate the tone of these reviews of {a} from 1 to 5:\n1. I love it.\n2. {n} was bored by it.\n3. It is fine.",
    "Count how often the most frequent word occurs in this text:\n\n{text}",
    "In the field of {f}, what is {a}, and how does it relate to {b}?",
    "Explain the main idea of {f} to a beginner, with two examples.",
    "What are the steps of a typical experiment in {f}?",
    "How does {a} change when it meets {b}? Use what you know of {f}.",
    "Which factors should an engineer think about when designing a {a} for {b}?",
    "Describe how {a} and {b} influenced each other in history.",
    "Give three arguments for and three against {a} in schools.",
    "What were the causes and results of the {war}?",
    "Compare the art of {place} with that of {place2}.",
    "Explain how governments deal with {a}, and what it means for {b}.",
    "Give me ideas for a weekend in {place} with two children.",
    "I want to learn about {a}. Make a plan for four weeks.",
    "How can I get better at {v}?", "What is the best way to start with {v}? I have no experience.",
    "My friend {n} is angry since I forgot about {a}. What should I say?",
    "List ten facts about {a}.", "Make a table that compares {a}, {b} and {c}.",
    "Tell me a joke about {a}.", "Give me a recipe with {food} and {food2}.",
    "Is it true that {a} is bad for {b}?", "Can you help me choose between {a} and {b}?",
    "Correct the mistakes in this text:\n\n{text}", "Rewrite this text for children:\n\n{text}",
)  # fmt: skip
_THEN: Final = (
    "Rewrite your previous response so that it is half as long.", "Now explain it to a child of ten.",
    "Can you give an example?", "Take your previous answer and turn it into a poem.", "Why?",
    "Now do the same, but for {b}.", "What would change if {n} had twice as many?", "Are you sure? Check it.",
    "Write it again in the style of a newspaper.", "Summarize your answer in one sentence.",
    "Add a part about {b}.", "Give me three other options.", "How does that compare with {b}?",
    "What is the weakest point of your answer?", "Turn it into a list of steps.", "Make it more formal.",
    "Start every sentence with the same letter.", "What should I do next?", "Thanks. And what about {c}?",
    "Change the ending.", "Can it be done faster?", "Now write it in {lang}.", "Translate it into German.",
)  # fmt: skip
_CODE: Final = (
    "the median", "the longest common prefix", "the two largest values", "the most frequent item", "duplicates",
    "the sum of squares", "all prime numbers", "the first missing integer", "the common elements", "palindromes",
    "the number of inversions", "the n-th Fibonacci number", "the shortest path", "the top five words",
)  # fmt: skip
_LANGUAGES: Final = ("Python", "C++", "JavaScript", "Java", "Go", "Rust", "SQL", "Bash")
_DATA: Final = ("binary tree", "linked list", "hash table", "queue", "heap", "graph", "trie", "stack")
_FIELDS: Final = (
    "physics", "chemistry", "biology", "economics", "computer science", "psychology", "geology", "astronomy",
    "statistics", "medicine", "philosophy", "linguistics", "law", "music theory", "engineering", "ecology",
)  # fmt: skip
_VERBS: Final = (
    "cooking", "public speaking", "running", "drawing", "saving money", "gardening", "chess", "photography",
    "writing", "swimming", "learning languages", "playing the piano", "sleeping well", "studying", "negotiating",
)  # fmt: skip
_GERMAN_NEWS: Final = (
    "{c} ( dpa ) - Der {o} hat am {d} {z} Prozent mehr {s} gemeldet als im Vorjahr .",
    "Nach Angaben der Polizei wurde der {z}-jährige Fahrer bei dem Unfall in {c} leicht verletzt .",
    "Die Stadt {c} will bis 20{z} rund {z} Millionen Euro in neue {s} investieren .",
    "Trainer {n} muss am {d} im Spiel gegen {c} auf {z} Spieler verzichten .",
    "\" Wir haben die {s} lange unterschätzt \" , sagte {n} am {d} in {c} .",
    "Der {o} in {c} rechnet in diesem Jahr mit weniger {s} .", "Wegen der {s} bleibt der {o} am {d} geschlossen .",
    "Vor {z} Jahren kam {n} zum ersten Mal nach {c} , um dort zu arbeiten .",
    "Am {d} trifft {n} in {c} auf den {o} , um über {s} zu sprechen .",
    "In {c} gibt es {z} neue Wohnungen , doch die {s} steigen weiter .",
    "Die Zimmer sind sauber , das Personal ist freundlich und bis {c} sind es nur {z} Minuten .",
    "Mehr als {z} Prozent der {s} kommen aus {c} , wie der {o} mitteilte .",
    "Warum {n} den {o} verlassen hat , ist bisher nicht bekannt .", "Die {s} in {c} sind besser als ihr Ruf .",
)  # fmt: skip
_CITIES: Final = (
    "Berlin", "Hamburg", "München", "Köln", "Stuttgart", "Leipzig", "Bremen", "Dresden", "Wien", "Zürich",
    "Augsburg", "Rostock", "Kiel", "Brüssel", "Paris", "Warschau", "Madrid", "Freiburg", "Graz", "Ulm",
)  # fmt: skip
_ORGANS: Final = (
    "Verband", "Minister", "Verein", "Flughafen", "Betrieb", "Bürgermeister", "Zoo", "Konzern", "Bundestag",
    "Hersteller", "Handel", "Bahnhof", "Stadtrat", "Präsident", "Vorstand",
)  # fmt: skip
_STOCK: Final = (
    "Schulen", "Kosten", "Mieten", "Touristen", "Arbeitsplätze", "Straßen", "Patienten", "Steuern", "Preise",
    "Flüchtlinge", "Computer", "Fahrräder", "Bücher", "Bäume", "Energien", "Probleme", "Einnahmen",
)  # fmt: skip
_DAYS: Final = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")


@dataclass
class Questions:
    """Of each kind as many as are asked for; no two calls give the same but by chance."""

    sources: Sources
    rng: Random

    @property
    def kinds(self) -> dict[str, Callable[[], Turns]]:
        return {
            "chat": self.chat, "translation": self.translation, "summarization": self.summarization,
            "qa": self.qa, "maths": self.maths, "rag": self.rag,
        }  # fmt: skip

    def chat(self) -> Turns:
        turns = [self._filled(self.rng.choice(_CHAT))]
        if self.rng.random() < 0.5:
            turns.append(self._filled(self.rng.choice(_THEN)))
        return turns

    def translation(self) -> Turns:
        rng, sentence = self.rng, self.rng.choice(self.sources.german)
        if rng.random() < 0.4:
            sentence = rng.choice(_GERMAN_NEWS)
            for key, words in {
                "c": _CITIES, "o": _ORGANS, "s": _STOCK, "d": _DAYS, "n": self.sources.names,
                "z": range(11, 95),
            }.items():  # fmt: skip
                while f"{{{key}}}" in sentence:
                    sentence = sentence.replace(f"{{{key}}}", str(rng.choice(words)), 1)
        return [rng.choice(_TRANSLATE).format(sentence)]

    def summarization(self) -> Turns:
        text = self._text(self.rng.choice((self.rng.randint(60, 300), self.rng.randint(60, 800))))
        return [self.rng.choice(_SUMMARIZE).replace("{}", text)]

    def qa(self) -> Turns:
        rng = self.rng
        forms, kinds = rng.choice(
            ((_PERSON, ("18",)), (_PLACE, ("15",)), (_THING, ("05", "06", "13", "20", "27", "10", "04", "26")))
        )  # fmt: skip
        form = rng.choice(forms)
        while "{}" in form:
            form = form.replace("{}", self._noun(*kinds, named=forms is not _THING), 1)
        found = form.replace("{y}", str(rng.randint(1950, 2020)))
        return [found if rng.random() < 0.6 else found[0] + found[1:].lower()]

    def maths(self) -> Turns:
        return [word_problem(self.rng, self.sources.names)]

    def rag(self) -> Turns:
        """Up to 500 words in passages of 100, of one article or two, and a question."""
        rng = self.rng
        articles = rng.sample(self._articles, rng.choice((1, 1, 2)))
        words: list[str] = []
        num_words = rng.choice((505, rng.randint(90, 400), rng.randint(90, 400)))
        while len(words) < num_words:
            words += self._cut(rng.choice(articles), 100).split()
        topic = articles[0].title.split(" (")[0] or "this"
        question = rng.choice(_OF_PASSAGE).format(topic)
        if rng.random() < 0.5:
            question = question[0] + question[1:].lower()
        passages = " ".join(words[:num_words])
        return [rng.choice(_ABOUT_PASSAGES).replace("{q}", question).replace("{p}", passages)]

    @property
    def _articles(self) -> list[Article]:
        return self.sources.encyclopedia

    def _text(self, num_words: int) -> str:
        """News four times in ten; longer ones are several that follow each other."""
        rng, s = self.rng, self.sources
        pool = rng.choices((s.news, s.encyclopedia, s.speeches, s.handbook), (4, 4, 1, 1))[0]
        text = self._cut(rng.choice(pool), num_words)
        while len(text.split()) < min(num_words, 100):
            text += " " + self._cut(rng.choice(pool), num_words)
        return text

    def _cut(self, article: Article, num_words: int) -> str:
        """Whole paragraphs from one on, then words of the last."""
        paragraphs = article.paragraphs or self._articles[0].paragraphs
        first = self.rng.randrange(len(paragraphs))
        return " ".join(" ".join(paragraphs[first : first + 12]).split()[:num_words])

    def _noun(self, *kinds: str, named: bool = False) -> str:
        """A name where `named`, else a common noun."""
        while True:
            found = self.rng.choice(self.sources.nouns[self.rng.choice(kinds)])
            if found[0].isupper() == named:
                return found

    def _filled(self, form: str) -> str:
        rng, s = self.rng, self.sources
        makers: dict[str, Callable[[], str]] = {
            **dict.fromkeys("abc", lambda: self._noun("04", "06", "05", "07", "10", "13", "26", "09")),
            **dict.fromkeys("nmo", lambda: rng.choice(s.names)),
            "w": lambda: self._noun("18"), "code": lambda: rng.choice(_CODE), "f": lambda: rng.choice(_FIELDS),
            "lang": lambda: rng.choice(_LANGUAGES), "data": lambda: rng.choice(_DATA),
            "text": lambda: self._text(rng.randint(40, 160)), "v": lambda: rng.choice(_VERBS),
            "place": lambda: self._noun("15", named=True), "place2": lambda: self._noun("15", named=True),
            "war": lambda: self._noun("04", named=True), "food": lambda: self._noun("13"),
            "food2": lambda: self._noun("13"), "sum": lambda: word_problem(rng, s.names),
        }  # fmt: skip
        for key, make in makers.items():
            if f"{{{key}}}" in form:
                form = form.replace(f"{{{key}}}", make())
        return form
