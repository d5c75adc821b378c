"""The options of a training. No torch here: the command line checks them without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.errors import InvalidOption
from forerun.option_checks import require_known, require_real, require_whole
from forerun.option_fields import option
from forerun.theory.canvas import check_drawable

PHRASES: Final = "phrases"  # which are counted, and no head
HEADS: Final = ("block", "blockwise", "distilled", "eagle3", "medusa", "mtp", "pass")
KINDS: Final = (*HEADS, PHRASES)
LOSSES: Final = ("kl", "tv", "lk")


@dataclass(frozen=True)
class TrainOptions:
    """The options of a training, which ends after `minutes` or `tokens`, whichever comes first."""

    kind: str = option("eagle3", f"Kind of drafter: {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    out: Path = option(
        Path("head"),
        "Folder to write. An existing head is trained further; phrases are replaced.",
    )
    minutes: float | None = option(
        None,
        "Minutes to train, data and measurements included. Default: 10, or no limit with --tokens.",
    )
    tokens: int | None = option(None, "Stop after training on this many tokens.")
    seed: int = option(0, "Seed of weights, texts and their order.")
    device: str = option("auto", "Device: auto (a GPU if torch sees one), cuda or cpu.")
    loss: str = option(
        "kl",
        "Loss: kl (divergence on the draft vocabulary), tv (total variation) or lk (kl − log α).",
    )
    learning_rate: float | None = option(
        None,
        "Peak learning rate; each call warms up and cools down. Default: 0.003, or 0.01 for pass.",
    )
    num_places: int | None = option(None, "Guesses to train in a row. Default: 5.")
    draft_vocab_size: int | None = option(
        None,
        "Most frequent tokens, which the head can guess. Default: 8192, or all for "
        "distilled, mtp and pass.",
    )
    max_len: int = option(512, "Tokens of a text, prompt and answer together.")
    batch_len: int | None = option(
        None, "Rows of 2 × --max-len tokens per step. Default: 16; 8 without a GPU; 2 for pass."
    )
    num_written: int | None = option(
        None, "Texts that the target generates at once. Default: 2048 on a GPU, else 256."
    )
    texts: Path | None = option(
        None, "File of texts: those of earlier calls are trained on, those of this call added."
    )
    layers: tuple[int, ...] | None = option(
        None,
        "Read the target's hidden states after this many layers (block and eagle3); repeatable.",
    )
    exportable: bool = option(
        False, "EAGLE-3 without the norms of 3.1, which other engines may not support."
    )
    plot: Path | None = option(
        None, "Draw α at each place, at every measurement, to a .png, .pdf or .svg."
    )

    def __post_init__(self) -> None:
        if self.plot is not None:
            check_drawable(self.plot)
        require_known("kind of drafter", KINDS, self.kind)
        require_known("loss", LOSSES, self.loss)
        require_known("device", ("auto", "cuda", "cpu"), self.device)
        if self.minutes is not None:
            require_real("minutes", self.minutes, "a number above 0", lambda x: x > 0)
        require_real("learning_rate", self.highest_rate, "in (0, 1)", lambda x: 0 < x < 1)
        require_whole("tokens", self.tokens, 1, or_none=True)
        require_whole("seed", self.seed, 0)
        for name in ("num_places", "draft_vocab_size", "batch_len", "num_written"):
            require_whole(name, getattr(self, name), 1, or_none=True)
        if self.kind in ("block", "pass"):
            require_whole("num_places", self.num_places, 2, or_none=True)
        require_whole("max_len", self.max_len, 16)
        layers = list(self.layers or ())
        if layers != sorted(set(layers)) or min(layers, default=0) < 0:
            raise InvalidOption(f"layers {layers} must ascend, from 0 or more.")

    @property
    def highest_rate(self) -> float:
        """The highest learning rate: larger for `pass`, whose embeddings alone move, and far."""
        usual = 1e-2 if self.kind == "pass" else 3e-3
        return usual if self.learning_rate is None else self.learning_rate

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds; None: `tokens` alone is the limit."""
        if self.minutes is None and self.tokens is not None:
            return None
        return 60 * (10 if self.minutes is None else self.minutes)
