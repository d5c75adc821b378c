"""Suffix lookup: copy what followed the longest earlier match with the end of the text.

Matches are looked up in the request's own text and, for requests with a salt, in finished
outputs of the same salt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.suffix_automaton import Match, SuffixAutomaton
from forerun.drafters.suffix_history import END, OutputHistory
from forerun.drafters.suffix_pairs import TokenPairs
from forerun.drafters.suffix_trust import Trust
from forerun.errors import InvalidOption
from forerun.types import ROOT, Acceptance, Proposal, ProposalBuilder


class SuffixLookup(OneByOne["_OwnText"]):
    """Continues the longest match with its most frequent follower, on a tie the most recent.

    A branch ends where the chance that all its guesses are accepted falls below `min_chance` or the
    budget's `least_chance`, so a short match guesses little and a long one much.
    `max_shared_tokens` bounds what is kept of finished outputs, over all salts; 0 turns sharing
    off.
    """

    picks = says_chances = True

    def __init__(
        self,
        min_match: int = 1,
        max_match: int = 32,
        min_chance: float = 0.25,
        max_shared_tokens: int = 1 << 16,
    ) -> None:
        super().__init__()
        if not 1 <= min_match <= max_match:
            raise InvalidOption(
                f"suffix_min_match={min_match} and suffix_max_match={max_match} are not allowed; "
                f"give 1 ≤ min ≤ max."
            )
        if not 0 <= min_chance < 1:
            raise InvalidOption(f"suffix_min_chance={min_chance} is not allowed; give 0 ≤ x < 1.")
        if max_shared_tokens < 0:
            raise InvalidOption(
                f"suffix_max_shared_tokens={max_shared_tokens} is not allowed; 0 turns sharing off."
            )
        self._min_match = min_match
        self._max_match = max_match
        self._min_chance = min_chance
        self._history = OutputHistory(max_shared_tokens, max_match)

    @property
    def num_shared_tokens(self) -> int:
        """Tokens of finished outputs that are kept."""
        return len(self._history)

    def _remember(self, request: RequestView) -> _OwnText:
        text = _OwnText(len(request.prompt), self._max_match)
        text.extend(request.tokens)
        text.pairs.extend(request.tokens)
        return text

    def end(self, request: RequestView) -> None:
        salt = request.cache_salt
        if request.id in self._memories and salt is not None and not request.params.is_unshared:
            self._history.add(salt, request.output)
        super().end(request)

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        """Return whether a guess is likely enough.

        If the last two tokens are a new pair, and the last one alone is not trusted, the pair table
        is enough to tell. Otherwise the automaton reads the new tokens here, so that the time of
        `propose` does not depend on how long the drafter was not asked."""
        text = self._memories[request.id]
        text.pairs.extend(request.tokens)
        least_chance = max(self._min_chance, budget.least_chance)
        is_wide = budget.num_branches > 1 or any(self._shared(request))
        if not is_wide and not text.pairs.is_repeated:
            if not text.pairs.num_followers or self._min_match > 1:
                return False
            if text.trust.chance(1, text.pairs.num_followers == 1) < least_chance:
                return False
        text.extend(request.tokens)
        if is_wide:
            return True
        chance = text.own_chance(self._min_match)
        return chance is not None and chance >= least_chance

    def _guess(self, request: RequestView, text: _OwnText, budget: Budget) -> Proposal:
        text.extend(request.tokens)
        text.predicted.clear()
        if budget.depth == 0:
            return Proposal.empty()
        builder = ProposalBuilder()
        branches: set[int] = set()
        chance = 1.0
        for found, token in self._openings(request, text):
            if token in branches:
                continue
            # The first branch has its context's chance; its siblings get what that leaves.
            if not branches:
                source, match = found
                chance = text.trust.chance(match.length, source.is_unanimous(match))
            elif len(branches) == 1:
                chance = 1 - chance
            branches.add(token)
            self._add_branch(builder, found, token, budget, text, chance)
            if len(branches) == budget.num_branches:
                break
        return builder.build()

    def _openings(self, request: RequestView, text: _OwnText) -> Iterator[tuple[_Found, int]]:
        """Yield every token that may come next, with its context; longest contexts first."""
        for source, match in self._found(request, text):
            while match.length >= self._min_match:
                for token in source.followers(match):
                    if token != END:
                        yield _Found(source, match), token
                match = source.shorter(match)

    def _found(self, request: RequestView, text: _OwnText) -> list[_Found]:
        """Return the matches in each source, longest first; on a tie the own text comes first."""
        own = text.automaton
        found = [_Found(own, own.continued(own.repeated_tail()))]
        if others := list(self._shared(request)):
            tail = request.tokens[-self._max_match :]
            found += [_Found(o, o.continued(o.find_tail(tail))) for o in others]
            found.sort(key=lambda one: -one.match.length)
        return found

    def _shared(self, request: RequestView) -> Iterator[SuffixAutomaton]:
        salt = request.cache_salt
        return self._history.of(salt) if salt is not None and may_share(request) else iter(())

    def _add_branch(
        self,
        builder: ProposalBuilder,
        found: _Found,
        token: int,
        budget: Budget,
        text: _OwnText,
        chance: float,
    ) -> None:
        """Guess `token`, which comes with `chance`, then each longer context's best follower."""
        source, match = found
        node, chance_of_all, trust = ROOT, chance, text.trust
        least_chance = max(self._min_chance, budget.least_chance)
        is_others = len(builder) == 0 and source is not text.automaton
        for num_guesses in range(1, budget.depth + 1):
            if token == END:
                return
            if is_others:
                text.predicted.append((_Found(source, match), token))
            if chance_of_all < least_chance:
                return
            node = builder.add(node, token, chance=chance)
            match = source.continued(source.after(match, token))
            if match.length < self._min_match:
                return
            chance = trust.chance(match.length, source.is_unanimous(match), num_guesses)
            chance_of_all *= chance
            token = source.best(match)


class _Found(NamedTuple):
    """A context, and the automaton of the text that it was found in."""

    source: SuffixAutomaton
    match: Match


class _OwnText:
    """A request's text, and how well its output was predicted so far: by shared outputs where
    guesses came from them, else by the text itself."""

    def __init__(self, prompt_len: int, max_match: int) -> None:
        self._prompt_len = prompt_len
        self.automaton = SuffixAutomaton(max_match)
        self.pairs = TokenPairs()
        self.trust = Trust()
        self.predicted: deque[tuple[_Found, int]] = deque()  # shared contexts, and their guesses

    def extend(self, tokens: Sequence[int]) -> None:
        self.automaton.extend(tokens[len(self.automaton) : self._prompt_len])
        for token in tokens[len(self.automaton) :]:
            self._observe(token)
            self.automaton.append(token)

    def own_chance(self, min_match: int) -> float | None:
        """Return the chance of the best guess from the text read so far; None without a match."""
        match = self.automaton.continued(self.automaton.repeated_tail())
        if match.length < min_match:
            return None
        return self.trust.chance(match.length, self.automaton.is_unanimous(match))

    def _observe(self, token: int) -> None:
        if self.predicted:
            (source, match), predicted = self.predicted.popleft()
            is_hit = predicted == token
            if not is_hit:
                self.predicted.clear()
        else:
            source, match = self.automaton, self.automaton.repeated_tail()
            is_hit = match.length > 0 and source.best(match) == token
        self.trust.observe(match.length, source.is_unanimous(match), is_hit)


def may_share(request: RequestView) -> bool:
    """Return whether guesses from outputs of other requests leave the request's law intact.

    `rejection` needs guesses that are independent of the noise that verifies them, but an earlier
    request with the same seed had the same noise.
    """
    params = request.params
    is_certain = params.temperature == 0 or params.acceptance is Acceptance.COUPLED
    return is_certain or params.seed is None
