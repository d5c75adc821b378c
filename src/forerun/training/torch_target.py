"""The target in torch: whole sequences at once, for answers and hidden states to train on.

Its weights are those that are served, expanded. It is not the engine: bits differ a little from
what the kernel sets compute, and nothing is paged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from forerun.models.llama import EMBEDDING, HEAD
from forerun.models.rope import rope_frequencies
from forerun.models.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class _Layer:
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


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32, then in the weight's own dtype."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return normed.to(weight.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, heads, T, D], with cos and sin [B or 1, 1, T, D / 2]: halves are paired."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class TorchTarget:
    """Weights on a device, and passes over them; nothing here is trained."""

    def __init__(self, checkpoint: Checkpoint, device: str, dtype: torch.dtype) -> None:
        self.config = checkpoint.config
        self.device, self.dtype = torch.device(device), dtype
        self._checkpoint = checkpoint
        self.embedding = self._matrix(EMBEDDING)
        self.layers = [self._layer(idx) for idx in range(self.config.num_layers)]
        self.norm = self._matrix("model.norm.weight")
        self.head = self.embedding if self.config.tie_embeddings else self._matrix(HEAD)
        self._inv_freq = self._on_device(rope_frequencies(checkpoint)).float()

    def _on_device(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def _matrix(self, *names: str) -> Tensor:
        stacked = np.concatenate([self._checkpoint.float32(name) for name in names])
        return self._on_device(stacked).to(self.dtype)

    def _bias(self, *names: str) -> Tensor | None:
        return self._matrix(*names) if self._checkpoint.has(names[0]) else None

    def _layer(self, idx: int) -> _Layer:
        block = f"model.layers.{idx}"
        attn, mlp = f"{block}.self_attn", f"{block}.mlp"
        qkv, gate_up = (
            [f"{attn}.{p}_proj" for p in "qkv"],
            [f"{mlp}.{p}_proj" for p in ("gate", "up")],
        )
        return _Layer(
            self._matrix(f"{block}.input_layernorm.weight"),
            self._matrix(*(f"{name}.weight" for name in qkv)),
            self._bias(*(f"{name}.bias" for name in qkv)),
            self._bias(f"{attn}.q_norm.weight"),
            self._bias(f"{attn}.k_norm.weight"),
            self._matrix(f"{attn}.o_proj.weight"),
            self._bias(f"{attn}.o_proj.bias"),
            self._matrix(f"{block}.post_attention_layernorm.weight"),
            self._matrix(*(f"{name}.weight" for name in gate_up)),
            self._bias(*(f"{name}.bias" for name in gate_up)),
            self._matrix(f"{mlp}.down_proj.weight"),
            self._bias(f"{mlp}.down_proj.bias"),
        )

    def states(self, tokens: Tensor, layers: Sequence[int]) -> tuple[dict[int, Tensor], Tensor]:
        """Of tokens [B, T]: the residual stream after each of `layers`, and after the last norm.

        Padding belongs on the right, where no earlier token sees it.
        """
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        mask = None if self.config.sliding_window is None else self._mask(positions, positions)
        x = functional.embedding(
            tokens, self.embedding
        ).float()  # the stream is wide, products are not
        found: dict[int, Tensor] = {}
        for idx, layer in enumerate(self.layers):
            if idx in layers:
                found[idx] = x
            x = self._run(layer, x, positions, mask, None)
        if len(self.layers) in layers:
            found[len(self.layers)] = x
        return found, rms_norm(x, self.norm, self.config.rms_norm_eps)

    def logits(self, h: Tensor, ids: Tensor | None = None) -> Tensor:
        """Of all ids, or of some, in float32."""
        return functional.linear(h, self.head if ids is None else self.head[ids]).float()

    def _mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[B, 1, Q, K]: who sees whom, by position; a key at a negative one is padding."""
        q, k = queries[:, None, :, None], keys[:, None, None, :]
        mask = (k <= q) & (k >= 0)
        window = self.config.sliding_window
        return mask if window is None else mask & (k > q - window)

    def _run(
        self,
        layer: _Layer,
        x: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        kept: tuple[Tensor, Tensor, int] | None,
    ) -> Tensor:
        """One layer; without a mask each token sees all up to itself. `kept` are keys and values
        [B, G, room, D], and how many of them are there."""
        c, (num_seqs, num, _) = self.config, x.shape
        h = rms_norm(x, layer.input_norm, c.rms_norm_eps)
        qkv = functional.linear(h, layer.qkv, layer.qkv_bias).view(num_seqs, num, -1, c.head_dim)
        q, k, v = qkv.transpose(1, 2).split((c.num_heads, c.num_kv_heads, c.num_kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = (
                rms_norm(q, layer.q_norm, c.rms_norm_eps),
                rms_norm(k, layer.k_norm, c.rms_norm_eps),
            )
        angles = (positions.clamp(min=0)[..., None].float() * self._inv_freq)[:, None]
        q, k = (rotated(each, angles.cos(), angles.sin()) for each in (q, k))
        if kept is not None:
            keys, values, first = kept
            keys[:, :, first : first + num], values[:, :, first : first + num] = k, v
            k, v = keys[:, :, : first + num], values[:, :, : first + num]
        mixed = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        x = x + functional.linear(
            mixed.transpose(1, 2).reshape(num_seqs, num, -1), layer.out, layer.out_bias
        )
        h = rms_norm(x, layer.mlp_norm, c.rms_norm_eps)
        gate, up = functional.linear(h, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, layer.down, layer.down_bias)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
        temperatures: Tensor,
        stop_ids: Sequence[int],
        generator: torch.Generator,
    ) -> list[list[int]]:
        """Up to `num_tokens` new tokens after each prompt, as far as a stop id, without it."""
        c, num_seqs = self.config, len(prompts)
        width = max(map(len, prompts))
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        tokens = torch.tensor(padded, device=self.device)
        pad = torch.tensor([width - len(p) for p in prompts], device=self.device)
        positions = torch.arange(width + num_tokens, device=self.device)[None] - pad[:, None]
        size = (len(self.layers), 2, num_seqs, c.num_kv_heads, width + num_tokens, c.head_dim)
        kept = torch.zeros(size, dtype=self.dtype, device=self.device)
        stops = torch.tensor(list(stop_ids) or [-1], device=self.device)
        is_done = torch.zeros(num_seqs, dtype=torch.bool, device=self.device)
        found: list[Tensor] = []
        first, new = 0, tokens
        for step in range(num_tokens):
            last = first + new.shape[1]
            logits = self._decoded(new, positions[:, first:last], positions[:, :last], kept, first)
            chosen = _sampled(logits, temperatures, generator)
            is_done |= torch.isin(chosen, stops)
            found.append(torch.where(is_done, -1, chosen))
            first, new = last, chosen[:, None]
            if step % 16 == 15 and bool(is_done.all()):
                break
        return [[t for t in row if t >= 0] for row in torch.stack(found, dim=1).tolist()]

    def _decoded(
        self, tokens: Tensor, queries: Tensor, keys: Tensor, kept: Tensor, first: int
    ) -> Tensor:
        """The logits after the last token of each: [B, V]"""
        # A padded row would see nothing, and softmax of nothing is NaN: it sees itself.
        mask = self._mask(queries, keys)
        own = torch.arange(first, first + tokens.shape[1], device=self.device)
        mask |= torch.arange(keys.shape[1], device=self.device)[None] == own[:, None]
        x = functional.embedding(tokens, self.embedding).float()
        for layer, (k, v) in zip(self.layers, kept, strict=True):
            x = self._run(layer, x, queries, mask, (k, v, first))
        return self.logits(rms_norm(x[:, -1], self.norm, self.config.rms_norm_eps))


def _sampled(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """One token each; the best where the temperature is 0."""
    noise = torch.empty_like(logits).exponential_(generator=generator).clamp_(min=1e-20).log_()
    return (logits - temperatures[:, None] * noise).argmax(dim=-1)
