"""How often it is worth looking whether to guess."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from forerun.drafters import RequestView
from forerun.speculation.choice import Choice, Reason

# Tokens whose time may be spent on looks for nothing before a round is skipped, and as many again
# for each further round.
_PATIENCE: Final = 0.03
_FORGIVEN: Final = 0.002  # of that, with every round
_MOST_EARNED: Final = 0.25  # tokens' time that guesses which pay allow for looks that find nothing
_MAX_SKIPS: Final = 7  # rounds
_SHORT_NAP, _LONG_NAP = 1, 64  # rounds; each is twice as long as the one before
_DEEP_SLEEP: Final = 16  # rounds: one that sleeps so long need not hear of the text
_STAY, _EARLY_STAY = 8, 16  # rounds
_REST: Final = 64  # rounds


class Looks:
    """Every round where a look is next to nothing, else ever more rarely until something pays.

    Looking takes time, which a large model does not feel and a small one does: in a text that
    hardly repeats itself, guesses would not pay for it. What begins to pay in between is found at
    most seven rounds late.

    A drafter that has to be asked brings news only when it is. One that was weighed and not taken
    sleeps for some rounds, in which others are looked at as if it were not there; one that was
    taken is asked again in the next few, where no other has a guess, without being weighed.
    """

    def __init__(self) -> None:
        self._wasted: dict[int, float] = {}  # tokens' time spent for nothing; less than 0: earned
        self._num_skips: dict[int, int] = {}  # rounds before the next look
        self._naps: dict[int, dict[str, int]] = {}  # the round in which a drafter wakes up
        self._nap_lens: dict[str, int] = {}  # of the next one, whoever's
        self._stays: dict[int, tuple[Choice, int]] = {}  # the round in which it is weighed again
        self._rests: dict[int, dict[str, int]] = {}  # the round in which a drafter comes back

    def is_due(self, request: int) -> bool:
        """Whether to look this round; a round that is not due counts as skipped."""
        if request not in self._wasted:
            return True
        self._wasted[request] -= _FORGIVEN
        if self._num_skips[request] == 0:
            return True
        self._num_skips[request] -= 1
        return False

    def looked(self, request: int, gain: float, cost: float) -> None:
        """A look found guesses that are expected to bring `gain` tokens more than they take; in
        the time of the look itself, plain decoding would have brought `cost` tokens."""
        wasted = self._wasted.get(request, 0.0)
        if gain > cost:
            self._wasted[request] = max(-_MOST_EARNED, min(_PATIENCE, wasted) - gain)
            self._num_skips[request] = 0
        else:
            wasted = max(-_MOST_EARNED, wasted) + cost
            self._wasted[request] = wasted
            self._num_skips[request] = max(0, min(_MAX_SKIPS, int(wasted / _PATIENCE)))

    def asleep(self, request: RequestView) -> Sequence[str]:
        """Drafters that are not to be weighed in this round."""
        naps = self._naps.get(request.id)
        return [name for name, end in naps.items() if request.round_idx < end] if naps else ()

    def weighed(
        self, request: RequestView, asked: Iterable[str], choice: Choice, *, is_early: bool = False
    ) -> list[tuple[str, int]]:
        """`asked` are drafters that have to be asked, and that could have been chosen. Returns
        those that sleep deeply, and for how many rounds. What is chosen stays for longer where
        rounds with it begin early (`is_early`): to weigh takes as long as much of one."""
        self._stays.pop(request.id, None)
        now, deeply = request.round_idx, []
        for name in asked:
            if name != choice.drafter:
                nap = self._nap_lens.get(name, _SHORT_NAP)
                self._nap_lens[name] = min(_LONG_NAP, 2 * nap)
                if choice.drafter is not None:  # the guesses of another may end at any time
                    nap = min(_MAX_SKIPS, nap)
                self._naps.setdefault(request.id, {})[name] = now + nap
                if nap >= _DEEP_SLEEP:
                    deeply.append((name, nap))
            elif choice.reason is Reason.PAYS:
                self._stays[request.id] = choice, now + (_EARLY_STAY if is_early else _STAY)
                self._nap_lens.pop(name, None)
        return deeply

    def stay(self, request: RequestView) -> Choice | None:
        """What was chosen lately, if that is still good."""
        choice, end = self._stays.get(request.id, (None, 0))
        return choice if request.round_idx < end else None

    def rest(self, request: RequestView, name: str, num_rounds: int = _REST) -> None:
        """It is not to hear of the request for some rounds."""
        self._rests.setdefault(request.id, {})[name] = request.round_idx + num_rounds

    def rested(self, request: RequestView) -> Sequence[str]:
        """Those whose rest is over. They have seen nothing of the text yet, so they sleep through
        this round."""
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
        """Whom it remembers."""
        return self._wasted.keys() | self._naps.keys() | self._rests.keys()

    def end(self, request: int) -> None:
        self._wasted.pop(request, None)
        self._num_skips.pop(request, None)
        self._naps.pop(request, None)
        self._stays.pop(request, None)
        self._rests.pop(request, None)
