"""The target in torch: whole sequences at once, for answers and hidden states to train on.

Its weights are those that are served, expanded. It is not the engine: its results differ slightly
from those of the kernel sets, and nothing is paged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from forerun.models.llama import EMBEDDING, HEAD
from forerun.models.rope import rope_frequencies
from forerun.models.weights.checkpoint import Checkpoint
from forerun.training.graphs import Graphed

_TOKENS_AT_ONCE: Final = 1 << 18  # of prompts that are read in one pass
Rotations = tuple[Tensor, Tensor]  # cos and sin of each position


@dataclass(frozen=True)
class Layer:
    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True)
class _Kept:
    """Keys and values of one layer, [B, G, room, D], and where a pass writes.

    `where` is one row of each sequence (its index and its position, [B]); None: from the first row
    on.
    """

    keys: Tensor
    values: Tensor
    where: tuple[Tensor, Tensor] | None

    def written(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k and v, and return the keys and values that queries see."""
        if self.where is None:
            self.keys[:, :, : k.shape[2]], self.values[:, :, : k.shape[2]] = k, v
            return k, v
        idx, position = self.where
        self.keys[idx, :, position], self.values[idx, :, position] = k[:, :, 0], v[:, :, 0]
        return self.keys, self.values


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm in float32, whatever the dtype of x."""
    return functional.rms_norm(x.float(), weight.shape, weight, eps)


def rotations(inv_freq: Tensor, positions: Tensor) -> Rotations:
    """Return cos, and sin with the sign with which each half is added to the other: [..., T, D]"""
    angles = positions[..., None].float() * inv_freq
    return torch.cat([angles.cos()] * 2, dim=-1), torch.cat((-angles.sin(), angles.sin()), dim=-1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, heads, T, D] by `rotations` of matching shape; halves are paired."""
    wide = x.float()
    return torch.addcmul(wide * cos, wide.roll(x.shape[-1] // 2, -1), sin).to(x.dtype)


class TorchTarget:
    """The target's weights on a device, and passes over them; they are never trained."""

    def __init__(self, checkpoint: Checkpoint, device: str, dtype: torch.dtype) -> None:
        self.config = checkpoint.config
        self.device, self.dtype = torch.device(device), dtype
        self._checkpoint = checkpoint
        self.embedding = self._matrix(EMBEDDING)
        self.layers = [self._layer(idx) for idx in range(self.config.num_layers)]
        self.norm = self._vector("model.norm.weight")
        self.head = self.embedding if self.config.tie_embeddings else self._matrix(HEAD)
        self._inv_freq = self._on_device(rope_frequencies(checkpoint)).float()

    def _on_device(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _matrix(self, *names: str) -> Tensor:
        stacked = np.concatenate([self._checkpoint.float32(name) for name in names])
        return self._on_device(stacked).to(self.dtype)

    def _vector(self, name: str) -> Tensor:
        return self._on_device(self._checkpoint.float32(name))

    def _bias(self, *names: str) -> Tensor | None:
        return self._matrix(*names) if self._checkpoint.has(names[0]) else None

    def _norm_of(self, name: str) -> Tensor | None:
        return self._vector(name) if self._checkpoint.has(name) else None

    def _layer(self, idx: int) -> Layer:
        block = f"model.layers.{idx}"
        attn, mlp = f"{block}.self_attn", f"{block}.mlp"
        qkv, gate_up = (
            [f"{attn}.{p}_proj" for p in "qkv"],
            [f"{mlp}.{p}_proj" for p in ("gate", "up")],
        )
        return Layer(
            self._vector(f"{block}.input_layernorm.weight"),
            self._matrix(*(f"{name}.weight" for name in qkv)),
            self._bias(*(f"{name}.bias" for name in qkv)),
            self._norm_of(f"{attn}.q_norm.weight"),
            self._norm_of(f"{attn}.k_norm.weight"),
            self._matrix(f"{attn}.o_proj.weight"),
            self._bias(f"{attn}.o_proj.bias"),
            self._vector(f"{block}.post_attention_layernorm.weight"),
            self._matrix(*(f"{name}.weight" for name in gate_up)),
            self._bias(*(f"{name}.bias" for name in gate_up)),
            self._matrix(f"{mlp}.down_proj.weight"),
            self._bias(f"{mlp}.down_proj.bias"),
        )

    def states(self, tokens: Tensor, layers: Sequence[int]) -> tuple[dict[int, Tensor], Tensor]:
        """Return the residual stream of tokens [B, T] after each of `layers`, and the last norm's.

        Padding belongs on the right, where no earlier token sees it.
        """
        with torch.no_grad():
            return self._states(tokens, layers, None)

    def _states(
        self, tokens: Tensor, layers: Sequence[int], kept: Tensor | None
    ) -> tuple[dict[int, Tensor], Tensor]:
        """As `states`; all layers' keys and values go to `kept` [layers, 2, B, G, room, D]."""
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        mask = None if self.config.sliding_window is None else self._mask(positions, positions)
        x = functional.embedding(tokens, self.embedding).float()  # the residual stream is float32
        found: dict[int, Tensor] = {}
        around = self.rotations(positions)
        for idx, layer in enumerate(self.layers):
            if idx in layers:
                found[idx] = x
            to = None if kept is None else _Kept(kept[idx, 0], kept[idx, 1], None)
            x = self._run(layer, x, around, mask, to)
        if len(self.layers) in layers:
            found[len(self.layers)] = x
        return found, rms_norm(x, self.norm, self.config.rms_norm_eps).to(self.dtype)

    def logits(self, h: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return float32 logits of all ids, or of `ids`."""
        return functional.linear(h, self.head if ids is None else self.head[ids]).float()

    def _mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return which query sees which key [B, 1, Q, K], by position."""
        q, k = queries[:, None, :, None], keys[:, None, None, :]
        window = self.config.sliding_window
        return k <= q if window is None else (k <= q) & (k > q - window)

    def _run(
        self,
        layer: Layer,
        x: Tensor,
        around: Rotations,
        mask: Tensor | None,
        kept: _Kept | None,
    ) -> Tensor:
        """Run one layer; without a mask, each token sees all tokens up to itself."""
        c, (num_seqs, num, _) = self.config, x.shape
        q, k, v = self.projected(layer, x, around)
        if kept is not None:
            k, v = kept.written(k, v)
        is_decoding = kept is not None and kept.where is not None
        if is_decoding:  # queries of one group are rows of one product
            q = q.reshape(num_seqs, c.num_kv_heads, -1, c.head_dim)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=not is_decoding
        ).reshape(num_seqs, c.num_heads, num, c.head_dim)
        return self.behind(layer, x, mixed)

    def projected(self, layer: Layer, x: Tensor, around: Rotations) -> tuple[Tensor, ...]:
        """Return queries, keys and values of x [B, T, E]: [B, heads, T, D]"""
        c, (num_seqs, num, _) = self.config, x.shape
        num_both = c.num_heads + c.num_kv_heads
        h = rms_norm(x, layer.input_norm, c.rms_norm_eps).to(self.dtype)
        qkv = functional.linear(h, layer.qkv, layer.qkv_bias).view(num_seqs, num, -1, c.head_dim)
        qkv = qkv.transpose(1, 2)
        qk, v = qkv[:, :num_both], qkv[:, num_both:]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = qk.split((c.num_heads, c.num_kv_heads), dim=1)
            q, k = (
                rms_norm(q, layer.q_norm, c.rms_norm_eps),
                rms_norm(k, layer.k_norm, c.rms_norm_eps),
            )
            qk = torch.cat((q, k), dim=1).to(self.dtype)
        q, k = rotated(qk, *around).split((c.num_heads, c.num_kv_heads), dim=1)
        return q, k, v

    def behind(self, layer: Layer, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the residual stream after a layer with attention `mixed` [B, heads, T, D]."""
        c = self.config
        x = x + functional.linear(mixed.transpose(1, 2).flatten(2), layer.out, layer.out_bias)
        h = rms_norm(x, layer.mlp_norm, c.rms_norm_eps).to(self.dtype)
        gate, up = functional.linear(h, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, layer.down, layer.down_bias)

    def rotations(self, positions: Tensor) -> Rotations:
        """Return the rotations of positions [B or 1, T]: [B or 1, 1, T, D]"""
        cos, sin = rotations(self._inv_freq, positions)
        return cos[:, None], sin[:, None]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        temperatures: Tensor,
        stop_ids: Sequence[int],
        generator: torch.Generator,
        max_len: int | None = None,
        min_share: float = 0.0,
    ) -> list[list[int]]:
        """Generate up to `num_tokens` after each prompt, up to and including a stop id.

        No text gets longer than `max_len`. Generation ends for all once no more than `min_share` of
        the answers are still going on.
        """
        last = max(map(len, prompts)) + num_tokens
        last = last if max_len is None else min(max_len, last)
        with torch.no_grad():
            found = self._generated(
                prompts, num_tokens, last, temperatures, stop_ids, generator, min_share
            )
        return [[t for t in row if t >= 0] for row in found.tolist()]

    def _generated(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        last: int,
        temperatures: Tensor,
        stop_ids: Sequence[int],
        generator: torch.Generator,
        min_share: float,
    ) -> Tensor:
        """Return [B, tokens], -1 after an answer's end.

        Whenever half of the answers have ended, these are taken out of the batch.
        """
        c, num_seqs = self.config, len(prompts)
        width = max(map(len, prompts))
        room = _whole(last)
        padded = np.zeros((num_seqs, width), np.int64)
        for row, prompt in zip(padded, prompts, strict=True):
            row[: len(prompt)] = prompt
        position = self._on_device(np.array([len(prompt) - 1 for prompt in prompts]))
        size = (len(self.layers), 2, num_seqs, c.num_kv_heads, room, c.head_dim)
        kept = torch.zeros(size, dtype=self.dtype, device=self.device)
        h = self._read(self._on_device(padded), position, kept)
        stops = torch.tensor(list(stop_ids) or [-1], device=self.device)
        is_done = torch.zeros(num_seqs, dtype=torch.bool, device=self.device)
        going = torch.arange(num_seqs, device=self.device)  # rows of `found`
        chosen, at = torch.zeros_like(position), torch.zeros_like(position)
        found = torch.full((num_seqs, num_tokens), -1, device=self.device)
        num_seen = 0
        for step in range(num_tokens):
            chosen.copy_(_sampled(self.logits(h), temperatures, generator))
            position = position + 1
            is_done |= position >= last
            found[going, step] = torch.where(is_done, -1, chosen)
            is_done |= torch.isin(chosen, stops)
            num_going = int((~is_done).sum()) if step % 16 == 15 else len(going)
            if step == num_tokens - 1 or num_going <= min_share * num_seqs:
                break
            if num_going <= len(going) // 2:
                left = (~is_done).nonzero()[:, 0]
                kept = kept.index_select(2, left)
                going, position, temperatures = going[left], position[left], temperatures[left]
                chosen, at, is_done, num_seen = chosen[left], at[left], is_done[left], 0
            at.copy_(position.clamp(max=room - 1))  # ended answers go on, unread
            if num_seen != min(room, _whole(width + step + 1)):
                num_seen = min(room, _whole(width + step + 1))
                run = partial(self._decoded, chosen, at, kept[:, :, :, :, :num_seen])
                decoded = Graphed(run, self.device)
            h = decoded()
        return found

    def _read(self, padded: Tensor, position: Tensor, kept: Tensor) -> Tensor:
        """Read prompts, a part of them at a time; return the last hidden states at `position` [B].

        The result is [B, E].
        """
        num = max(1, _TOKENS_AT_ONCE // padded.shape[1])
        parts = zip(padded.split(num), position.split(num), kept.split(num, dim=2), strict=True)
        found = []
        for tokens, last, to in parts:
            _, h = self._states(tokens, (), to)
            found.append(h[torch.arange(len(h), device=self.device), last])
        return torch.cat(found)

    def _decoded(self, tokens: Tensor, position: Tensor, kept: Tensor) -> Tensor:
        """Run one more token [B] of each at `position` [B]; return last hidden states [B, E]."""
        queries = position[:, None]
        mask = self._mask(queries, torch.arange(kept.shape[4], device=self.device)[None])
        bias = torch.zeros_like(mask, dtype=self.dtype).masked_fill_(~mask, -torch.inf)
        x = functional.embedding(tokens[:, None], self.embedding).float()
        around = self.rotations(queries)
        where = torch.arange(len(tokens), device=self.device), position
        for layer, (k, v) in zip(self.layers, kept, strict=True):
            x = self._run(layer, x, around, bias, _Kept(k, v, where))
        return rms_norm(x[:, 0], self.norm, self.config.rms_norm_eps).to(self.dtype)


def _whole(num: int) -> int:
    """Round up to whole blocks of keys: few shapes, and masks that fused kernels accept."""
    return -(-num // 128) * 128


def _sampled(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """Sample one token for each row; the best where the temperature is 0."""
    noise = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=1e-20).log_()
    return (logits - temperatures[:, None] * noise).argmax(dim=-1)
