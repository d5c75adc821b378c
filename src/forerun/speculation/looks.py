"""When to look for guesses, since looking takes time as well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from forerun.drafters import RequestView
from forerun.speculation.choice import Choice, Reason

# Time that looks may waste before a round is skipped, and again for each further round, in tokens
# that plain decoding would emit.
_PATIENCE: Final = 0.03
_FORGIVEN: Final = 0.002  # wasted time that is forgotten with every round
_MOST_EARNED: Final = 0.25  # time for vain looks that guesses which pay may earn
_MAX_SKIPS: Final = 7  # rounds
_SHORT_NAP, _LONG_NAP = 1, 64  # rounds; each is twice as long as the one before
_DEEP_SLEEP: Final = 16  # rounds: a drafter that sleeps so long need not follow the text
_STAY, _EARLY_STAY = 8, 16  # rounds in which a drafter stays chosen; where rounds begin early
_REST: Final = 64  # rounds


class Looks:
    """Decides in which rounds to look for guesses, and which drafters to weigh.

    If a look costs next to nothing compared with a token, there is one in every round. Otherwise
    looks that find nothing become rarer, down to every eighth round: for a small model and a text
    that hardly repeats itself, guesses would not pay for them. So guesses that begin to pay are
    found at most seven rounds late.

    A drafter that has to be asked shows only then whether it pays. One that was weighed and not
    chosen sleeps for some rounds, in which it is ignored. One that was chosen is asked again in the
    next few rounds without being weighed, as long as no other drafter has a guess.
    """

    def __init__(self) -> None:
        # All but `_nap_lens` are by request.
        self._wasted: dict[int, float] = {}  # by vain looks, in tokens; below 0: earned
        self._num_skips: dict[int, int] = {}  # rounds before the next look
        self._naps: dict[int, dict[str, int]] = {}  # the round in which a drafter wakes up
        self._nap_lens: dict[str, int] = {}  # of a drafter's next nap, for any request
        self._stays: dict[int, tuple[Choice, int]] = {}  # the round in which it is weighed again
        self._rests: dict[int, dict[str, int]] = {}  # the round in which a drafter comes back

    def is_due(self, request: int) -> bool:
        """Whether to look for guesses in this round; if not, the round counts as skipped."""
        if request not in self._wasted:
            return True
        self._wasted[request] -= _FORGIVEN
        if self._num_skips[request] == 0:
            return True
        self._num_skips[request] -= 1
        return False

    def looked(self, request: int, gain: float, cost: float) -> None:
        """Note a look: its guesses are expected to bring `gain` tokens more than their time would,
        and in the time of the look itself plain decoding would have emitted `cost` tokens."""
        wasted = self._wasted.get(request, 0.0)
        if gain > cost:
            self._wasted[request] = max(-_MOST_EARNED, min(_PATIENCE, wasted) - gain)
            self._num_skips[request] = 0
        else:
            wasted = max(-_MOST_EARNED, wasted) + cost
            self._wasted[request] = wasted
            self._num_skips[request] = max(0, min(_MAX_SKIPS, int(wasted / _PATIENCE)))

    def asleep(self, request: RequestView) -> Sequence[str]:
        """The drafters that are not to be weighed in this round."""
        naps = self._naps.get(request.id)
        return [name for name, end in naps.items() if request.round_idx < end] if naps else ()

    def weighed(
        self, request: RequestView, asked: Iterable[str], choice: Choice, *, is_early: bool = False
    ) -> list[tuple[str, int]]:
        """Note what was chosen among drafters that have to be asked (`asked`) and could be chosen.

        Returns the drafters that are put to sleep for long, and for how many rounds. A chosen one
        stays longer if its rounds begin early (`is_early`), since weighing takes much of a round.
        """
        self._stays.pop(request.id, None)
        now, deeply = request.round_idx, []
        for name in asked:
            if name != choice.drafter:
                nap = self._nap_lens.get(name, _SHORT_NAP)
                self._nap_lens[name] = min(_LONG_NAP, 2 * nap)
                if choice.drafter is not None:  # the chosen drafter's guesses may end at any time
                    nap = min(_MAX_SKIPS, nap)
                self._naps.setdefault(request.id, {})[name] = now + nap
                if nap >= _DEEP_SLEEP:
                    deeply.append((name, nap))
            elif choice.reason is Reason.PAYS:
                self._stays[request.id] = choice, now + (_EARLY_STAY if is_early else _STAY)
                self._nap_lens.pop(name, None)
        return deeply

    def stay(self, request: RequestView) -> Choice | None:
        """Return the latest choice of a drafter that had to be asked, while it stays chosen."""
        choice, end = self._stays.get(request.id, (None, 0))
        return choice if request.round_idx < end else None

    def rest(self, request: RequestView, name: str, num_rounds: int = _REST) -> None:
        """Let a drafter rest: for some rounds it does not follow this request."""
        self._rests.setdefault(request.id, {})[name] = request.round_idx + num_rounds

    def rested(self, request: RequestView) -> Sequence[str]:
        """Return the drafters whose rest is over. They have to read the latest text first, so they
        sleep in this round."""
        rests = self._rests.get(request.id)
        if not rests:
            return ()
        over = [name for name, end in rests.items() if request.round_idx >= end]
        for name in over:
            del rests[name]
            self._naps.setdefault(request.id, {})[name] = request.round_idx + 1
        return over

    @property
    def requests(self) -> set[int]:
        """The ids of the requests that it remembers."""
        return self._wasted.keys() | self._naps.keys() | self._rests.keys()

    def end(self, request: int) -> None:
        self._wasted.pop(request, None)
        self._num_skips.pop(request, None)
        self._naps.pop(request, None)
        self._stays.pop(request, None)
        self._rests.pop(request, None)
