"""The loop: the target writes, the head learns, and what it has learnt is measured and saved.

Every call goes on from the folder it is given, if there is a head in it: weights and draft
vocabulary stay, the optimiser and the learning rate start anew. Texts are new in every call, the
held-out ones are always the same.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from forerun.drafters.heads import HeadConfig, HeadFolder, save_head
from forerun.drafters.heads.folder import D2T, HISTORY, require_own
from forerun.errors import InvalidOption, InvalidWeights, NoDevice
from forerun.models.hf.json_file import read_json
from forerun.models.opening import load_tokenizer
from forerun.models.text.compatibility import tokenizer_hash
from forerun.models.text.tokenizer import Tokenizer
from forerun.models.weights.checkpoint import Checkpoint
from forerun.training.options import TrainOptions
from forerun.training.texts import Text, TextWriter
from forerun.training.torch_heads import TorchHead, first_weights, torch_head
from forerun.training.torch_target import TorchTarget

Report = Callable[[str], None]

_NUM_VISITS: Final = 6  # of a text, on average, before the target writes more
_DISCOUNT: Final = 0.8  # of the loss, from one place to the next
_WARM_UP: Final = 0.02
_SECONDS_BETWEEN: Final = 60.0  # measurements, each with a save
_HELD_OUT_SEED: Final = 1 << 40


@dataclass
class Progress:
    """How far a call is."""

    options: TrainOptions
    began: float = field(default_factory=time.monotonic)
    num_tokens: int = 0
    num_steps: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def share(self) -> float:
        """0 at the start, 1 at the end."""
        shares = [0.0]
        if self.options.seconds is not None:
            shares.append(self.seconds / self.options.seconds)
        if self.options.tokens is not None:
            shares.append(self.num_tokens / self.options.tokens)
        return min(1.0, max(shares))

    @property
    def learning_rate(self) -> float:
        """Up for a moment, then down to a twentieth along a cosine."""
        if self.share < _WARM_UP:
            return self.options.learning_rate * max(self.share / _WARM_UP, 0.01)
        down = 0.5 * (1 + math.cos(math.pi * self.share))
        return self.options.learning_rate * (0.05 + 0.95 * down)


class Trainer:
    def __init__(
        self, checkpoint: Checkpoint, prompts: Sequence[str], options: TrainOptions, report: Report
    ) -> None:
        self._options, self._report = options, report
        require_own(options.out)
        device = _device(options.device)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        tokenizer = load_tokenizer(checkpoint)
        report(f"loading the target onto {device}")
        self._target = TorchTarget(checkpoint, device, dtype)
        self._writer = TextWriter(
            self._target, tokenizer, prompts, options.max_len, options.num_written
        )
        self._progress = Progress(options)
        self._held_out = self._writer.write(_HELD_OUT_SEED)[: 4 * options.batch_len]
        self._texts: list[Text] = []
        self._num_written = 0  # tokens
        self._history = _history(options)
        self._write()
        self._config, self._tokens, self._head = self._begin(tokenizer)
        self._optimizer = torch.optim.AdamW(
            list(self._head.weights.values()),
            lr=options.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.01,
        )

    def _begin(self, tokenizer: Tokenizer) -> tuple[HeadConfig, Tensor, TorchHead]:
        """The head of the folder, or a new one."""
        options, target = self._options, self._target
        if (options.out / "config.json").exists():
            folder = HeadFolder(options.out, options.kind)
            config = folder.config
            own: dict[str, Any] = {
                "target_hidden_size": target.config.hidden_size,
                "target_vocab_size": target.config.vocab_size,
                "target_num_layers": target.config.num_layers,
                "tokenizer_hash": tokenizer_hash(tokenizer),
            }
            config.check_target(options.out, **own)
            config = replace(config, **own)  # a head of another engine's did not say
            tokens = torch.from_numpy(folder.draft_tokens()).to(target.device)
            weights = {name: folder.float32(name) for name in folder.names() if name != D2T}
            self._report(f"going on with {options.out}")
        else:
            found = draft_vocabulary(self._texts, options.draft_vocab_size, tokenizer.eos_ids)
            tokens = torch.tensor(found, device=target.device)
            config = new_config(options, target, tokenizer_hash(tokenizer), len(found))
            weights = first_weights(config, target, tokens, options.seed)
        return config, tokens, torch_head(config, weights, target.device)

    def run(self) -> dict[str, Any]:
        """Train until the time is over; what was measured last."""
        progress, chooser = self._progress, np.random.default_rng(self._options.seed)
        measured, last = self.measure(), time.monotonic()
        self._say(measured, math.nan)
        loss = math.nan
        try:
            while progress.share < 1:
                if progress.num_tokens > _NUM_VISITS * self._num_written:
                    self._write()
                loss = self._step(self._chosen(chooser))
                if time.monotonic() - last > _SECONDS_BETWEEN:
                    measured, last = self.measure(), time.monotonic()
                    self._say(measured, loss)
                    self.save(measured)
        except KeyboardInterrupt:
            self._report("interrupted; saving what was learnt")
        measured = self.measure()
        self._say(measured, loss)
        self.save(measured)
        return measured

    def _write(self) -> None:
        """More texts, of seeds that no other call or round has."""
        call = len(self._history["calls"])
        seed = (self._options.seed * 1_000_003 + call) * 1_000_003 + len(self._texts)
        written = self._writer.write(seed % (1 << 39))
        self._texts += written
        self._num_written += sum(len(text.tokens) for text in written)
        if not self._texts:
            raise InvalidOption("the target ends its answers at once; give it prompts in a file.")

    def _chosen(self, chooser: np.random.Generator) -> list[Text]:
        """Of about one length, so that little is padding."""
        anchor = len(self._texts[int(chooser.integers(len(self._texts)))].tokens)
        drawn = chooser.integers(len(self._texts), size=4 * self._options.batch_len)
        near = sorted(drawn.tolist(), key=lambda i: abs(len(self._texts[i].tokens) - anchor))
        return [self._texts[i] for i in near[: self._options.batch_len]]

    def _step(self, texts: Sequence[Text]) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self._progress.learning_rate
        total, num = self._loss(texts)
        (total / num).backward()
        torch.nn.utils.clip_grad_norm_(list(self._head.weights.values()), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._progress.num_steps += 1
        self._progress.num_tokens += sum(len(text.tokens) for text in texts)
        return float(total.detach() / num)

    def _loss(self, texts: Sequence[Text]) -> tuple[Tensor, Tensor]:
        """The sum over places, and how many rows one place has."""
        laws, h, masks = self._laws(texts)
        logits_p = self._target.logits(h, self._tokens)  # [B, S, draft V]
        if self._options.loss == "tv":
            known = torch.logsumexp(self._target.logits(h), dim=-1, keepdim=True)
            probs_p = (logits_p - known).exp()
        else:
            probs_p = logits_p.softmax(-1)
        total = torch.zeros((), device=h.device)
        for place, (logits_q, mask) in enumerate(zip(laws, masks, strict=True)):
            logp_q = functional.log_softmax(logits_q.float(), dim=-1)
            if self._options.loss == "tv":
                each = 1 - torch.minimum(probs_p, logp_q.exp()).sum(-1)
            else:
                each = functional.kl_div(logp_q, probs_p, reduction="none").sum(-1)
            total = total + _DISCOUNT**place * (each * mask).sum()
        return total, masks[0].sum().clamp(min=1)

    def _laws(self, texts: Sequence[Text]) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """The head's logits at each place, the target's normed stream that they are held against,
        and which rows count: those that guess tokens of the answer from tokens of the text."""
        device = self._target.device
        width = max(len(text.tokens) for text in texts)
        tokens = torch.zeros(len(texts), width, dtype=torch.long, device=device)
        for row, text in enumerate(texts):
            tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
        states, h = self._target.states(tokens, self._config.layers)
        embedded = functional.embedding(tokens[:, 1:], self._target.embedding)
        features = [states[layer][:, :-1] for layer in self._config.layers]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            laws = self._head.laws(features, embedded, self._num_places)
        guessed = torch.arange(2, width + 1, device=device)  # the position that a row guesses
        lens = torch.tensor([len(text.tokens) for text in texts], device=device)[:, None]
        starts = torch.tensor([text.answer for text in texts], device=device)[:, None]
        mask = (guessed >= starts) & (guessed < lens)
        masks = [mask & (guessed >= 2 + place) for place in range(self._num_places)]
        return laws, h[:, 1:], masks

    @property
    def _num_places(self) -> int:
        return self._config.num_guesses or self._options.num_places

    def measure(self) -> dict[str, Any]:
        """On held-out texts: α = Σ min(p, q) at temperature 1, and how often the best tokens agree,
        at each place, given that all before it held."""
        size = self._options.batch_len
        sums = np.zeros((3, self._num_places))  # of α, of agreements, and of rows
        with torch.no_grad():
            for first in range(0, len(self._held_out), size):
                sums += self._sums(self._held_out[first : first + size])
        alphas, greedy = sums[:2] / np.maximum(sums[2], 1)
        return {
            "alpha": [round(float(a), 4) for a in alphas],
            "greedy": [round(float(g), 4) for g in greedy],
            "tokens_per_pass": round(1 + float(np.cumprod(greedy).sum()), 3),
        }

    def _sums(self, texts: Sequence[Text]) -> npt.NDArray[np.float64]:
        laws, h, masks = self._laws(texts)
        probs_p = self._target.logits(h).softmax(-1)
        best = probs_p.argmax(-1)
        found = []
        for logits_q, mask in zip(laws, masks, strict=True):
            probs_q = logits_q.float().softmax(-1)
            common = torch.minimum(probs_p[..., self._tokens], probs_q).sum(-1)
            agree = self._tokens[logits_q.argmax(-1)] == best
            found.append([float(x.sum()) for x in (common * mask, agree & mask, mask)])
        return np.array(found).T

    def _say(self, measured: dict[str, Any], loss: float) -> None:
        progress = self._progress
        alphas = " ".join(f"{alpha:.2f}" for alpha in measured["alpha"])
        self._report(
            f"{progress.seconds:6.0f} s  {progress.num_steps} steps  {len(self._texts)} texts  "
            f"loss {loss:.3f}  α {alphas}  greedy {measured['tokens_per_pass']:.2f} a pass"
        )

    def save(self, measured: dict[str, Any]) -> None:
        """Matrices in half precision, norms as they are."""
        weights: dict[str, Any] = {
            name: array.astype(np.float16) if array.ndim > 1 else array
            for name, array in self._head.arrays().items()
        }
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise InvalidWeights(
                f"training diverged; {self._options.out} is as it was. Lower --learning-rate."
            )
        tokens = self._tokens.cpu().numpy()
        weights[D2T] = tokens - np.arange(len(tokens))
        progress, calls = self._progress, list(self._history["calls"])
        call = {
            "seconds": round(progress.seconds, 1),
            "steps": progress.num_steps,
            "tokens": progress.num_tokens,
            "texts": len(self._texts),
            "seed": self._options.seed,
            "loss": self._options.loss,
            "learning_rate": self._options.learning_rate,
            "device": _device_name(self._target.device),
            **measured,
        }
        history = json.dumps({"calls": [*calls, call]}, indent=2).encode()
        save_head(self._options.out, self._config, weights, {HISTORY: history})


def new_config(
    options: TrainOptions, target: TorchTarget, tokenizer: str, draft_vocab_size: int
) -> HeadConfig:
    """A layer of the target's own shape, or one Medusa head for each place."""
    c = target.config
    common: dict[str, Any] = {
        "kind": options.kind,
        "target_hidden_size": c.hidden_size,
        "target_vocab_size": c.vocab_size,
        "target_num_layers": c.num_layers,
        "tokenizer_hash": tokenizer,
        "draft_vocab_size": draft_vocab_size,
        "rms_norm_eps": c.rms_norm_eps,
    }
    if options.kind == "medusa":
        return HeadConfig(layers=(c.num_layers,), num_guesses=options.num_places, **common)
    return HeadConfig(
        layers=_layers(options, c.num_layers),
        intermediate_size=c.intermediate_size,
        num_heads=c.num_heads,
        num_kv_heads=c.num_kv_heads,
        head_dim=c.head_dim,
        rope_theta=c.rope_theta,
        max_len=c.max_len,
        fc_norm=not options.exportable,
        norm_output=not options.exportable,
        **common,
    )


def _layers(options: TrainOptions, num_layers: int) -> tuple[int, ...]:
    layers = tuple(options.layers or default_layers(num_layers))
    if layers[-1] > num_layers:
        raise InvalidOption(f"layers {list(layers)} go beyond the target's {num_layers}.")
    return layers


def default_layers(num_layers: int) -> tuple[int, ...]:
    """Low, middle and high, as EAGLE-3's checkpoints have them."""
    low, high = min(2, num_layers // 2), max(num_layers - 3, num_layers // 2 + 1)
    return tuple(sorted({low, num_layers // 2, high}))


def draft_vocabulary(texts: Sequence[Text], size: int, needed: Sequence[int]) -> list[int]:
    """The ids that answers use most, and those that end them."""
    counts = Counter(token for text in texts for token in text.tokens[text.answer :])
    most = [token for token, _ in counts.most_common(size) if token not in needed]
    return sorted({*needed, *most[: max(0, size - len(needed))]})


def _history(options: TrainOptions) -> dict[str, Any]:
    path = options.out / HISTORY
    if not path.exists():
        return {"calls": []}
    found = read_json(path)
    if not isinstance(found.get("calls"), list):
        raise InvalidWeights(f"{path} is damaged; delete it to go on without what it says.")
    return found


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise NoDevice("torch sees no GPU here; train with --device cpu, or on another machine.")
    return name


def _device_name(device: torch.device) -> str:
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu"
