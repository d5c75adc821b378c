"""Heads in torch: the same arithmetic as `drafters/heads`, over whole texts, with gradients.

A head guesses at all roots at once. At root r, the hidden states of positions 0 … r and the tokens
up to r + 1 are known, and place d guesses the token at r + 2 + d. `outputs` returns, for each
place, what `logits` reads: [B, S, E] over roots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from forerun.drafters.heads import HeadConfig
from forerun.training.attention import Grid, chain_attention, root_attention
from forerun.training.torch_target import TorchTarget, rms_norm, rotated, rotations

Weights = dict[str, npt.NDArray[np.float32]]
Rows = list[tuple[Tensor, Tensor]]  # keys and values of each place

EMBEDDING = "model.embed_tokens.weight"
LOOK_AHEAD = "look_ahead.weight"


class TorchHead(ABC):
    """A head whose weights have the names that they have in its folder."""

    max_places: int | None = None  # that the loss covers; None: all

    def __init__(self, config: HeadConfig, weights: Weights, target: TorchTarget) -> None:
        """Products are in the target's dtype; weights, sums and norms in float32."""
        self.config, self._dtype, self._target = config, target.dtype, target
        self.weights = {
            name: torch.from_numpy(weight.copy()).to(target.device).requires_grad_()
            for name, weight in weights.items()
        }
        self._cast: dict[str, Tensor] = {}

    @contextmanager
    def cast(self) -> Iterator[None]:
        """Cast the weights as they are now, for the products inside."""
        self._cast = {name: weight.to(self._dtype) for name, weight in self.weights.items()}
        yield
        self._cast = {}  # one step's tensors must not get into the recording of another

    def linear(self, name: str, x: Tensor, bias: str | None = None) -> Tensor:
        added = self._cast[bias] if bias else None
        return functional.linear(x.to(self._dtype), self._cast[f"{name}.weight"], added)

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.weights[f"{name}.weight"], self.config.rms_norm_eps)

    def arrays(self) -> Weights:
        return {name: weight.detach().cpu().numpy() for name, weight in self.weights.items()}

    @abstractmethod
    def outputs(self, states: Sequence[Tensor], tokens: Tensor, num_places: int) -> list[Tensor]:
        """Return the output of each place [B, S, E].

        `states` are [B, S, E] of each layer at positions 0 … S - 1, `tokens` are [B, S + 1].
        """

    def embedded(self, tokens: Tensor) -> Tensor:
        """Embed all tokens but the first."""
        return functional.embedding(tokens[:, 1:], self._target.embedding)

    def rows(
        self, states: Sequence[Tensor], tokens: Tensor, roots: Tensor, counts: Sequence[int]
    ) -> list[Tensor]:
        """Return `outputs` at some `roots` of B · S only: at place d, the first `counts`[d].

        Counts never grow from place to place.
        """
        found = self.outputs(states, tokens, len(counts))
        pairs = zip(found, counts, strict=True)
        return [each.flatten(0, 1).index_select(0, roots[:num]) for each, num in pairs]

    def logits(self, rows: Tensor, place: int, before: Tensor) -> Tensor:  # noqa: ARG002
        """Return logits [N, draft V] of rows [N, E] of a place's output.

        `before` [N] are the draft ids of the tokens before the guessed ones; draft V for tokens
        outside the draft vocabulary.
        """
        if "lm_head.weight" in self.weights:
            return self.linear("lm_head", rows)
        return functional.linear(rows.to(self._dtype), self._target.head)

    def heads(self, x: Tensor, name: str) -> Tensor:
        """Project x [..., S, E] and split it into heads: [..., heads, S, D]"""
        found = self.linear(name, x)
        return found.unflatten(-1, (-1, self.config.head_dim)).transpose(-2, -3)

    def mlp(self, name: str, h: Tensor) -> Tensor:
        gate, up = (self.linear(f"{name}.{part}_proj", h) for part in ("gate", "up"))
        return self.linear(f"{name}.down_proj", functional.silu(gate) * up)

    def _rest(self, layer: str, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the residual stream after a layer whose attention returned `mixed`."""
        x = x + self.linear(f"{layer}.self_attn.o_proj", mixed)
        return x + self.mlp(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", x))

    def _attended(self, layer: str, h: Tensor, rows: Rows) -> Tensor:
        """Attend from the next place d, whose keys and values are added to `rows`.

        Place d of a root sees the text up to that root, and places 1 … d of the same root.
        """
        c, (num_seqs, num, _) = self.config, h.shape
        q, k, v = (self.heads(h, f"{layer}.self_attn.{part}_proj") for part in "qkv")
        place = len(rows)
        cos, sin = _rotations(c, torch.arange(place, num + place, device=h.device))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        rows.append((_repeated(k, c), _repeated(v, c)))
        mixed = chain_attention(q, *rows[0], rows[1:])
        return mixed.transpose(1, 2).reshape(num_seqs, num, -1)


class TorchFedBack(TorchHead):
    """A head that is trained as it is used, on its own outputs fed back (training-time test)."""

    def outputs(self, states: Sequence[Tensor], tokens: Tensor, num_places: int) -> list[Tensor]:
        fed, e = self._fused(states), self._entered(self.embedded(tokens))
        rows: Rows = []
        found = []
        for place in range(num_places):
            fed, h = self._layer(fed, ahead(e, place), rows)
            found.append(h)
        return found

    @abstractmethod
    def _fused(self, states: Sequence[Tensor]) -> Tensor:
        """Return the known hidden states in the form in which outputs are fed back."""

    @abstractmethod
    def _entered(self, embedded: Tensor) -> Tensor:
        """Norm the embeddings."""

    @abstractmethod
    def _layer(self, x: Tensor, e: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return what is fed back, and what `logits` reads."""


class TorchEagle3(TorchFedBack):
    def _fused(self, states: Sequence[Tensor]) -> Tensor:
        if self.config.fc_norm:
            states = [self.norm(f"fc_norm.{idx}", x) for idx, x in enumerate(states)]
        return self.linear("fc", torch.cat(list(states), dim=-1)).float()

    def _entered(self, embedded: Tensor) -> Tensor:
        return self.norm("midlayer.input_layernorm", embedded)

    def _layer(self, x: Tensor, e: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        h = self.norm("midlayer.hidden_norm", x)
        mixed = self._attended("midlayer", torch.cat((e, h), dim=-1), rows)
        x = self._rest("midlayer", h if self.config.norm_before_residual else x, mixed)
        h = self.norm("norm", x)
        return (h if self.config.norm_output else x), h


class TorchMtp(TorchFedBack):
    def _fused(self, states: Sequence[Tensor]) -> Tensor:
        return states[0].float()

    def _entered(self, embedded: Tensor) -> Tensor:
        return self.norm("mtp.pre_fc_norm_embedding", embedded)

    def _layer(self, x: Tensor, e: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        layer, h = "mtp.layers.0", self.norm("mtp.pre_fc_norm_hidden", x)
        x = self.linear("mtp.fc", torch.cat((e, h), dim=-1)).float()
        mixed = self._attended(layer, self.norm(f"{layer}.input_layernorm", x), rows)
        x = self._rest(layer, x, mixed)
        return x, self.norm("mtp.norm", x)


class TorchMedusa(TorchHead):
    def outputs(
        self,
        states: Sequence[Tensor],
        tokens: Tensor,  # noqa: ARG002
        num_places: int,
    ) -> list[Tensor]:
        return [self.norm("norm", states[0])] * num_places

    def logits(self, rows: Tensor, place: int, before: Tensor) -> Tensor:  # noqa: ARG002
        linear = f"{place}.0.linear"
        block = self.linear(linear, rows, f"{linear}.bias")
        return self.linear(f"{place}.1", rows + functional.silu(block))


class TorchBlockwise(TorchMedusa):
    def logits(self, rows: Tensor, place: int, before: Tensor) -> Tensor:  # noqa: ARG002
        return self.linear("lm_head", rows + self.mlp(f"places.{place}", rows))


class TorchBlock(TorchHead):
    """All places of all roots at once.

    Places after the first run only at the roots that are asked. So does the first in the last
    layer, except for its keys and values.
    """

    def outputs(self, states: Sequence[Tensor], tokens: Tensor, num_places: int) -> list[Tensor]:
        shape = states[0].shape[:2]
        roots = torch.arange(shape.numel(), device=tokens.device)
        found = self.rows(states, tokens, roots, [len(roots)] * num_places)
        return [each.unflatten(0, shape) for each in found]

    def rows(
        self, states: Sequence[Tensor], tokens: Tensor, roots: Tensor, counts: Sequence[int]
    ) -> list[Tensor]:
        embedded = self.embedded(tokens)
        parts = [self.norm(f"fc_norm.{idx}", x) for idx, x in enumerate((embedded, *states))]
        known = self.linear("fc", torch.cat(parts, dim=-1)).float().flatten(0, 1)
        places = self.weights["places.weight"]
        pairs = zip(places, counts[1:], strict=False)
        streams = [known, *(known.index_select(0, roots[:num]) + place for place, num in pairs)]
        num_seqs, num_rows, _ = embedded.shape
        grids = [Grid(num_seqs, num_rows, roots[:num]) for num in counts]
        for idx in range(self.config.num_hidden_layers):
            is_last = idx == self.config.num_hidden_layers - 1
            streams = self._layer(f"layers.{idx}", streams, grids, is_last=is_last)
        return list(self.norm("norm", torch.cat(streams)).split(list(counts)))

    def _layer(
        self, layer: str, streams: Sequence[Tensor], grids: Sequence[Grid], *, is_last: bool
    ) -> list[Tensor]:
        """Run one layer.

        The first of `streams` has all rows [B · S, E], and only its roots [N, E] after the last
        layer; each of the others has the roots of its place.
        """
        positions = grids[0].positions
        at = [positions, *(positions[g.roots] + d for d, g in enumerate(grids[1:], start=1))]
        sizes = [len(x) for x in streams]
        (q, *later_q), (k, *later_k), (v, *later_v) = (
            each.split(sizes) for each in self._qkv(layer, torch.cat(list(streams)), torch.cat(at))
        )
        keys, values = (grids[0].laid(each) for each in (k, v))
        seen = chain_attention(grids[0].laid(q), keys, values, [])
        mixed = [grids[0].picked(seen) if is_last else seen.transpose(1, 2).flatten(0, 1)]
        chain = list(zip(later_k, later_v, strict=True))
        for place, (one, grid) in enumerate(zip(later_q, grids[1:], strict=True), start=1):
            near = [(k[: len(one)], v[: len(one)]) for k, v in chain[:place]]
            mixed.append(root_attention(one, keys, values, near, grid))
        first = streams[0].index_select(0, grids[0].roots) if is_last else streams[0]
        x = torch.cat((first, *streams[1:]))
        x = x + self.linear(f"{layer}.self_attn.o_proj", torch.cat(mixed).flatten(1))
        h, mlp = self.norm(f"{layer}.post_attention_layernorm", x), f"{layer}.mlp"
        gate, up = self.joint(h, f"{mlp}.gate_proj", f"{mlp}.up_proj").chunk(2, dim=-1)
        x = x + self.linear(f"{mlp}.down_proj", functional.silu(gate) * up)
        return list(x.split([len(each) for each in mixed]))

    def _qkv(self, layer: str, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v [N, heads, D] of rows [N, E] at `positions` [N]."""
        c, h = self.config, self.norm(f"{layer}.input_layernorm", x)
        qkv = self.joint(h, *(f"{layer}.self_attn.{part}_proj" for part in "qkv"))
        qkv = qkv.unflatten(-1, (-1, c.head_dim))
        qk, v = qkv.split((c.num_heads + c.num_kv_heads, c.num_kv_heads), dim=1)
        cos, sin = (each[:, None] for each in _rotations(c, positions))
        q, k = rotated(qk, cos, sin).split((c.num_heads, c.num_kv_heads), dim=1)
        return q, _repeated(k, c), _repeated(v, c)

    def joint(self, x: Tensor, *names: str) -> Tensor:
        """Return the products of x with several matrices, concatenated."""
        matrix = torch.cat([self._cast[f"{name}.weight"] for name in names])
        return functional.linear(x.to(self._dtype), matrix)

    def logits(self, rows: Tensor, place: int, before: Tensor) -> Tensor:
        if not place:  # the first place has the token before it as an input
            return self.linear("lm_head", rows)
        table = self._cast["markov.embedding.weight"]
        padded = torch.cat((table, torch.zeros_like(table[:1])))
        rows = rows.to(self._dtype)
        step = (1 + self.linear("markov.gate", rows)) * padded.index_select(0, before)
        # One product, not a sum of two: logits are the largest tensors here.
        both = torch.cat((self._cast["lm_head.weight"], self._cast["markov.out.weight"]), dim=1)
        return functional.linear(torch.cat((rows, step), dim=1), both)


class TorchLookAhead(TorchHead):
    """Runs look-ahead tokens after the roots that are asked through the target's own layers."""

    def outputs(self, states: Sequence[Tensor], tokens: Tensor, num_places: int) -> list[Tensor]:
        shape = torch.Size((len(tokens), tokens.shape[1] - 1))
        roots = torch.arange(shape.numel(), device=tokens.device)
        found = self.rows(states, tokens, roots, [len(roots)] * num_places)
        return [each.unflatten(0, shape) for each in found]

    def rows(
        self,
        states: Sequence[Tensor],  # noqa: ARG002
        tokens: Tensor,
        roots: Tensor,
        counts: Sequence[int],
    ) -> list[Tensor]:
        target, (num_seqs, num) = self._target, tokens.shape
        last = roots + roots // (num - 1) + 1  # of B · T: the last known token of each root
        grids = [Grid(num_seqs, num, last[:count]) for count in counts]
        text = functional.embedding(tokens, target.embedding).float()
        blank = target.embedding[0].float() + self.weights[LOOK_AHEAD]
        sizes = list(counts[1:])
        x = torch.cat([one.expand(size, -1) for one, size in zip(blank, sizes, strict=False)])[None]
        positions = grids[0].positions
        along = target.rotations(positions[None, :num])
        behind = [positions[grid.roots] + step for step, grid in enumerate(grids[1:], start=1)]
        around = target.rotations(torch.cat(behind)[None])
        for layer in target.layers:
            with torch.no_grad():
                q, k, v = target.projected(layer, text, along)
                k, v = (_repeated(each, self.config) for each in (k, v))
                text = target.behind(layer, text, chain_attention(q, k, v, []))
            q, *own = target.projected(layer, x, around)
            wide = (q, *(_repeated(each, self.config) for each in own))
            q, *own = (each[0].transpose(0, 1).split(sizes) for each in wide)  # [N, H, D] each
            chain = list(zip(*own, strict=True))
            mixed = []
            for place, (one, grid) in enumerate(zip(q, grids[1:], strict=True), start=1):
                near = [(k_[: len(one)], v_[: len(one)]) for k_, v_ in chain[:place]]
                mixed.append(root_attention(one, k, v, near, grid))
            x = target.behind(layer, x, torch.cat(mixed).transpose(0, 1)[None])
        whole = torch.cat((text.flatten(0, 1).index_select(0, last), x[0]))
        return list(rms_norm(whole, target.norm, self.config.rms_norm_eps).split(list(counts)))


class TorchDistilled(TorchHead):
    """A model of its own: place d of root r is what it says after the token at r + 1 + d."""

    max_places = 1

    def outputs(
        self,
        states: Sequence[Tensor],  # noqa: ARG002
        tokens: Tensor,
        num_places: int,
    ) -> list[Tensor]:
        # The backward pass of `embedding` waits for the host, which cannot be recorded.
        x = self.weights[EMBEDDING].index_select(0, tokens.flatten()).unflatten(0, tokens.shape)
        for layer in (f"model.layers.{idx}" for idx in range(self.config.num_hidden_layers)):
            mixed = self._attended(layer, self.norm(f"{layer}.input_layernorm", x), [])
            x = self._rest(layer, x, mixed)
        found = self.norm("model.norm", x)[:, 1:]
        return [ahead(found, place) for place in range(num_places)]

    def logits(self, rows: Tensor, place: int, before: Tensor) -> Tensor:  # noqa: ARG002
        return functional.linear(rows.to(self._dtype), self._cast[EMBEDDING])


def _rotations(config: HeadConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    dim = config.head_dim
    steps = torch.arange(0, dim, 2, device=positions.device)
    return rotations(config.rope_theta ** (-steps / dim), positions)


def _repeated(x: Tensor, config: HeadConfig) -> Tensor:
    """[N, G, …] -> [N, H, …]: each is repeated for the queries of its group."""
    repeats = config.num_heads // config.num_kv_heads
    return x.unsqueeze(2).expand(-1, -1, repeats, *x.shape[2:]).flatten(1, 2)


def ahead(x: Tensor, num: int) -> Tensor:
    """Return x with row r + num at row r; the last rows are 0."""
    if num == 0:
        return x
    return torch.cat((x[:, num:], torch.zeros_like(x[:, :num])), dim=1)


def torch_head(config: HeadConfig, weights: Weights, target: TorchTarget) -> TorchHead:
    kinds: dict[str, type[TorchHead]] = {
        "block": TorchBlock,
        "blockwise": TorchBlockwise,
        "distilled": TorchDistilled,
        "eagle3": TorchEagle3,
        "medusa": TorchMedusa,
        "mtp": TorchMtp,
        "pass": TorchLookAhead,
    }
    return kinds[config.kind](config, weights, target)
