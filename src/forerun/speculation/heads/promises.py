"""Which of the package's heads `auto` uses on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Final

from forerun.drafters.heads import Card, HeadFolder
from forerun.models.config import ModelConfig
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost

# Times plain decoding, if guesses are accepted as the card says of held-out texts. Users' texts
# reach three quarters of that, and stories two thirds. Plain rounds between a head's are slower,
# and a trial in a busy moment promises more than quiet cores keep.
_LEAST_GAIN: Final = 1.8
_LEAST_EARLY: Final = 1.15  # where rounds begin early: there a head is asked always, or rests


@dataclass(frozen=True)
class Promise:
    """The most that a head can bring here, if its guesses are accepted as its card says."""

    folder: HeadFolder
    card: Card
    speed: float  # times plain decoding
    depth: int
    least: float = _LEAST_GAIN

    def timed(self, plain: float, guessing: float, depth: int, *, is_early: bool) -> Promise:
        """Return the promise by timed rounds: seconds of a plain one, and of one with guesses."""
        speed = (1 + sum(list(accumulate(self.card.chances, mul))[:depth])) * plain / guessing
        least = _LEAST_EARLY if is_early else _LEAST_GAIN
        return replace(self, speed=speed, depth=depth, least=least)

    @property
    def pays(self) -> bool:
        return self.speed >= self.least

    @property
    def reason(self) -> str:
        """Why the head is left out if it does not pay."""
        return (
            f"on this machine, as measured at start, it promises {self}, and promises below "
            f"{self.least:g} are seldom kept"
        )

    def __str__(self) -> str:
        return (
            f"{self.speed:.2f} times plain decoding at best, with {self.depth} "
            f"guess{'es' if self.depth > 1 else ''} a round"
        )


def best_head(
    folders: Sequence[Path], target: ModelConfig, passes: PassCost, *, is_tried: bool = False
) -> tuple[Promise | None, dict[str, str]]:
    """Return the head that promises most, if it pays, and why the others are left out.

    With `is_tried`, the head will be timed in whole rounds, and only has to pay there.
    """
    left_out, promises = dict[str, str](), list[Promise]()
    for path in folders:
        card = Card.of(path)
        if card is None:
            left_out[path.name] = "its folder has no training.json, by which it could be weighed"
        else:
            promise = promised(HeadFolder(path), card, target, passes)
            promises.append(replace(promise, least=0.0) if is_tried else promise)
    best = max(promises, key=lambda promise: promise.speed, default=None)
    for promise in promises:
        if not promise.pays:
            left_out[promise.folder.path.name] = promise.reason
        elif promise is not best:
            left_out[promise.folder.path.name] = f"{promise}: another one promises more"
    return (best if best and best.pays else None), left_out


def promised(
    folder: HeadFolder,
    card: Card,
    target: ModelConfig,
    passes: PassCost,
    timed: DraftCost | None = None,
) -> Promise:
    """Return what a head promises on this machine, at its best depth.

    A head that is not `timed` is assumed to cost its share of the target's weights, as reading
    weights takes the time of a pass. It costs more in fact, since small products are slower.
    """
    share = _num_read(folder, target) / num_weights(target)
    plain, best = passes.seconds(1), (0.0, 1)
    for depth, gain in enumerate(accumulate(accumulate(card.chances, mul)), start=1):
        num_reads = depth if folder.config.is_fed_back else 1
        draft = timed.seconds(1, depth) / plain if timed else share * num_reads
        best = max(best, ((1 + gain) / (passes.seconds(1 + depth) / plain + draft), depth))
    return Promise(folder, card, *best)


def _num_read(folder: HeadFolder, target: ModelConfig) -> int:
    """Return how many weights a head reads: its own, and those of the target that it uses."""
    if folder.config.kind == "pass":
        return num_weights(target)
    shares_head = folder.config.kind == "mtp" and not folder.has("lm_head.weight")
    return folder.num_weights + shares_head * target.vocab_size * target.hidden_size


def num_weights(config: ModelConfig) -> int:
    """Return how many weights a pass of the target reads, without norms and biases."""
    c = config
    q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    layer = c.hidden_size * (2 * q_len + 2 * kv_len + 3 * c.intermediate_size)
    return c.num_layers * layer + c.vocab_size * c.hidden_size
