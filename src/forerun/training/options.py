"""What a training is asked for. No torch here, so that the command line can say what is wrong."""

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
    """`minutes` or `tokens`, whichever is over first."""

    kind: str = option("eagle3", f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    out: Path = option(
        Path("head"),
        "The folder to write; a head that is there is trained on, phrases are replaced.",
    )
    minutes: float | None = option(None, "How long, data and measurements included; default 10.")
    tokens: int | None = option(None, "Stop once so many tokens were trained on.")
    seed: int = option(0, "Of weights, texts and their order.")
    device: str = option("auto", "cuda or cpu; auto takes the GPU where torch sees one.")
    loss: str = option(
        "kl", "kl (divergence on the draft vocabulary), tv (total variation), lk (kl − log α)."
    )
    learning_rate: float | None = option(
        None, "At its highest; every call warms up and cools down. Default 0.003, for pass 0.01."
    )
    num_places: int | None = option(None, "Guesses that are trained in a row; default 5.")
    draft_vocab_size: int | None = option(
        None,
        "Tokens that it can guess, the most frequent; default 8192, all for distilled, mtp, pass.",
    )
    max_len: int = option(512, "Tokens of a text, prompt and answer.")
    batch_len: int | None = option(
        None, "Rows of twice max_len in a step; default 16, or 8 without GPU; for pass 2."
    )
    num_written: int | None = option(
        None, "Texts that the target writes at once; default 2048 on a GPU, 256 without."
    )
    texts: Path | None = option(
        None, "A file of texts: those of earlier calls are trained on, those of this call added."
    )
    layers: tuple[int, ...] | None = option(
        None, "After how many layers of the target to look, for block and eagle3; repeat it."
    )
    exportable: bool = option(
        False, "EAGLE-3 without the norms of 3.1, which other engines may not know."
    )
    plot: Path | None = option(
        None, "Draw α at each place so far, at every measurement, to .png, .pdf or .svg."
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
        """Look-ahead embeddings have far to go, and nothing else moves with them."""
        usual = 1e-2 if self.kind == "pass" else 3e-3
        return usual if self.learning_rate is None else self.learning_rate

    @property
    def seconds(self) -> float | None:
        """None: as long as the tokens take."""
        if self.minutes is None and self.tokens is not None:
            return None
        return 60 * (10 if self.minutes is None else self.minutes)
