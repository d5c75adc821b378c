"""Recorded passes over one store, and which of them has room for another."""

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

_SMALL: Final = 8  # tokens; passes over fewer take hardly less
# Passes that are filled up before one of their size is recorded, which takes as long as what is
# saved on so many: few, and for those of up to `_SMALL` tokens.
_MOST_FILLED: Final = 32
_MOST_SMALL: Final = 256
_MOST_PAUSED: Final = 32  # passes

# Body, tokens, wanted ones, splits of keys, room for slots of keys.
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
    """What is kept for a store, and goes when it goes."""

    graphs: OrderedDict[Key, KeptPass] = field(default_factory=OrderedDict)  # the last used last
    ahead: Ahead | None = None  # a pass that was begun before it was asked for
    launched: set[Hashable] = field(default_factory=set)  # whose kernels were
    num_filled: dict[Key, int] = field(default_factory=dict)  # passes that others had room for
    num_waiting: int = 0  # passes behind which none is begun
    _pause: int = 0  # the latest, in passes

    def may_begin(self) -> bool:
        """Whether the pass behind this one is to be begun before it is asked for."""
        self.num_waiting -= self.num_waiting > 0
        return self.num_waiting == 0

    def settle(self, *, is_left: bool) -> None:
        """A pass was begun behind one of which the host draws a row, or not: where it does, both
        are run for nothing, and that is tried ever more rarely until it does not."""
        self._pause = min(_MOST_PAUSED, max(2, 2 * self._pause)) if is_left else 0
        self.num_waiting = self._pause

    def room_for(self, key: Key) -> Key:
        """One that is recorded and has room for such a pass; itself where there is none, and where
        such passes come often: to record one takes as long as many that are filled up."""
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
            and (num_splits > 1 or other[3] == 1)  # one split needs a kernel less
            and num_key_slots <= other[4]
        )
        found = min(others, key=lambda other: other[1:], default=None)
        if found is None:
            return key
        self.num_filled[key] = num = self.num_filled.get(key, 0) + 1
        most = _MOST_SMALL if num_tokens <= _SMALL else _MOST_FILLED
        return found if num <= most else key
