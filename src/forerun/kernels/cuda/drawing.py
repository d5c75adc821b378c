"""From logits on the device to tokens, or to logits on the host where more is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from forerun.kernels.cuda.draws import (
    BLOCK,
    DEPTH,
    MOST,
    NUM_WORDS,
    best_of_blocks,
    best_of_rows,
    noisy_blocks,
    noisy_rows,
)
from forerun.kernels.scores import Scores
from forerun.sampling import CoupledDraws

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Draws = Sequence[CoupledDraws | None]

_MARGIN: Final = 1e-9  # more than logarithms and sums of two libraries differ by
_WARPS: Final = 8


@dataclass(frozen=True)
class Best:
    """The argmax of each row on the device, and what a draw with noise starts from."""

    tokens: Tensor  # [R] int32, -1: not a row that can be served
    tops: Tensor  # [R] float32
    counts: Tensor  # [R] int32, zero


class Drawing:
    """`num_drawn` and `num_left` count rows: drawn here, and left to the host though asked for."""

    def __init__(self, options: dict[str, Any], margin: float = _MARGIN) -> None:
        self._options = options  # of a launch inside a pass
        self.margin = margin
        self._rooms: dict[tuple[int, int], _Room] = {}
        self.num_drawn = self.num_left = 0

    def best(self, logits: Tensor) -> Best:
        num, width = logits.shape
        blocks = -(-width // BLOCK)
        tops, ids, tokens, row_tops, counts = (
            torch.empty(size, dtype=dtype, device=logits.device)
            for size, dtype in (
                ((num, blocks), torch.float32),
                ((num, blocks), torch.int32),
                ((num,), torch.int32),
                ((num,), torch.float32),
                ((num,), torch.int32),
            )
        )
        if num:
            best_of_blocks[(blocks, num)](logits, tops, ids, width, BLOCK, **self._options)
            best_of_rows[(num,)](
                tops, ids, tokens, row_tops, counts, width, blocks,
                triton.next_power_of_2(blocks), **self._options,
            )  # fmt: skip
        return Best(tokens, row_tops, counts)

    def finish(self, logits: Tensor, best: Best, wanted: Sequence[int], draws: Draws) -> Scores:
        """`wanted`: how many rows each span has, in order; `logits` may have more at the end.

        One synchronisation, and a second one where a row was left to the host.
        """
        num, room = sum(wanted), self._room(*logits.shape, logits.device)
        if not any(draws):
            room.logits[:num].copy_(logits[:num], non_blocking=True)
            _synchronize(logits.device)
            return Scores(room.logits[:num].numpy().copy())
        asked = _Asked.of(wanted, draws)
        if asked.is_noisy:
            self._launch_noise(logits, best, asked, room)
        room.tokens[:num].copy_(best.tokens[:num], non_blocking=True)
        for rows in asked.as_logits:
            room.logits[rows].copy_(logits[rows], non_blocking=True)
        _synchronize(logits.device)
        return self._scores(asked, room, logits)

    def _scores(self, asked: _Asked, room: _Room, logits: Tensor) -> Scores:
        tokens: list[int | None] = room.tokens[: asked.num].tolist()
        rows: list[F32 | None] = [None] * asked.num
        for part in asked.as_logits:
            rows[part] = list(room.logits[part].numpy().copy())
            tokens[part] = [None] * (part.stop - part.start)
        for part in asked.drawn:
            for row in range(part.start, part.stop):
                if tokens[row] == -1:
                    tokens[row], rows[row] = None, logits[row].cpu().numpy()
                    self.num_left += 1
            self.num_drawn += part.stop - part.start
        return Scores(rows, tokens)

    def _launch_noise(self, logits: Tensor, best: Best, asked: _Asked, room: _Room) -> None:
        num, width = asked.num, logits.shape[1]
        blocks = -(-width // BLOCK)
        room.words_on_host[:num] = asked.words
        room.words[:num].copy_(room.host_words[:num], non_blocking=True)
        doubles = room.words.view(torch.float64)
        found = (room.bests, room.seconds, room.ids, room.weights, best.counts)
        gathered = (room.kept, room.noisy, room.kept_ids)
        noisy_blocks[(blocks, num)](
            logits, best.tops, room.words, doubles, *found, *gathered,
            width, BLOCK, DEPTH, MOST, NUM_WORDS,
        )  # fmt: skip
        noisy_rows[(num,)](
            room.words, doubles, *found, *gathered, best.tokens, self.margin,
            width, blocks, triton.next_power_of_2(blocks), DEPTH, MOST, NUM_WORDS,
            num_warps=_WARPS,
        )  # fmt: skip

    def _room(self, num: int, width: int, device: torch.device) -> _Room:
        if (num, width) not in self._rooms:
            self._rooms[num, width] = _Room(num, width, device)
        return self._rooms[num, width]


class _Room:
    """Memory for a draw of `num` rows; on the host such as the device writes to by itself."""

    def __init__(self, num: int, width: int, device: torch.device) -> None:
        self._size, self._pinned = (num, width), device.type == "cuda"
        blocks = -(-width // BLOCK)

        def on_device(dtype: torch.dtype, *size: int) -> Tensor:
            return torch.empty(size, dtype=dtype, device=device)

        self.bests, self.seconds, self.weights = (
            on_device(torch.float64, num, blocks) for _ in range(3)
        )
        self.ids = on_device(torch.int32, num, blocks)
        self.kept, self.noisy = (on_device(torch.float64, num, MOST) for _ in range(2))
        self.kept_ids = on_device(torch.int32, num, MOST)
        self.words = on_device(torch.int32, num, NUM_WORDS)
        self.host_words = self._on_host(torch.int32, num, NUM_WORDS)
        self.words_on_host: I32 = self.host_words.numpy()
        self.tokens = self._on_host(torch.int32, num)

    @cached_property
    def logits(self) -> Tensor:
        return self._on_host(torch.float32, *self._size)

    def _on_host(self, dtype: torch.dtype, *size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=self._pinned)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


@dataclass(frozen=True)
class _Asked:
    """Which rows are drawn, and how; the others come as logits."""

    words: I32  # [R, NUM_WORDS]: kind, position, key, top_k; doubles from word 8 on
    drawn: list[slice]
    as_logits: list[slice]

    @property
    def num(self) -> int:
        return len(self.words)

    @property
    def is_noisy(self) -> bool:
        return bool(self.words[:, 0].any())

    @classmethod
    def of(cls, wanted: Sequence[int], draws: Draws) -> _Asked:
        asked = cls(np.zeros((sum(wanted), NUM_WORDS), np.int32), [], [])
        first = 0
        for num, one in zip(wanted, draws, strict=True):
            rows = slice(first, first + num)
            first += num
            if one is None or one.changes_logits:
                if num:
                    asked.as_logits.append(rows)
                continue
            assert num == len(one), (num, len(one))
            asked.drawn.append(rows)
            if one.params.temperature > 0:
                asked._describe(rows, one)
        return asked

    def _describe(self, rows: slice, one: CoupledDraws) -> None:
        params, words = one.params, self.words[rows]
        truncates = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
        words[:, 0] = 2 if truncates else 1
        words[:, 1] = one.positions
        words[:, 2:4] = np.array([one.noise.key], np.uint64).view(np.int32)
        words[:, 4] = min(params.top_k, 2**31 - 1)
        least = float(np.log(params.min_p)) if params.min_p else -math.inf
        doubles = self.words.view(np.float64)[rows]
        doubles[:, 4:7] = (params.temperature, params.top_p, least)
