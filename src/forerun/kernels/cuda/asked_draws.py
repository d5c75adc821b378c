"""Draws as the kernels read them: options of each row as words, and changes of single logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cuda.draws import NUM_WORDS
from forerun.sampling import CoupledDraws
from forerun.types import IntArray

I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]
F64 = npt.NDArray[np.float64]
Draws = Sequence[CoupledDraws | None]

MAX_CHANGED: Final = 1 << 23  # logits of a pass that may be widened to float64 and changed


@dataclass
class AskedDraws:
    """Which rows are drawn on the device, and how; the other rows come to the host as logits."""

    # [R, NUM_WORDS]: kind, position, key (two), top_k, first change, number of changes, mask (0:
    # none); doubles from word 8 on: temperature, top_p, log min_p
    words: I32
    drawn: list[slice] = field(default_factory=list)
    as_logits: list[slice] = field(default_factory=list)
    tokens: list[IntArray] = field(default_factory=list)  # whose logits are changed, row by row
    changes: list[F64] = field(default_factory=list)  # [n, 3]: addend, factor, subtrahend
    num_changes: int = 0
    masks: list[U32] = field(default_factory=list)  # [⌈V / 32⌉] each: a bit for each token
    is_noisy: bool = False

    @classmethod
    def of(cls, wanted: Sequence[int], draws: Draws, num_rows: int, vocab_size: int) -> AskedDraws:
        """Describe `draws`, of which each has as many rows as `wanted` says.

        `num_rows`: as many as the pass has room for.
        """
        asked = cls(np.zeros((sum(wanted), NUM_WORDS), np.int32))
        may_change = num_rows * vocab_size <= MAX_CHANGED
        first = 0
        for num, one in zip(wanted, draws, strict=True):
            rows = slice(first, first + num)
            first += num
            if one is None or (one.changes_logits and not may_change):
                if num:
                    asked.as_logits.append(rows)
                continue
            assert num == len(one), (num, len(one))
            asked.drawn.append(rows)
            if one.params.temperature > 0:
                asked._describe(rows, one)
            if one.params.moves_logits or len(one.context.output) < one.params.min_tokens:
                asked._change(rows, one, vocab_size)
            if one.changes_logits:
                asked._mask(rows, one, vocab_size)
        return asked

    @classmethod
    def after(cls, draws: Sequence[CoupledDraws]) -> AskedDraws:
        """Describe the next token of each of `draws`, one row each; none may change logits."""
        asked = cls(np.zeros((len(draws), NUM_WORDS), np.int32))
        for row, one in enumerate(draws):
            if one.params.temperature > 0:
                asked._describe(slice(row, row + 1), one)
        asked.words[:, 1] += 1
        asked.drawn.append(slice(0, len(draws)))
        return asked

    @classmethod
    def next_round(cls, draw: CoupledDraws) -> AskedDraws:
        """Describe the rows of `draw` again, one position later; it must not change logits."""
        asked = cls(np.zeros((len(draw), NUM_WORDS), np.int32))
        asked.drawn.append(slice(0, len(draw)))
        if draw.params.temperature > 0:
            asked._describe(asked.drawn[0], draw)
            asked.words[:, 1] += 1
        return asked

    @property
    def num(self) -> int:
        return len(self.words)

    @property
    def changes_logits(self) -> bool:
        return bool(self.num_changes or self.masks)

    def _describe(self, rows: slice, one: CoupledDraws) -> None:
        params, words = one.params, self.words[rows]
        truncates = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
        words[:, 0] = 2 if truncates else 1
        self.is_noisy = True
        words[:, 1] = one.positions
        words[:, 2:4] = np.array([one.noise.key], np.uint64).view(np.int32)
        words[:, 4] = min(params.top_k, 2**31 - 1)
        least = float(np.log(params.min_p)) if params.min_p else -math.inf
        doubles = self.words.view(np.float64)[rows]
        doubles[:, 4:7] = (params.temperature, params.top_p, least)

    def _change(self, rows: slice, one: CoupledDraws, vocab_size: int) -> None:
        """List the changes of `sampling.served_logits`, for each node with its own ancestors."""
        params = one.params
        prompt, output = np.array(one.context.prompt, int), np.array(one.context.output, int)
        known = [each for each in params.logit_bias.items() if each[0] < vocab_size]
        bias = np.array(known, float).reshape(-1, 2)
        ends = (*params.stop_token_ids, *(() if params.ignore_eos else one.eos_token_ids))
        for row, node in zip(range(rows.start, rows.stop), one.nodes, strict=True):
            written = np.append(output, np.array(one.proposal.path_tokens(node), int))
            masked = [t for t in ends if t < vocab_size and len(written) < params.min_tokens]
            counted, counts = np.unique(written, return_counts=True)
            seen = np.union1d(prompt, written) if params.repetition_penalty != 1 else prompt[:0]
            parts = (bias[:, 0].astype(int), np.array(masked, int), seen, counted)
            tokens = np.unique(np.concatenate(parts))
            changes = np.tile([0.0, 1.0, 0.0], (len(tokens), 1))
            changes[np.searchsorted(tokens, parts[0]), 0] = bias[:, 1]
            changes[np.searchsorted(tokens, parts[1]), 0] = -np.inf
            changes[np.searchsorted(tokens, seen), 1] = params.repetition_penalty
            less = params.presence_penalty + params.frequency_penalty * counts
            changes[np.searchsorted(tokens, counted), 2] = less
            self.words[row, 5:7] = (self.num_changes, len(tokens))
            self.num_changes += len(tokens)
            self.tokens.append(tokens)
            self.changes.append(changes)

    def _mask(self, rows: slice, one: CoupledDraws, vocab_size: int) -> None:
        """Add the mask of what may follow each node.

        A row of which a grammar allows no token is drawn as -1, so the host decides, provided
        that accepted guesses lead there.
        """
        size = -(-vocab_size // 32)
        for row, allowed in zip(range(rows.start, rows.stop), one.allowed(), strict=True):
            if allowed is not None:
                bits = allowed[: 4 * size].ljust(4 * size, b"\0")
                self.masks.append(np.frombuffer(bits, np.uint32))
                self.words[row, 7] = len(self.masks)
