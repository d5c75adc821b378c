"""Texts to train on, written by the target itself.

If the model has a chat template, it first writes the user's turn, from the template cut off where
that turn begins (Magpie, Xu et al. 2024) or from a few first words, and then answers it. Some
turns ask about an earlier answer, and some texts have no turns. Prompts from files are answered as
well, each once before any is repeated; a prompt with a second turn gives a second text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer
from forerun.training.openers import ABOUT_A_TEXT, PLAIN, QUESTIONS
from forerun.training.torch_target import TorchTarget

_MARKS = ("\u2063one\u2063", "\u2063two\u2063", "\u2063three\u2063")  # for turns, in a template
_FILE_SHARE: Final = 0.75  # of texts that answer prompts from files, if there are any
_MAX_ANSWER: Final = 256  # tokens: later ones mostly repeat what was said
_MAX_POSITIONS: Final = 1 << 21  # of all texts that are generated at once, prompts included
_MAX_QUESTION: Final = 96  # tokens that the target writes of a user's turn
_MAX_START: Final = 12  # the same for a text without turns, whose answer begins after them
_MAX_KEPT: Final = 4096  # answers to ask about
_GREEDY_SHARE: Final = 0.5  # of answers; the others have temperatures up to 1
_MIN_SHARE: Final = 0.15  # of answers still being generated: fewer are not waited for
_SHARES: Final = {"own": 0.3, "opened": 0.4, "about": 0.15, "plain": 0.15}


@dataclass(frozen=True)
class Text:
    tokens: list[int]
    answer: int  # where the answer begins: only answers are trained on


@dataclass(frozen=True)
class Turns:
    """The tokens of a chat template around the user's turn."""

    before: list[int]
    after: list[int]
    between: list[int]  # between an answer and the next user's turn

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Turns | None:
        if not tokenizer.has_chat_template:
            return None
        roles = zip(("user", "assistant", "user"), _MARKS, strict=True)
        whole = tokenizer.apply_chat_template([{"role": r, "content": text} for r, text in roles])
        found = re.split("|".join(_MARKS), whole)
        if len(found) != len(_MARKS) + 1:
            raise InvalidOption("the chat template hides turns; give prompts in a file.")
        before, after, between, _ = (tokenizer.encode(part, add_special=False) for part in found)
        return cls(before, after, between)

    def around(self, question: Sequence[int]) -> list[int]:
        return [*self.before, *question, *self.after]


class TextWriter:
    """Has the target write prompts and answers, at temperatures from 0 to 1, seeded."""

    def __init__(
        self,
        target: TorchTarget,
        tokenizer: Tokenizer,
        prompts: Sequence[Sequence[str]],
        max_len: int,
    ) -> None:
        """`prompts` are the user's turns of each conversation."""
        self._target, self._tokenizer, self._max_len = target, tokenizer, max_len
        self._turns = Turns.of(tokenizer)
        self._prompts = prompts
        self._given = itertools.cycle(np.random.default_rng(0).permutation(len(prompts)))
        self._answers: list[list[int]] = []  # of the last call, to ask about

    def write(self, num: int, seed: int) -> list[Text]:
        """Return about `num` texts; the same calls return the same texts on one machine."""
        generator = torch.Generator(self._target.device).manual_seed(seed)
        chooser = np.random.default_rng(seed)
        share = 0 if not self._prompts else num if self._turns is None else int(_FILE_SHARE * num)
        given = [self._prompts[idx] for idx in itertools.islice(self._given, share)]
        prompts = [self._around(turns[0]) for turns in given]
        prompts += self._own_prompts(num - share, generator, chooser)
        texts = self._answered(prompts, generator, chooser)
        self._answers = [a for t in texts if len(a := t.tokens[t.answer :]) > 32][:_MAX_KEPT]
        more = self._followed(texts[:share], given) if self._turns else []
        texts += self._answered(more, generator, chooser)
        return [text for text in texts if len(text.tokens) > text.answer + 2]

    def _answered(
        self, prompts: list[list[int]], generator: torch.Generator, chooser: np.random.Generator
    ) -> list[Text]:
        num = len(prompts)
        temperatures = chooser.uniform(0, 1, num) * (chooser.uniform(0, 1, num) > _GREEDY_SHARE)
        answers = self._generate(prompts, _MAX_ANSWER, temperatures, generator)
        return [
            Text([*prompt, *answer][: self._max_len], len(prompt))
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def _followed(self, texts: Sequence[Text], given: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return prompts that end with a second turn, after the answer to the first."""
        found = []
        assert self._turns is not None
        for text, turns in zip(texts, given, strict=True):
            if len(turns) > 1:
                asked = [*self._turns.between, *self._encoded(turns[1]), *self._turns.after]
                found.append([*self._open(text.tokens), *asked])
        return [each for each in found if len(each) <= self._max_prompt]

    def _open(self, tokens: list[int]) -> list[int]:
        """Return `tokens` without an end-of-text token at their end."""
        return tokens[:-1] if tokens[-1:] and tokens[-1] in self._tokenizer.eos_ids else tokens

    def _around(self, question: str) -> list[int]:
        tokens = self._encoded(question)[: self._longest]
        return self._turns.around(tokens) if self._turns else tokens

    def _own_prompts(
        self, num: int, generator: torch.Generator, chooser: np.random.Generator
    ) -> list[list[int]]:
        """Return prompts that the target itself writes."""
        turns = self._turns
        shares = _SHARES if turns else {"plain": 1.0}
        num_about = round(shares.get("about", 0) * num) if self._answers else 0
        plain = self._plain(round(shares["plain"] * num), chooser)
        openers = self._openers(num - num_about - len(plain), chooser)
        before = turns.before if turns else []
        begun = [*([*before, *opener] for opener in openers), *plain]
        warmth = chooser.uniform(0.7, 1, len(begun))
        written = self._generate(begun, min(_MAX_QUESTION, self._longest), warmth, generator)
        written = [self._open(tokens) for tokens in written]
        asked = [[*opener, *rest] for opener, rest in zip(openers, written, strict=False)]
        asked += self._about(num_about, chooser)
        pairs = zip(plain, written[len(openers) :], strict=True)
        found = [[*start, *rest[:_MAX_START]][: self._longest] for start, rest in pairs]
        return [turns.around(each[: self._longest]) for each in asked if turns] + found

    def _openers(self, num: int, chooser: np.random.Generator) -> list[list[int]]:
        """Return the first words of `num` users' turns; some have none."""
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
        """Return the beginnings of `num` texts without turns: first words, or any token."""
        first = self._tokenizer.encode("")  # tokens before every text, if any
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
        """Most tokens of a question; the rest of `max_len` is for template and answer."""
        around = len(self._turns.around([])) if self._turns else 0
        return max(1, self._max_prompt - around)

    @property
    def _max_prompt(self) -> int:
        return max(2 * self._max_len // 3, self._max_len - _MAX_ANSWER)

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)

    def _generate(
        self,
        prompts: Sequence[list[int]],
        num_tokens: int,
        temperatures: npt.NDArray[np.float64],
        generator: torch.Generator,
    ) -> list[list[int]]:
        """Generate up to `num_tokens` after each prompt, end-of-text tokens included.

        Prompts of similar length are run together.
        """
        found: list[list[int]] = [[]] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda idx: len(prompts[idx]), reverse=True)
        while order:
            room = min(self._max_len, len(prompts[order[0]]) + num_tokens)
            at_once = order[: max(1, _MAX_POSITIONS // room)]
            order = order[len(at_once) :]
            warmth = torch.from_numpy(temperatures[at_once]).float().to(self._target.device)
            answers = self._target.generate(
                [prompts[idx] for idx in at_once],
                num_tokens,
                warmth,
                self._tokenizer.eos_ids,
                generator,
                self._max_len,
                _MIN_SHARE,
            )
            for idx, answer in zip(at_once, answers, strict=True):
                found[idx] = answer
        return found
