"""Heads in torch: the same arithmetic as `drafters/heads`, over whole texts, with gradients.

`laws` gives, for each place d to guess, logits [B, S, draft V] over rows j = 0 … S - 1, where row j
of place d stands for the token at position j + 2 as it is guessed d places after the last token
whose hidden state is known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.eagle3_head import eagle3_shapes
from forerun.drafters.heads.folder import D2T
from forerun.drafters.heads.medusa import medusa_shapes
from forerun.training.torch_target import TorchTarget, rms_norm, rotated

Weights = dict[str, npt.NDArray[np.float32]]

_ATTN, _MLP = "midlayer.self_attn", "midlayer.mlp"


class TorchHead(ABC):
    """Weights by the names that the folder has."""

    def __init__(self, config: HeadConfig, weights: Weights, device: torch.device) -> None:
        self.config = config
        self.weights = {
            name: torch.from_numpy(weight.copy()).to(device).requires_grad_()
            for name, weight in weights.items()
        }

    def linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, self.weights[f"{name}.weight"])

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x.float(), self.weights[f"{name}.weight"], self.config.rms_norm_eps)

    def arrays(self) -> Weights:
        return {name: weight.detach().cpu().numpy() for name, weight in self.weights.items()}

    @abstractmethod
    def laws(self, states: Sequence[Tensor], embedded: Tensor, num_places: int) -> list[Tensor]: ...


class TorchEagle3(TorchHead):
    """Trained as it is used: its own outputs are fed back to it (training-time test)."""

    def laws(self, states: Sequence[Tensor], embedded: Tensor, num_places: int) -> list[Tensor]:
        """`states` [B, S, E] of each layer at positions 0 … S - 1, `embedded` tokens 1 … S."""
        if self.config.fc_norm:
            states = [self.norm(f"fc_norm.{idx}", x) for idx, x in enumerate(states)]
        fed = self.linear("fc", torch.cat(list(states), dim=-1)).float()
        e = self.norm("midlayer.input_layernorm", embedded)
        rows: list[tuple[Tensor, Tensor]] = []  # keys and values of each place
        found = []
        for place in range(num_places):
            if place:
                fed = _shifted(fed, 1)
            x, h = self._layer(fed, e, rows)
            fed = h if self.config.norm_output else x
            found.append(self.linear("lm_head", h))
        return found

    def _layer(
        self, x: Tensor, e: Tensor, rows: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        h = self.norm("midlayer.hidden_norm", x)
        mixed = self._attended(torch.cat((e, h), dim=-1), rows)
        x = (h if self.config.norm_before_residual else x) + self.linear(f"{_ATTN}.o_proj", mixed)
        h = self.norm("midlayer.post_attention_layernorm", x)
        gate, up = self.linear(f"{_MLP}.gate_proj", h), self.linear(f"{_MLP}.up_proj", h)
        x = x + self.linear(f"{_MLP}.down_proj", functional.silu(gate) * up)
        return x, self.norm("norm", x)

    def _attended(self, h: Tensor, rows: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Row j at place d sees rows 0 … j - d of place 0, and row j - d + i of each place i ≤ d:
        the chain of its own guesses."""
        c, (num_seqs, num, _) = self.config, h.shape
        q, k, v = (
            self.linear(f"{_ATTN}.{part}_proj", h)
            .view(num_seqs, num, -1, c.head_dim)
            .transpose(1, 2)
            for part in "qkv"
        )
        cos, sin = self._rotations(num, h.device)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        repeats = c.num_heads // c.num_kv_heads
        rows.append((k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)))
        place, (first_k, first_v) = len(rows) - 1, rows[0]
        sees = torch.ones(num, num, dtype=torch.bool, device=h.device).tril(-place)
        scores = (q @ first_k.transpose(2, 3)).masked_fill(~sees, -math.inf)
        chain = [
            (_shifted(k, place - i, 2), _shifted(v, place - i, 2))
            for i, (k, v) in enumerate(rows)
            if i
        ]
        own = [(q * k).sum(-1, keepdim=True) for k, _ in chain]
        shares = torch.cat((scores, *own), dim=-1).float().div(math.sqrt(c.head_dim)).softmax(-1)
        shares = shares.to(first_v.dtype)
        mixed = shares[..., :num] @ first_v
        for idx, (_, v) in enumerate(chain):
            mixed = mixed + shares[..., num + idx, None] * v
        return mixed.transpose(1, 2).reshape(num_seqs, num, -1)

    def _rotations(self, num: int, device: torch.device) -> tuple[Tensor, Tensor]:
        dim = self.config.head_dim
        inv_freq = self.config.rope_theta ** (-torch.arange(0, dim, 2, device=device) / dim)
        angles = torch.arange(num, device=device)[:, None] * inv_freq
        return angles.cos()[None, None], angles.sin()[None, None]


class TorchMedusa(TorchHead):
    def laws(
        self,
        states: Sequence[Tensor],
        embedded: Tensor,  # noqa: ARG002
        num_places: int,
    ) -> list[Tensor]:
        """Place d is the guess of head d; its row j is made d positions earlier."""
        h = self.norm("norm", states[0])
        found = []
        for place in range(num_places):
            linear = f"{place}.0.linear"
            block = functional.linear(
                h, self.weights[f"{linear}.weight"], self.weights[f"{linear}.bias"]
            )
            found.append(_shifted(self.linear(f"{place}.1", h + functional.silu(block)), place))
        return found


def _shifted(x: Tensor, num: int, dim: int = 1) -> Tensor:
    """Row j is what row j - num was; the first rows are 0."""
    if num == 0:
        return x
    kept = x.narrow(dim, 0, x.shape[dim] - num)
    return torch.cat((torch.zeros_like(x.narrow(dim, 0, num)), kept), dim=dim)


def torch_head(config: HeadConfig, weights: Weights, device: torch.device) -> TorchHead:
    kind = {"eagle3": TorchEagle3, "medusa": TorchMedusa}[config.kind]
    return kind(config, weights, device)


def first_weights(config: HeadConfig, target: TorchTarget, tokens: Tensor, seed: int) -> Weights:
    """Where training starts: the target's own norm and head, small random numbers elsewhere."""
    rng = np.random.default_rng(seed)
    head = target.head[tokens].float().cpu().numpy()
    weights: Weights = {}
    shapes = eagle3_shapes(config) if config.kind == "eagle3" else medusa_shapes(config)
    for name, shape in shapes.items():
        if name == D2T:
            continue
        if shape == head.shape:
            weights[name] = head
        elif name == "norm.weight":
            weights[name] = target.norm.float().cpu().numpy()
        elif len(shape) == 1 and not name.endswith("bias"):
            weights[name] = np.ones(shape, np.float32)
        elif name.endswith(("bias", "linear.weight")):  # Medusa starts as the target's next token
            weights[name] = np.zeros(shape, np.float32)
        else:
            drawn = rng.standard_normal(shape) / math.sqrt(shape[-1])
            weights[name] = drawn.astype(np.float32)
    return weights
