"""Two kernel sets on the same text: where would the second have chosen another token?

Teacher-forced: the first writes greedily, then each scores prompt and text at once. So a near tie
that rounding decides is seen as one place, and not as everything that follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.views.sheet import Sheet
from forerun.bench.verdicts import Outcome
from forerun.cache.cache_size import CacheSize
from forerun.engine import LLM
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, SamplingParams, Span, Tree

_PASS_TOKENS: Final = 256


@dataclass(frozen=True)
class Parting:
    """The first place at which the argmax differs; margins are top-1 less top-2, in logits."""

    at: int
    ours: str
    theirs: str
    our_margin: float
    their_margin: float


@dataclass(frozen=True)
class Compared:
    """`smallest_margin` of the other set, anywhere in the text: how near the nearest tie was."""

    prompt: str
    num_prompt_tokens: int
    num_tokens: int
    num_different: int
    smallest_margin: float
    parting: Parting | None


def compare(
    ours: LLM, theirs: LlamaModel, prompts: Sequence[NamedPrompt], num_tokens: int
) -> Iterator[Compared]:
    """`ours` writes `num_tokens` after each prompt; both score what it wrote."""
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    for prompt in prompts:
        tokens = prompt.encode(ours.tokenizer)
        text = ours.generate(tokens, params)[0].outputs[0].token_ids
        logits = [text_logits(model, tokens, text) for model in (ours.model, theirs)]
        yield _compared(ours, prompt.name, len(tokens), text, *logits)


def text_logits(model: LlamaModel, prompt: Sequence[int], text: Sequence[int]) -> FloatArray:
    """What the model says before each token of `text`: [len(text), V]."""
    tokens = [*prompt, *text[:-1]]
    size = CacheSize.for_requests(1, len(tokens))
    cache = model.new_cache(size.num_pages, size.page_size)
    table, rows = cache.new_table(), []
    first_wanted = len(prompt) - 1
    for first in range(0, len(tokens), _PASS_TOKENS):
        chunk = tuple(tokens[first : first + _PASS_TOKENS])
        wanted = tuple(i for i in range(len(chunk)) if first + i >= first_wanted)
        span = Span(table.reserve(len(chunk)), chunk, Tree.chain(len(chunk)), wanted)
        rows.append(np.array(model.forward(Plan.build([(span, table)]), cache)))
    table.free()
    return np.concatenate(rows)


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
    """Top-1 less top-2 of each row."""
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


def parity_verdict(found: Sequence[Compared]) -> Outcome:
    num_same = sum(one.parting is None for one in found)
    widest = max((one.parting.their_margin for one in found if one.parting), default=None)
    text = f"{num_same} of {len(found)} the same"
    if widest is not None:
        text += f"; the widest margin that was decided otherwise is {widest:.5f}"
    return Outcome("the same greedy text as the reference kernels", text, num_same == len(found))


def parity_sheet(found: Sequence[Compared]) -> Sheet:
    """The prompts whose texts part."""
    rows = []
    for one in found:
        if one.parting is not None:
            p = one.parting
            margins = (f"{p.our_margin:.5f}", f"{p.their_margin:.5f}")
            share = f"{one.num_different} of {one.num_tokens}"
            rows.append([one.prompt, str(p.at), repr(p.ours), repr(p.theirs), *margins, share])
    words = ("ours", "reference")
    groups = [["at", *words], ["our margin", "its margin"], ["different"]]
    title = "first places that differ" if rows else "no place differs"
    return Sheet(title, ["prompt"], groups if rows else [], rows, words)
