"""Compare two kernel sets on the same text: where would the second have chosen another token?

Teacher-forced: the first set generates greedily, then each scores prompt and text at once. A near
tie that rounding decides then counts as one place, not as everything that follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from forerun.bench.measure.teacher_forcing import text_logits
from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.engine import LLM
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, SamplingParams


@dataclass(frozen=True)
class Parting:
    """The first place at which the argmax differs; margins are top-1 − top-2, in logits."""

    at: int
    ours: str
    theirs: str
    our_margin: float
    their_margin: float


@dataclass(frozen=True)
class Compared:
    """One text; `smallest_margin` is the other set's, anywhere in the text: the nearest tie."""

    prompt: str
    num_prompt_tokens: int
    num_tokens: int
    num_different: int
    smallest_margin: float
    parting: Parting | None


def compare(
    ours: LLM, theirs: LlamaModel, prompts: Sequence[NamedPrompt], num_tokens: int
) -> Iterator[Compared]:
    """Let `ours` generate `num_tokens` after each prompt, and score the text with both."""
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    for prompt in prompts:
        tokens = prompt.encode(ours.tokenizer)
        text = ours.generate(tokens, params)[0].outputs[0].token_ids
        logits = [text_logits(model, tokens, text) for model in (ours.model, theirs)]
        yield _compared(ours, prompt.name, len(tokens), text, *logits)


def _compared(
    llm: LLM,
    name: str,
    num_prompt_tokens: int,
    text: Sequence[int],
    our_logits: FloatArray,
    their_logits: FloatArray,
) -> Compared:
    chosen = their_logits.argmax(axis=1)  # [len(text)]
    different = np.flatnonzero(chosen != np.asarray(text))
    parting = None
    if len(different):
        at = int(different[0])
        parting = Parting(
            at,
            ours=_word(llm, text[at]),
            theirs=_word(llm, int(chosen[at])),
            our_margin=float(margins_of(our_logits)[at]),
            their_margin=float(margins_of(their_logits)[at]),
        )
    smallest = float(margins_of(their_logits).min())
    return Compared(name, num_prompt_tokens, len(text), len(different), smallest, parting)


def _word(llm: LLM, token: int) -> str:
    return llm.tokenizer.decode([token], skip_special=False, continuing=True)


def margins_of(logits: FloatArray) -> FloatArray:
    """Return top-1 − top-2 of each row."""
    best = np.partition(logits, -2, axis=1)[:, -2:]
    return np.asarray(best[:, 1] - best[:, 0])


def parity_record(found: Sequence[Compared]) -> dict[str, Any]:
    return {
        "num_prompts": len(found),
        "num_tokens": sum(one.num_tokens for one in found),
        "num_same": sum(one.parting is None for one in found),
        "smallest_margin": min((one.smallest_margin for one in found), default=None),
        "prompts": [asdict(one) for one in found],
    }
