"""Texts to train on, written by the target itself.

Where the model has a chat template, it first writes the user's turn, from the template cut off
where that turn begins (Magpie, Xu et al. 2024) or from a few first words, then answers it. Some
turns ask about an earlier answer, some texts have no turns. Prompts of files are answered beside
these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer
from forerun.training.openers import ABOUT_A_TEXT, PLAIN, QUESTIONS
from forerun.training.torch_target import TorchTarget

_MARK = "\u2063forerun\u2063"  # stands for the user's turn while a template is taken apart
_MAX_QUESTION: Final = 96  # tokens that the target writes of a user's turn
_MAX_START: Final = 12  # and of a text without turns, before it goes on as an answer
_MAX_KEPT: Final = 4096  # answers to ask about
_GREEDY_SHARE: Final = 0.5  # of answers; the others have temperatures up to 1
_MIN_SHARE: Final = 0.15  # of answers that still go on: fewer are not waited for
_SHARES: Final = {"own": 0.3, "opened": 0.4, "about": 0.15, "plain": 0.15}


@dataclass(frozen=True)
class Text:
    tokens: list[int]
    answer: int  # where the answer begins: what is served is trained


@dataclass(frozen=True)
class Turns:
    """A chat template around the user's turn, as tokens."""

    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Turns | None:
        if not tokenizer.has_chat_template:
            return None
        whole = tokenizer.apply_chat_template([{"role": "user", "content": _MARK}])
        before, mark, after = whole.partition(_MARK)
        if not mark:
            raise InvalidOption("the chat template hides the user's turn; give prompts in a file.")
        return cls(
            tokenizer.encode(before, add_special=False), tokenizer.encode(after, add_special=False)
        )

    def around(self, question: Sequence[int]) -> list[int]:
        return [*self.before, *question, *self.after]


class TextWriter:
    """Answers of the target, at temperatures from 0 to 1, seeded."""

    def __init__(
        self, target: TorchTarget, tokenizer: Tokenizer, prompts: Sequence[str], max_len: int
    ) -> None:
        self._target, self._tokenizer, self._max_len = target, tokenizer, max_len
        self._turns = Turns.of(tokenizer)
        self._prompts = [self._encoded(prompt) for prompt in prompts]
        self._answers: list[list[int]] = []  # to ask about

    def write(self, num: int, seed: int) -> list[Text]:
        """Up to `num` texts; the same for the same calls, on one machine."""
        generator = torch.Generator(self._target.device).manual_seed(seed)
        chooser = np.random.default_rng(seed)
        prompts = self._all_prompts(num, generator, chooser)
        temperatures = chooser.uniform(0, 1, num) * (chooser.uniform(0, 1, num) > _GREEDY_SHARE)
        answers = self._generate(prompts, self._max_len, temperatures, generator)
        self._answers = [a for a in answers if len(a) > 32][:_MAX_KEPT]
        return [
            Text([*prompt, *answer, *self._end][: self._max_len], len(prompt))
            for prompt, answer in zip(prompts, answers, strict=True)
            if len(answer) > 2
        ]

    def _all_prompts(
        self, num: int, generator: torch.Generator, chooser: np.random.Generator
    ) -> list[list[int]]:
        """Of files, one half, or all where the model would not know what to ask."""
        turns, given = self._turns, list[list[int]]()
        if self._prompts:
            share = num // 2 if turns else num
            chosen = chooser.integers(len(self._prompts), size=share)
            given = [self._prompts[idx] for idx in chosen]
        own = num - len(given)
        shares = _SHARES if turns else {"plain": 1.0}
        num_about = round(shares.get("about", 0) * own) if self._answers else 0
        plain = self._plain(round(shares["plain"] * own), chooser)
        openers = self._openers(own - num_about - len(plain), chooser)
        before = turns.before if turns else []
        begun = [*([*before, *opener] for opener in openers), *plain]
        room = max(map(len, begun), default=0) + min(_MAX_QUESTION, self._longest)
        written = self._generate(begun, room, chooser.uniform(0.7, 1, len(begun)), generator)
        asked = [[*opener, *rest] for opener, rest in zip(openers, written, strict=False)]
        asked += self._about(num_about, chooser)
        pairs = zip(plain, written[len(openers) :], strict=True)
        found = [[*start, *rest[:_MAX_START]][: self._longest] for start, rest in pairs]
        if turns is None:
            return [prompt[: self._longest] for prompt in given] + found
        return [turns.around(each[: self._longest]) for each in (*given, *asked)] + found

    def _openers(self, num: int, chooser: np.random.Generator) -> list[list[int]]:
        """First words of users' turns, or none."""
        openers: list[list[int]] = [[]] * num
        whole = _SHARES["own"] + _SHARES["opened"]
        for idx in np.flatnonzero(chooser.uniform(0, whole, num) > _SHARES["own"]):
            openers[idx] = self._encoded(QUESTIONS[chooser.integers(len(QUESTIONS))])
        return openers

    def _about(self, num: int, chooser: np.random.Generator) -> list[list[int]]:
        found = []
        for _ in range(num):
            before, after = ABOUT_A_TEXT[chooser.integers(len(ABOUT_A_TEXT))].split("{}")
            answer = self._answers[chooser.integers(len(self._answers))][: self._longest // 2]
            found.append([*self._encoded(before), *answer, *self._encoded(after)])
        return found

    def _plain(self, num: int, chooser: np.random.Generator) -> list[list[int]]:
        """First words of texts, or any token."""
        first = self._tokenizer.encode("")  # what stands before every text, if anything
        openers = [self._encoded(opener) for opener in PLAIN]
        vocab_size = min(self._target.config.vocab_size, self._tokenizer.vocab_size)
        found = []
        for is_word in chooser.uniform(0, 1, num) > 0.5:
            word = openers[chooser.integers(len(openers))]
            any_token = [int(chooser.integers(vocab_size))]
            found.append([*first, *((is_word and word) or any_token)])
        return found

    @property
    def _longest(self) -> int:
        """Tokens of a question; the rest is for the answer."""
        around = len(self._turns.around([])) if self._turns else 0
        return max(1, 2 * (self._max_len - around) // 3)

    @property
    def _end(self) -> list[int]:
        """The end of an answer is worth guessing, too."""
        return list(self._tokenizer.eos_ids[:1])

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)

    def _generate(
        self,
        prompts: list[list[int]],
        max_len: int,
        temperatures: np.ndarray,
        generator: torch.Generator,
    ) -> list[list[int]]:
        if not prompts:
            return []
        device, stops = self._target.device, self._tokenizer.eos_ids
        spread = torch.from_numpy(temperatures).float().to(device)
        room = max_len - min(map(len, prompts))
        return self._target.generate(prompts, room, spread, stops, generator, max_len, _MIN_SHARE)
