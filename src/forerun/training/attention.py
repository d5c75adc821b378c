"""Attention of guesses to the text up to a root and to the guesses made after that root."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


def chain_attention(q: Tensor, k: Tensor, v: Tensor, chain: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attend from row r of q to rows 0 … r of k and v, and to row r of each pair in `chain`.

    All are [B, H, S, D]. There is one fused pass over the text, whatever the length of the chain,
    and nothing of size S x S.
    """
    if not chain:
        plain: Tensor = _flash(q, k, v)[0]
        return plain
    keys, values = (torch.stack(each, dim=3) for each in zip(*chain, strict=True))
    mixed: Tensor = _ChainAttention.apply(q, k, v, keys, values)
    return mixed


class _ChainAttention(torch.autograd.Function):  # type: ignore[misc]
    """Flash attention over the text, to which further keys are added by its log-sum-exp.

    Flash attention's backward pass computes softmax weights anew from the log-sum-exp. Given that
    of the whole sum, and the whole output, its gradients are those of the text's part of the whole.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """`keys` and `values` are [B, H, S, n, D]."""
        out, lse, *rest = _flash(q, k, v)
        scores = (q[..., None, :] * keys).sum(-1).float() / math.sqrt(q.shape[-1])
        whole = torch.logsumexp(torch.cat((lse[..., None], scores), dim=-1), dim=-1)
        shares = (scores - whole[..., None]).exp()  # [B, H, S, n]
        out = out.float() * (lse - whole).exp()[..., None]
        out = (out + (shares[..., None] * values).sum(-2)).to(q.dtype)
        # The fused backward pass reads it in the layout that the forward pass wrote.
        whole = torch.empty_like(lse).copy_(whole)
        ctx.save_for_backward(q, k, v, keys, values, out, whole, shares)
        ctx.rest = rest
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        q, k, v, keys, values, out, whole, shares = ctx.saved_tensors
        grad = grads[0].to(q.dtype)
        d_q, d_k, d_v = _flash_backward(grad, q, k, v, out, whole, ctx.rest)
        mean = (grad.float() * out.float()).sum(-1, keepdim=True)
        d_scores = shares * ((grad[..., None, :] * values).sum(-1).float() - mean)
        d_scores = (d_scores / math.sqrt(q.shape[-1])).to(q.dtype)[..., None]
        d_q = d_q + (d_scores * keys).sum(-2)
        d_values = shares.to(q.dtype)[..., None] * grad[..., None, :]
        return d_q, d_k, d_v, d_scores * q[..., None, :], d_values


@dataclass(frozen=True)
class Grid:
    """Rows of B texts of S positions, and those that are asked: roots [N], without repetition."""

    num_seqs: int
    num: int
    roots: Tensor

    def first(self, num: int) -> Grid:
        return replace(self, roots=self.roots[:num])

    @property
    def positions(self) -> Tensor:
        """Positions of all rows: [B · S]"""
        return torch.arange(self.num, device=self.roots.device).repeat(self.num_seqs)

    def laid(self, x: Tensor) -> Tensor:
        """[B · S, H, …] -> [B, H, S, …]"""
        return x.unflatten(0, (self.num_seqs, self.num)).transpose(1, 2)

    def spread(self, x: Tensor, on: Tensor | None = None) -> Tensor:
        """[N, H, …] -> [B, H, S, …], with the values of `on`, or zeros, at all other rows."""
        flat = x.new_zeros(self.num_seqs * self.num, *x.shape[1:]) if on is None else _flat(on)
        return self.laid(flat.index_copy(0, self.roots, x))

    def picked(self, x: Tensor) -> Tensor:
        """[B, H, S, …] -> [N, H, …]"""
        return _flat(x).index_select(0, self.roots)


def _flat(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1)


def root_attention(
    q: Tensor, k: Tensor, v: Tensor, chain: list[tuple[Tensor, Tensor]], grid: Grid
) -> Tensor:
    """As `chain_attention`, at the grid's roots only: q and the chain's pairs are [N, H, D]."""
    keys, values = (torch.stack(each, dim=2) for each in zip(*chain, strict=True))
    mixed: Tensor = _RootAttention.apply(q, k, v, keys, values, grid)
    return mixed


class _RootAttention(torch.autograd.Function):  # type: ignore[misc]
    """`_ChainAttention` at the roots only, except for the fused passes, which cover all rows."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, grid: Grid
    ) -> Tensor:
        """`keys` and `values` are [N, H, n, D]."""
        wide = grid.spread(q)
        seen, lse, *rest = _flash(wide, k, v)
        own = grid.picked(lse)
        scores = torch.einsum("nhd,nhcd->nhc", q, keys).float() / math.sqrt(q.shape[-1])
        whole = torch.logsumexp(torch.cat((own[..., None], scores), dim=-1), dim=-1)
        shares = (scores - whole[..., None]).exp()  # [N, H, n]
        out = grid.picked(seen).float() * (own - whole).exp()[..., None]
        out = (out + torch.einsum("nhc,nhcd->nhd", shares.to(q.dtype), values)).to(q.dtype)
        # The fused backward pass reads both in the layout that the forward pass wrote.
        lse = torch.empty_like(lse).copy_(grid.spread(whole.to(lse.dtype), on=lse))
        seen = torch.empty_like(seen).copy_(grid.spread(out))
        ctx.save_for_backward(q, wide, k, v, keys, values, seen, out, lse, shares)
        ctx.rest, ctx.grid = rest, grid
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, wide, k, v, keys, values, seen, out, lse, shares = ctx.saved_tensors
        grad = grads[0].to(q.dtype)
        d_wide, d_k, d_v = _flash_backward(ctx.grid.spread(grad), wide, k, v, seen, lse, ctx.rest)
        mean = (grad.float() * out.float()).sum(-1, keepdim=True)
        d_scores = shares * (torch.einsum("nhd,nhcd->nhc", grad, values).float() - mean)
        d_scores = (d_scores / math.sqrt(q.shape[-1])).to(q.dtype)
        d_q = ctx.grid.picked(d_wide) + torch.einsum("nhc,nhcd->nhd", d_scores, keys)
        d_keys = d_scores[..., None] * q[:, :, None]
        d_values = shares.to(q.dtype)[..., None] * grad[:, :, None]
        return d_q, d_k, d_v, d_keys, d_values, None


def _flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Any, ...]:
    """Return the output, the log-sum-exp [B, H, S], and what else the backward pass needs."""
    aten = torch.ops.aten
    if q.device.type == "cpu":
        return tuple(aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True))
    return tuple(aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[:8])


def _flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, rest: list[Any]
) -> tuple[Tensor, Tensor, Tensor]:
    aten = torch.ops.aten
    if q.device.type == "cpu":
        found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, True
        )
    else:
        *sizes, seed, offset = rest
        found = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, *sizes, 0.0, True, seed, offset
        )
    d_q, d_k, d_v = found
    return d_q, d_k, d_v
