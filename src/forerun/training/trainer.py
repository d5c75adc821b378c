"""The training loop: the target writes texts, the head learns, and is measured and saved.

If the folder already has a head, a call continues its training: weights and draft vocabulary stay,
the optimiser and the learning rate start anew. Every call writes new texts; the held-out ones are
always the same.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from forerun.drafters.heads import HEAD_KINDS, HeadConfig, HeadFolder, model_fingerprint, save_head
from forerun.drafters.heads.folder import D2T, HISTORY, require_own
from forerun.errors import InvalidOption, InvalidWeights, NoDevice
from forerun.models.hf.json_file import read_json
from forerun.models.opening import load_tokenizer
from forerun.models.text.compatibility import tokenizer_hash
from forerun.models.text.tokenizer import Tokenizer
from forerun.models.weights.checkpoint import Checkpoint
from forerun.theory.curve import Point, save_curve
from forerun.training.batches import Rows
from forerun.training.learner import Learner
from forerun.training.new_head import (
    draft_vocabulary,
    first_weights,
    grown,
    kept_config,
    new_config,
)
from forerun.training.options import TrainOptions
from forerun.training.text_file import check_place, load_texts, save_texts
from forerun.training.texts import Text, TextWriter
from forerun.training.torch_heads import Weights, torch_head
from forerun.training.torch_target import TorchTarget

Report = Callable[[str], None]

_NUM_VISITS: Final = 8  # of each text, on average, before the target writes more
_WARM_UP: Final = 0.02
_SECONDS_BETWEEN: Final = 60.0  # between measurements, each with a save
_HELD_OUT_SEED: Final = 1 << 40
_NUM_HELD_OUT: Final = 128
_MAX_ROW: Final = 1024
_AT_ONCE: Final = 8  # texts measured together: their distributions over all ids take a gigabyte


@dataclass
class Progress:
    """How far a training call has come."""

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
        """Warm-up, then a cosine down to a twentieth of the highest rate."""
        if self.share < _WARM_UP:
            return self.options.highest_rate * max(self.share / _WARM_UP, 0.01)
        down = 0.5 * (1 + math.cos(math.pi * self.share))
        return self.options.highest_rate * (0.05 + 0.95 * down)


class Trainer:
    def __init__(
        self,
        checkpoint: Checkpoint,
        prompts: Sequence[Sequence[str]],
        options: TrainOptions,
        report: Report,
        texts: Sequence[Text] = (),
        target: TorchTarget | None = None,
    ) -> None:
        """Prepare a training, for which the target may have to write texts.

        `texts` are some that the target wrote before; the first of them are held out. `target` is
        the checkpoint on the device, if it is there already.
        """
        self._options, self._report = options, report
        self._num_kept = 0  # texts that the file has already
        require_own(options.out)
        if options.texts is not None:
            check_place(options.texts)
        device = torch_device(options.device)
        usual = 16 if device == "cuda" else 8
        self._batch_len = options.batch_len or (2 if options.kind == "pass" else usual)
        self._num_at_once = options.num_written or (2048 if device == "cuda" else 256)
        self._history = _history(options)
        tokenizer = load_tokenizer(checkpoint)
        self._tokenizer_files = tokenizer.files()
        self._kept: list[int] = []  # draft tokens of the head that is trained on
        self._config, weights = self._kept_or_new(checkpoint, tokenizer)
        if weights is not None:
            report(f"going on with {options.out}")
        if target is None:
            report(f"loading the target onto {device}")
            dtype = torch.bfloat16 if device == "cuda" else torch.float32
            target = TorchTarget(checkpoint, device, dtype)
        self._target = target
        self._writer = TextWriter(self._target, tokenizer, prompts, options.max_len)
        self._progress = Progress(options)
        if not texts and options.texts is not None and options.texts.exists():
            texts = load_texts(options.texts, checkpoint.config.vocab_size)
            self._num_kept = len(texts)
        self._held_out = list(texts[:_NUM_HELD_OUT])
        if not texts:
            self._held_out = self._writer.write(_NUM_HELD_OUT, _HELD_OUT_SEED)
        self._texts: list[Text] = []
        self._points: list[Point] = []  # what was measured so far
        row_len = min(2 * options.max_len, _MAX_ROW)
        self._rows = Rows(self._target, self._config.layers, row_len, _room(device))
        if texts:
            self.add(texts[_NUM_HELD_OUT:])
        else:
            self._write()
        weights = self._begun(weights, tokenizer)
        self._head = torch_head(self._config, weights, self._target)
        self._learner = Learner(
            self._target, self._head, self._tokens, self._num_places, options.loss
        )

    def _begun(self, weights: Weights | None, tokenizer: Tokenizer) -> Weights:
        """Return the weights that this call starts with, and set the draft vocabulary."""
        size, tokens = self._config.draft_vocab_size, self._kept
        if size > len(tokens):
            tokens = draft_vocabulary(self._texts, size, tokenizer.eos_ids)
        self._tokens = torch.tensor(tokens, device=self._target.device)
        first = first_weights(self._config, self._target, self._tokens, self._options.seed)
        return first if weights is None else grown(weights, first, self._kept, tokens)

    def _kept_or_new(
        self, checkpoint: Checkpoint, tokenizer: Tokenizer
    ) -> tuple[HeadConfig, Weights | None]:
        """Return config and weights of the folder's head, or the config of a new head and None.

        Options that cannot be met are rejected here, before the target writes anything.
        """
        options, c = self._options, checkpoint.config
        own: dict[str, Any] = {
            "target_hidden_size": c.hidden_size,
            "target_vocab_size": c.vocab_size,
            "target_num_layers": c.num_layers,
            "tokenizer_hash": tokenizer_hash(tokenizer),
        }
        mark: dict[str, Any] = {"target_fingerprint": model_fingerprint(checkpoint)}
        if not (options.out / "config.json").exists():
            return new_config(options, c, **own, **mark), None
        folder = HeadFolder(options.out, options.kind)
        folder.fit(**own)
        may_lack = {D2T}
        if folder.config.kind == "medusa" and not folder.is_ours:  # its norm is the target's
            mark["rms_norm_eps"] = c.rms_norm_eps
            may_lack.add("norm.weight")
        shapes = HEAD_KINDS[folder.config.kind].shapes(folder.config)
        folder.check({n: s for n, s in shapes.items() if n not in may_lack or folder.has(n)})
        self._kept = folder.draft_tokens().tolist()
        weights = {name: folder.float32(name) for name in folder.names() if name != D2T}
        return replace(kept_config(options, folder.config), **mark), weights

    def take_first_steps(self, num: int) -> None:
        """Take steps in which all is compiled and recorded, and start the clock after them."""
        chooser = np.random.default_rng(self._options.seed)
        for _ in range(num):
            self._step(chooser)
        self._progress.began = time.monotonic()

    def run(self) -> dict[str, Any]:
        """Train until the time is over; return what was measured last."""
        progress, chooser = self._progress, np.random.default_rng(self._options.seed)
        measured, last = self.measure(), time.monotonic()
        loss = torch.tensor(math.nan)
        self._say(measured, loss)
        try:
            while progress.share < 1:
                if progress.num_tokens > _NUM_VISITS * self._rows.num_tokens:
                    self._write()
                loss = self._step(chooser)
                if time.monotonic() - last > _SECONDS_BETWEEN:
                    measured, last = self.measure(), time.monotonic()
                    self.save(measured)
                    self._say(measured, loss)
        except KeyboardInterrupt:
            self._report("interrupted; saving what was learnt")
        measured = self.measure()
        self.save(measured)
        self._say(measured, loss)
        return measured

    def _write(self) -> None:
        """Have the target write more texts, with a seed that no other call or time has."""
        call = len(self._history["calls"])
        seed = (self._options.seed * 1_000_003 + call) * 1_000_003 + len(self._texts)
        self.add(self._writer.write(self._num_at_once, seed % (1 << 39)))
        if not self._rows.num_tokens:
            raise InvalidOption(
                "the target's answers fill no row: they end at once, or they are few. Give it "
                "prompts in a file, a greater --num-written or a smaller --max-len."
            )

    def add(self, texts: Sequence[Text]) -> None:
        """Add texts to train on."""
        self._texts += texts
        self._rows.add(texts)

    def _step(self, chooser: np.random.Generator) -> Tensor:
        batch = self._rows.batch(self._batch_len, self._num_places, chooser)
        loss = self._learner.step(batch, self._progress.learning_rate)
        self._progress.num_steps += 1
        self._progress.num_tokens += batch.tokens.numel()
        return loss

    @property
    def _num_places(self) -> int:
        return self._config.num_guesses or self._options.num_places or 5

    def measure(self) -> dict[str, Any]:
        """Measure each place on held-out texts, given that all guesses before it are accepted.

        `alpha` is α = Σ min(p, q) at temperature 1, `greedy` how often the best tokens agree.
        """
        sums = np.zeros((3, self._num_places))
        for first in range(0, len(self._held_out), _AT_ONCE):
            sums += self._learner.sums(self._held_out[first : first + _AT_ONCE])
        alphas, greedy = sums[:2] / np.maximum(sums[2], 1)
        return {
            "alpha": [round(float(a), 4) for a in alphas],
            "greedy": [round(float(g), 4) for g in greedy],
            "tokens_per_pass": round(1 + float(np.cumprod(greedy).sum()), 3),
        }

    def _say(self, measured: dict[str, Any], loss: Tensor) -> None:
        progress = self._progress
        self._points.append((progress.seconds, measured["alpha"]))
        if self._options.plot is not None:
            save_curve(self._options.plot, self._points)
        alphas = " ".join(f"{alpha:.2f}" for alpha in measured["alpha"])
        self._report(
            f"{progress.seconds:6.0f} s  {progress.num_steps} steps  {len(self._texts)} texts  "
            f"loss {float(loss):.3f}  α {alphas}  greedy {measured['tokens_per_pass']:.2f} a pass"
        )

    def save(self, measured: dict[str, Any]) -> None:
        """Save the head, matrices in half precision and vectors as they are, and the texts."""
        weights: dict[str, Any] = {
            name: array.astype(np.float16) if array.ndim > 1 else array
            for name, array in self._head.arrays().items()
        }
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise InvalidWeights(
                f"training diverged; {self._options.out} is as it was. Lower --learning-rate."
            )
        tokens = self._tokens.cpu().numpy()
        if D2T in HEAD_KINDS[self._config.kind].shapes(self._config):
            weights[D2T] = tokens - np.arange(len(tokens))
        progress, calls = self._progress, list(self._history["calls"])
        call = {
            "seconds": round(progress.seconds, 1),
            "steps": progress.num_steps,
            "tokens": progress.num_tokens,
            "texts": len(self._texts),
            "seed": self._options.seed,
            "loss": self._options.loss,
            "learning_rate": self._options.highest_rate,
            "device": _device_name(self._target.device),
            **measured,
        }
        history = json.dumps({"calls": [*calls, call]}, indent=2).encode()
        extra = self._tokenizer_files if self._config.kind == "distilled" else {}
        save_head(self._options.out, self._config, weights, {HISTORY: history, **extra})
        texts = [*self._held_out, *self._texts]
        if self._options.texts is not None and len(texts) > self._num_kept:
            save_texts(self._options.texts, texts)
            self._num_kept = len(texts)


def _history(options: TrainOptions) -> dict[str, Any]:
    path = options.out / HISTORY
    if not path.exists():
        return {"calls": []}
    found = read_json(path)
    if not isinstance(found.get("calls"), list):
        raise InvalidWeights(f"{path} is damaged; delete it to go on without what it says.")
    return found


def _room(device: str) -> float:
    """Return the bytes that may be used to keep the target's hidden states."""
    return 0.4 * torch.cuda.mem_get_info()[1] if device == "cuda" else 2e9


def torch_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise NoDevice("torch sees no GPU here; train with --device cpu, or on another machine.")
    return name


def _device_name(device: torch.device) -> str:
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu"
