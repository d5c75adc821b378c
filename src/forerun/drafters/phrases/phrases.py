"""The drafter over a book of phrases: guesses what the target often writes here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.phrases.book import PhraseBook
from forerun.drafters.phrases.hashing import ORDER
from forerun.types import Proposal

_LEAST_CHANCE: Final = 0.1  # that a guess and all before it are accepted
_MOST: Final = 0.97  # the highest chance of a guess
_PRIOR: Final = 4.0  # expected right guesses that the prior counts for
_FIRST_TRUST: Final = 0.8  # below 1: the text may have another subject than the book's
_KEEP: Final = 0.98  # weight that older trials keep with each new one


class Phrases(OneByOne["_Text"]):
    """Guesses one chain. It ends where the chance that all its guesses are accepted falls below
    `_LEAST_CHANCE` or the budget's `least_chance`.

    How far the book's chances apply to a text is learnt from every token of the output, guessed or
    not: with another subject or a higher temperature, contexts have other followers.
    """

    picks = says_chances = True

    def __init__(self, book: PhraseBook) -> None:
        super().__init__()
        self._book = book

    def _remember(self, request: RequestView) -> _Text:
        return _Text(len(request.prompt))

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        text = self._memories[request.id]
        found = self._next(text, request.tokens)
        least = max(_LEAST_CHANCE, budget.least_chance)
        return found is not None and text.trusted(found[1]) >= least

    def _next(self, text: _Text, tokens: Sequence[int]) -> tuple[int, float] | None:
        """Return what the book says of the next token; looked up once per token."""
        if text.num_read != len(tokens) or not text.said:
            text.observe(self._book, tokens)
            text.said = [self._book.after(tokens[-ORDER:])]
        return text.said[0]

    def _guess(self, request: RequestView, text: _Text, budget: Budget) -> Proposal:
        found, context = self._next(text, request.tokens), list(request.tokens[-ORDER:])
        tokens, chances, chance_of_all = list[int](), list[float](), 1.0
        least, said = max(_LEAST_CHANCE, budget.least_chance), text.said
        del said[1:]  # left by an earlier proposal at this position
        while found is not None and len(tokens) < budget.depth:
            token, chance = found[0], text.trusted(found[1])
            chance_of_all *= chance
            if chance_of_all < least:
                break
            if tokens:
                said.append(found)
            tokens.append(token)
            chances.append(chance)
            if chance_of_all * _MOST < least:
                break
            context.append(token)
            found = self._book.after(context)
        return Proposal.picked(tokens, chances) if tokens else Proposal.empty()


class _Text:
    """How far a request's text was read, what the book says of the next tokens, and how often the
    book was right, relative to how often it expected to be."""

    def __init__(self, num_read: int) -> None:
        self.num_read = num_read
        self.said: list[tuple[int, float] | None] = []  # for the tokens from `num_read` on
        self._num_right = self._num_expected = 0.0

    def trusted(self, chance: float) -> float:
        right = _FIRST_TRUST * _PRIOR + self._num_right
        return min(_MOST, chance * right / (_PRIOR + self._num_expected))

    def observe(self, book: PhraseBook, tokens: Sequence[int]) -> None:
        """Read the new tokens of the text; each is a trial of the book."""
        said = self.said[::-1]
        for place in range(self.num_read, len(tokens)):
            found = said.pop() if said else book.after(tokens[max(0, place - ORDER) : place])
            is_right = found is not None and found[0] == tokens[place]
            if found is not None:
                self._num_right = _KEEP * self._num_right + is_right
                self._num_expected = _KEEP * self._num_expected + found[1]
            if not is_right:
                said = []
        self.num_read, self.said = len(tokens), []
