"""What a training is asked for. No torch here, so that the command line can say what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption, unknown_name
from forerun.option_checks import require_real, require_whole

KINDS: Final = ("eagle3", "medusa")
LOSSES: Final = ("kl", "tv")


@dataclass(frozen=True)
class TrainOptions:
    """`minutes` or `tokens` that were trained on, whichever is over first."""

    kind: str
    folder: Path
    minutes: float | None = 10.0
    tokens: int | None = None
    seed: int = 0
    device: str = "auto"
    loss: str = "kl"
    learning_rate: float = 1e-3
    num_places: int = 5  # guesses that are trained, one after another
    draft_vocab_size: int = 8192
    max_len: int = 512  # tokens of a text
    batch_len: int = 16  # texts in a step
    num_written: int = 256  # texts that the target writes at once
    layers: tuple[int, ...] | None = None
    exportable: bool = False  # EAGLE-3 without 3.1's norms, which other engines do not know

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("kind of head", self.kind, KINDS)
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        if self.minutes is None and self.tokens is None:
            raise InvalidOption("a training without minutes and tokens has no end; give one.")
        if self.minutes is not None:
            require_real("minutes", self.minutes, "a number above 0", lambda x: x > 0)
        require_real("learning_rate", self.learning_rate, "in (0, 1)", lambda x: 0 < x < 1)
        require_whole("tokens", self.tokens, 1, or_none=True)
        require_whole("seed", self.seed, 0)
        for name in ("num_places", "draft_vocab_size", "batch_len", "num_written"):
            require_whole(name, getattr(self, name), 1)
        require_whole("max_len", self.max_len, 16)
