"""What speculation did for one request, counted over its rounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from forerun.speculation.choice import Choice


@dataclass
class Stats:
    """Counts of one request. Of target passes only those that emitted tokens are counted."""

    target_passes: int = 0
    emitted_tokens: int = 0
    draft_tokens: int = 0  # guesses made
    accepted_tokens: int = 0  # guesses that were accepted and emitted
    accepted_per_position: list[int] = field(default_factory=list)
    drafters: dict[str, tuple[int, int]] = field(default_factory=dict)  # guesses made, accepted
    drafter_failures: int = 0
    choices: dict[str, int] = field(default_factory=dict)  # rounds, by the choice's summary
    seconds: float = 0.0

    def observe(
        self, num_guesses: int, num_accepted: int, num_emitted: int, choice: Choice | None
    ) -> None:
        self.target_passes += 1
        if choice is not None:
            summary = choice.summary
            self.choices[summary] = self.choices.get(summary, 0) + 1
        self.emitted_tokens += num_emitted
        self.draft_tokens += num_guesses
        self.accepted_tokens += num_accepted
        if choice is not None and choice.drafter is not None and num_guesses:
            made, accepted = self.drafters.get(choice.drafter, (0, 0))
            self.drafters[choice.drafter] = (made + num_guesses, accepted + num_accepted)
        missing = num_accepted - len(self.accepted_per_position)
        self.accepted_per_position += [0] * missing
        for position in range(num_accepted):
            self.accepted_per_position[position] += 1

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted ÷ guesses made; None if nothing was guessed."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """τ: emitted ÷ target passes."""
        return self.emitted_tokens / self.target_passes if self.target_passes else None

    @property
    def tokens_per_second(self) -> float | None:
        return self.emitted_tokens / self.seconds if self.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Return all counts and the three rates above."""
        return asdict(self) | {
            "acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": self.mean_acceptance_length,
            "drafters": {
                name: {"draft_tokens": made, "accepted_tokens": accepted}
                for name, (made, accepted) in self.drafters.items()
            },
            "tokens_per_second": self.tokens_per_second,
        }
