"""Recorded passes over one store, and which of them has room for a pass of another size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import torch

from forerun.kernels.base import Body
from forerun.kernels.cuda.drawing import Best
from forerun.kernels.cuda.heads.given import HandedOut
from forerun.kernels.cuda.passes.ahead import Ahead
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.passes.recording import Replay

_SMALL: Final = 8  # tokens; passes over fewer take hardly less time
# How many passes of a size are padded before that size is recorded. A recording takes as long as
# it saves on so many passes; `_MOST_SMALL` is for passes of up to `_SMALL` tokens.
_MOST_FILLED: Final = 32
_MOST_SMALL: Final = 256
_MOST_PAUSED: Final = 32  # passes; the longest pause

# Body, tokens, wanted tokens, splits of keys, room for slots of keys.
Key = tuple[Body, int, int, int, int]


@dataclass(frozen=True)
class KeptPass:
    recording: Replay
    inputs: Inputs
    logits: torch.Tensor
    best: Best
    handed_out: HandedOut | None
    num_embeddings: int


@dataclass
class KeptPasses:
    """What is kept for a store, and freed with it."""

    graphs: OrderedDict[Key, KeptPass] = field(default_factory=OrderedDict)  # latest used last
    ahead: Ahead | None = None  # a pass that was begun before it was asked for
    launched: set[Hashable] = field(default_factory=set)  # kinds of passes whose kernels were
    num_filled: dict[Key, int] = field(default_factory=dict)  # padded passes of each size
    num_waiting: int = 0  # passes left in the pause: behind these none is begun early
    _pause: int = 0  # length of the latest pause, in passes

    def may_begin(self) -> bool:
        """Whether to begin the pass behind this one early; counts the pause down."""
        self.num_waiting -= self.num_waiting > 0
        return self.num_waiting == 0

    def settle(self, *, is_left: bool) -> None:
        """Learn from a pass that was begun early whether the host draws a row of the one before it.

        If it does (`is_left`), both passes ran in vain: then pauses get longer, until a pass
        begun early finds no such row.
        """
        self._pause = min(_MOST_PAUSED, max(2, 2 * self._pause)) if is_left else 0
        self.num_waiting = self._pause

    def room_for(self, key: Key) -> Key:
        """Return the key of a recorded pass with room for such a pass, or `key` itself.

        It is `key` if no recorded pass has room, or if such passes come so often that recording
        one is worth its time.
        """
        if key in self.graphs:
            return key
        body, num_tokens, num_wanted, num_splits, num_key_slots = key
        most_tokens = 1 if num_tokens == 1 else max(_SMALL, 2 * num_tokens)
        most_wanted = max(_SMALL, 2 * num_wanted)
        others = (
            other
            for other in self.graphs
            if other[0] == body
            and num_tokens <= other[1] <= most_tokens
            and num_wanted <= other[2] <= most_wanted
            and num_splits <= other[3]
            and (num_splits > 1 or other[3] == 1)  # one split needs no `fold_splits`
            and num_key_slots <= other[4]
        )
        found = min(others, key=lambda other: other[1:], default=None)
        if found is None:
            return key
        self.num_filled[key] = num = self.num_filled.get(key, 0) + 1
        most = _MOST_SMALL if num_tokens <= _SMALL else _MOST_FILLED
        return found if num <= most else key
