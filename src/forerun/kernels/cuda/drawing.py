"""From logits on the device to tokens, or to logits on the host where a row is not drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from forerun.kernels.cuda.asked_draws import U32, AskedDraws, Draws
from forerun.kernels.cuda.draws import (
    BLOCK,
    DEPTH,
    MOST,
    NUM_WORDS,
    best_of_blocks,
    best_of_rows,
    change_rows,
    noisy_blocks,
    noisy_rows,
    widen_rows,
)
from forerun.kernels.cuda.host_copies import NUM_TURNS, HostCopies, HostCopy
from forerun.kernels.cuda.rounds.kernels import move_positions
from forerun.kernels.scores import Scores

F32 = npt.NDArray[np.float32]

MAX_ROWS: Final = 256  # of a pass whose tokens the next pass may read
_MARGIN: Final = 1e-9  # more than the two libraries' logarithms and sums differ by
_WARPS: Final = 8


@dataclass(frozen=True)
class Best:
    """The argmax of each row on the device, and what a draw with noise starts from."""

    tokens: Tensor  # [R] int32; -1: the row cannot be served
    tops: Tensor  # [R] float32
    counts: Tensor  # [R] int32, zero


@dataclass(frozen=True)
class Started:
    """Draws that were launched and not waited for."""

    asked: AskedDraws
    copy: HostCopy  # of the tokens [R]


class Drawing:
    """Draws tokens on the device: `num_asked` rows so far, `num_left` of them left to the host.

    The tokens of the last pass stay on the device, in `drawn`, where the next pass may read them.
    """

    def __init__(
        self, options: dict[str, Any], device: torch.device | str = "cpu", margin: float = _MARGIN
    ) -> None:
        self._options = options  # of launches inside a pass
        self.margin = margin
        self.drawn = torch.zeros(MAX_ROWS, dtype=torch.int32, device=device)
        self.last: Started | None = None  # the draws whose tokens `drawn` has
        self._copies = HostCopies()  # of `drawn`
        self._rooms: dict[tuple[int, int], _Room] = {}
        self.num_asked = self.num_left = 0

    def best(self, logits: Tensor) -> Best:
        num, width = logits.shape
        blocks = -(-width // BLOCK)
        tops, ids, row_tops, counts = (
            torch.empty(size, dtype=dtype, device=logits.device)
            for size, dtype in (
                ((num, blocks), torch.float32),
                ((num, blocks), torch.int32),
                ((num,), torch.float32),
                ((num,), torch.int32),
            )
        )
        tokens = self.drawn if num <= MAX_ROWS else torch.empty_like(counts)
        if num:
            best_of_blocks[(blocks, num)](
                logits, None, tops, ids, width, BLOCK, False, NUM_WORDS, **self._options
            )
            best_of_rows[(num,)](
                tops, ids, None, tokens, row_tops, counts, width, blocks,
                triton.next_power_of_2(blocks), False, NUM_WORDS, **self._options,
            )  # fmt: skip
        return Best(tokens, row_tops, counts)

    def finish(self, logits: Tensor, best: Best, wanted: Sequence[int], draws: Draws) -> Scores:
        """Draw the rows that `draws` describe, and wait for the tokens.

        `wanted`: how many rows each span has, in order; `logits` may have more rows at the end.
        Synchronises once, and again for each row that is left to the host.
        """
        if not any(draws):
            return self.all_logits(logits, sum(wanted))
        asked = self.asked(logits, wanted, draws)
        return self.wait(self.start(logits, best, asked), logits)

    def all_logits(self, logits: Tensor, num: int) -> Scores:
        self.last, room = None, self._room(logits)
        room.logits[:num].copy_(logits[:num], non_blocking=True)
        _synchronize(logits.device)
        return Scores(room.logits[:num].numpy().copy())

    def asked(self, logits: Tensor, wanted: Sequence[int], draws: Draws) -> AskedDraws:
        return AskedDraws.of(wanted, draws, self._room(logits).num, logits.shape[1])

    def start(
        self, logits: Tensor, best: Best, asked: AskedDraws, count: Tensor | None = None
    ) -> Started:
        """Launch the draws; with `count`, a number on the device, for positions that much later."""
        if asked.is_noisy or asked.changes_logits:
            self._launch(logits, best, asked, self._room(logits), count)
        for rows in asked.as_logits:
            self._room(logits).logits[rows].copy_(logits[rows], non_blocking=True)
        copies = self._copies if best.tokens is self.drawn else HostCopies()
        self.last = Started(asked, copies.start(best.tokens))
        return self.last

    def wait(self, started: Started, logits: Tensor) -> Scores:
        """Wait for the draws; `logits` must still be as the pass left them."""
        return self.scores(started, self.tokens(started), logits)

    def tokens(self, started: Started) -> list[int]:
        """Wait, and return the token of each row, -1 for a row that is left to the host."""
        tokens: list[int] = started.copy.wait()[: started.asked.num].tolist()
        return tokens

    def scores(self, started: Started, tokens: Sequence[int], logits: Tensor) -> Scores:
        asked = started.asked
        rows: list[F32 | None] = [None] * asked.num
        if not asked.as_logits and -1 not in tokens:
            self.num_asked += asked.num
            return Scores(rows, tokens)
        found: list[int | None] = [*tokens]
        for part in asked.as_logits:
            rows[part] = list(self._room(logits).logits[part].numpy().copy())
            found[part] = [None] * (part.stop - part.start)
        for part in asked.drawn:
            for row in range(part.start, part.stop):
                if tokens[row] == -1:
                    found[row], rows[row] = None, logits[row].cpu().numpy()
                    self.num_left += 1
            self.num_asked += part.stop - part.start
        return Scores(rows, found)

    def _launch(
        self, logits: Tensor, best: Best, asked: AskedDraws, room: _Room, count: Tensor | None
    ) -> None:
        """Launch what `best` does not cover: changed logits and noise."""
        room.send_words(asked)
        if count is not None:
            block = triton.next_power_of_2(asked.num)
            move_positions[(1,)](room.words, count, asked.num, NUM_WORDS, block)
        if asked.changes_logits:
            self._launch_changes(logits, best, asked, room)
        if asked.is_noisy:
            self._launch_noise(logits, best, asked, room)

    def _launch_changes(self, logits: Tensor, best: Best, asked: AskedDraws, room: _Room) -> None:
        num, width, wide = asked.num, logits.shape[1], room.wide
        blocks = -(-width // BLOCK)
        masks = room.send_masks(asked.masks)
        widen_rows[(blocks, num)](logits, room.words, masks, wide, width, BLOCK, NUM_WORDS)
        if asked.num_changes:
            tokens, changes = room.send_changes(asked)
            change_rows[(num,)](
                wide, room.words, tokens, changes, width, BLOCK, NUM_WORDS, enable_fp_fusion=False
            )
        best_of_blocks[(blocks, num)](
            wide, room.words, room.bests, room.ids, width, BLOCK, True, NUM_WORDS, PDL=0
        )
        best_of_rows[(num,)](
            room.bests, room.ids, room.words, best.tokens, room.wide_tops, best.counts, width,
            blocks, triton.next_power_of_2(blocks), True, NUM_WORDS, PDL=0,
        )  # fmt: skip

    def _launch_noise(self, logits: Tensor, best: Best, asked: AskedDraws, room: _Room) -> None:
        num, width = asked.num, logits.shape[1]
        blocks, changed = -(-width // BLOCK), asked.changes_logits
        doubles = room.words.view(torch.float64)
        found = (room.bests, room.seconds, room.ids, room.weights, best.counts)
        gathered = (room.kept, room.noisy, room.kept_ids)
        noisy_blocks[(blocks, num)](
            logits, best.tops, room.wide if changed else None, room.wide_tops, room.words, doubles,
            *found, *gathered, changed, width, BLOCK, DEPTH, MOST, NUM_WORDS,
        )  # fmt: skip
        noisy_rows[(num,)](
            room.words, doubles, *found, *gathered, best.tokens, self.margin,
            width, blocks, triton.next_power_of_2(blocks), DEPTH, MOST, NUM_WORDS,
            num_warps=_WARPS,
        )  # fmt: skip

    def _room(self, logits: Tensor) -> _Room:
        num, width = logits.shape
        size = 1 << max(0, num - 1).bit_length(), width
        room = self._rooms.get(size)
        if room is None:
            room = self._rooms[size] = _Room(*size, logits.device)
        return room


class _Room:
    """Memory for draws of up to `num` rows; host memory is pinned, for asynchronous copies."""

    def __init__(self, num: int, width: int, device: torch.device) -> None:
        self.num = num
        self._size, self._pinned = (num, width), device.type == "cuda"
        self._num_changes = 0  # changed logits that there is room for
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
        self.wide_tops = on_device(torch.float64, num)
        self._words_on_host = [self._on_host(torch.int32, num, NUM_WORDS) for _ in range(NUM_TURNS)]
        self._turn = 0

    def send_words(self, asked: AskedDraws) -> None:
        self._turn = (self._turn + 1) % NUM_TURNS
        host = self._words_on_host[self._turn]
        host.numpy()[: asked.num] = asked.words
        self.words.copy_(host, non_blocking=True)

    def send_changes(self, asked: AskedDraws) -> tuple[Tensor, Tensor]:
        """Send tokens and the changes of their logits, without waiting for the pass."""
        if asked.num_changes > self._num_changes:
            self._num_changes = triton.next_power_of_2(asked.num_changes)
            sizes = ((torch.int32, (self._num_changes,)), (torch.float64, (self._num_changes, 3)))
            self._changes_on_host = [self._on_host(dtype, *size) for dtype, size in sizes]
            self._changes = [
                torch.empty(size, dtype=dtype, device=self.words.device) for dtype, size in sizes
            ]
        found = (np.concatenate(asked.tokens), np.concatenate(asked.changes))
        for array, host, device in zip(found, self._changes_on_host, self._changes, strict=True):
            host.numpy()[: len(array)] = array
            device[: len(array)].copy_(host[: len(array)], non_blocking=True)
        tokens, changes = self._changes
        return tokens, changes

    def send_masks(self, masks: Sequence[U32]) -> Tensor:
        """Send the masks and return them on the device; without masks the result is not read."""
        host, device = self._masks
        for row, mask in enumerate(masks):
            host.numpy()[row] = mask.view(np.int32)
        device[: len(masks)].copy_(host[: len(masks)], non_blocking=True)
        return device

    @cached_property
    def _masks(self) -> tuple[Tensor, Tensor]:
        size = self._size[0], -(-self._size[1] // 32)
        return self._on_host(torch.int32, *size), torch.empty(
            size, dtype=torch.int32, device=self.words.device
        )

    @cached_property
    def wide(self) -> Tensor:
        """Changed logits, on the device."""
        return torch.empty(self._size, dtype=torch.float64, device=self.words.device)

    @cached_property
    def logits(self) -> Tensor:
        return self._on_host(torch.float32, *self._size)

    def _on_host(self, dtype: torch.dtype, *size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=self._pinned)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
