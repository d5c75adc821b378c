"""Texts to train on, written by the target itself.

Where the model has a chat template, it first writes the user's turn, from the template cut off
where that turn begins (Magpie, Xu et al. 2024), then answers it. Without one it writes on from
nothing. Prompts of files are answered beside these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer
from forerun.training.torch_target import TorchTarget

_MARK = "\u2063forerun\u2063"  # stands for the user's turn while a template is taken apart
_MAX_QUESTION = 96  # tokens of a user's turn
_HOTTEST = 1.0


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


class TextWriter:
    """Answers of the target, at temperatures from 0 to 1, seeded."""

    def __init__(
        self,
        target: TorchTarget,
        tokenizer: Tokenizer,
        prompts: Sequence[str],
        max_len: int,
        batch_len: int,
    ) -> None:
        self._target, self._tokenizer = target, tokenizer
        self._turns = Turns.of(tokenizer)
        self._prompts = [tokenizer.encode(prompt, add_special=False) for prompt in prompts]
        self._max_len, self._batch_len = max_len, batch_len

    def write(self, seed: int) -> list[Text]:
        """As many texts as run at once; the same for the same seed, on one machine."""
        generator = torch.Generator(self._target.device).manual_seed(seed)
        chooser = torch.Generator().manual_seed(seed)
        questions = self._questions(generator, chooser)
        before, after = self._around
        prompts = [[*before, *question, *after] for question in questions]
        room = self._max_len - max(map(len, prompts))
        spread = torch.rand(len(prompts), generator=chooser) * _HOTTEST
        answers = self._generate(prompts, room, spread, generator)
        return [
            Text([*prompt, *answer, *(self._end if len(answer) < room else ())], len(prompt))
            for prompt, answer in zip(prompts, answers, strict=True)
            if len(answer) > 2
        ]

    def _questions(self, generator: torch.Generator, chooser: torch.Generator) -> list[list[int]]:
        num, longest = self._batch_len, self._max_len // 3
        given: list[list[int]] = []
        if self._prompts:  # one half, or all where the model would not know what to ask
            share = num // 2 if self._turns else num
            chosen = torch.randint(len(self._prompts), (share,), generator=chooser).tolist()
            given = [self._prompts[idx][:longest] for idx in chosen]
        own = num - len(given)
        if self._turns is None:
            first = self._tokenizer.bos_id
            vocab_size = self._target.config.vocab_size
            drawn = torch.randint(vocab_size, (own,), generator=chooser).tolist()
            return given + [[token] if first is None else [first, token] for token in drawn]
        if not own:
            return given
        spread = torch.full((own,), _HOTTEST)
        room = min(_MAX_QUESTION, longest)
        return given + self._generate([self._turns.before] * own, room, spread, generator)

    @property
    def _around(self) -> tuple[list[int], list[int]]:
        return (self._turns.before, self._turns.after) if self._turns else ([], [])

    @property
    def _end(self) -> list[int]:
        """The end of an answer is worth guessing, too."""
        return list(self._tokenizer.eos_ids[:1])

    def _generate(
        self,
        prompts: list[list[int]],
        room: int,
        temperatures: torch.Tensor,
        generator: torch.Generator,
    ) -> list[list[int]]:
        on_device = temperatures.to(self._target.device)
        stops = self._tokenizer.eos_ids
        return self._target.generate(prompts, room, on_device, stops, generator)
