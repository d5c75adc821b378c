"""Scoring guesses that nobody verified: the text itself tells whether they would have held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias


class Score(NamedTuple):
    """What new tokens said about an offer; see `AcceptanceEstimate.observe`."""

    num_guessed: int
    num_matched: int
    num_known: int
    branch: int
    words: Sequence[float] = ()


_Offered: TypeAlias = tuple[Sequence[Sequence[int]], Sequence[float]]  # branches, words
_SILENT: Final[_Offered] = ((), ())
_NOBODY: Final[dict[str, _Offered]] = {}
_NONE: Final[dict[str, OpenOffer]] = {}


class OpenOffer:
    """One offer, a chain per branch, compared with the text until it misses or ends."""

    def __init__(self, branches: Sequence[Sequence[int]], words: Sequence[float] = ()) -> None:
        assert branches
        assert all(branches)
        self._branches = branches
        self._words = words  # the drafter's chances for the first branch
        self._branch = len(branches) - 1
        self._num_matched = 0
        self.is_open = True

    def follow(self, tokens: Sequence[int]) -> Score | None:
        """The text went on with `tokens`."""
        num_known = self._num_matched
        num_guessed = num_known
        for token in tokens:
            if not self.is_open:
                break
            num_guessed += 1
            self._step(token)
        if num_guessed == num_known:
            return None
        return Score(num_guessed, self._num_matched, num_known, self._branch, self._words)

    def _step(self, token: int) -> None:
        if self._num_matched == 0:
            firsts = [branch[0] for branch in self._branches]
            if token in firsts:
                self._branch = firsts.index(token)
        chain = self._branches[self._branch]
        if chain[self._num_matched] == token:
            self._num_matched += 1
            self.is_open = self._num_matched < len(chain)
        else:
            self.is_open = False


class OpenOffers:
    """For each request and drafter one open offer at a time, as rounds of its own would be."""

    def __init__(self) -> None:
        self._latest: dict[int, dict[str, _Offered]] = {}
        self._open: dict[int, dict[str, OpenOffer]] = {}

    def add(
        self,
        request: int,
        drafter: str,
        branches: Sequence[Sequence[int]],
        words: Sequence[float] = (),
    ) -> None:
        """What the drafter would guess now; no branches if it is silent."""
        self._latest.setdefault(request, {})[drafter] = branches, words

    def words(self, request: int, drafter: str) -> Sequence[float]:
        """The chances that the drafter gives its latest offer."""
        return self._latest.get(request, _NOBODY).get(drafter, _SILENT)[1]

    def drafters(self, request: int) -> list[str]:
        """Those whose offers are scored: asked this round, or with an offer still open."""
        latest, still_open = self._of(request)
        return [*latest, *(drafter for drafter in still_open if drafter not in latest)]

    def has(self, request: int, drafter: str) -> bool:
        return any(drafter in offers for offers in self._of(request))

    def _of(self, request: int) -> tuple[dict[str, _Offered], dict[str, OpenOffer]]:
        return self._latest.get(request, _NOBODY), self._open.get(request, _NONE)

    def follow(
        self, request: int, drafter: str, tokens: Sequence[int], *, was_used: bool
    ) -> list[Score]:
        """The latest offer is taken up when it was used, or when the one before is closed; of
        any other only the first guess is scored, so that a change is noticed at once."""
        branches, words = self._latest.get(request, _NOBODY).pop(drafter, _SILENT)
        still_open = self._open.setdefault(request, {})
        offer = still_open.get(drafter)
        found = []
        if branches and (was_used or offer is None):
            offer = still_open[drafter] = OpenOffer(branches, words)
        elif branches:
            found.append(OpenOffer(branches, words).follow(tokens[:1]))
        if offer is not None:
            found.append(offer.follow(tokens))
            if not offer.is_open:
                del still_open[drafter]
        return [score for score in found if score is not None]

    @property
    def requests(self) -> set[int]:
        """Whom it remembers."""
        return self._latest.keys() | self._open.keys()

    def end(self, request: int) -> None:
        self._latest.pop(request, None)
        self._open.pop(request, None)
