"""What a prediction saves: the same request without one, with a good one, and with a wrong one.

The other drafters guess as usual; only `plain` has no speculation at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from forerun.bench.measure.bootstrap import median_interval
from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.serve.overhead import chat_body
from forerun.bench.serve.replies import Reply, ask
from forerun.bench.serve.servers import Server
from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer

WAYS: Final = ("none", "changed", "wrong", "plain")
SHARE: Final = 0.1  # of the tokens that are replaced in `changed`


@dataclass(frozen=True)
class Predicted:
    """Seconds and target passes of one answer, by way."""

    seconds: dict[str, float]
    passes: dict[str, int]
    same_text: bool


def changed(tokens: Sequence[int], share: float, tokenizer: Tokenizer, random: Random) -> str:
    """Return the text of `tokens`, a share of them replaced by random ones."""
    places = set(random.sample(range(len(tokens)), round(share * len(tokens))))
    found = [
        random.randrange(tokenizer.vocab_size) if place in places else token
        for place, token in enumerate(tokens)
    ]
    return tokenizer.decode(found, skip_special=True)


def measure_predictions(
    server: Server,
    prompts: Sequence[NamedPrompt],
    tokenizer: Tokenizer,
    max_tokens: int,
    num_answers: int,
    repeats: int,
    random: Random,
) -> Iterator[Predicted]:
    """Measure the first answers that reach `max_tokens` without `ignore_eos`. `wrong` predicts the
    answer to another prompt: fluent text, with no word in its place."""

    def answer(prompt: NamedPrompt, salt: str, **more: Any) -> Reply:
        wanted = {"return_token_ids": True, "ignore_eos": False}
        return ask(server.url, chat_body(prompt.text, max_tokens, salt, **wanted, **more))

    asked, answers = list[NamedPrompt](), list[list[int]]()
    for prompt in prompts:
        (choice,) = answer(prompt, "first").answer["choices"]
        if choice["finish_reason"] == "length":
            asked.append(prompt)
            answers.append(choice["token_ids"])
        if len(asked) == num_answers:
            break
    else:
        raise InvalidOption(
            f"{len(asked)} of the answers have {max_tokens} tokens, and {num_answers} are to be "
            f"predicted; lower --prediction-tokens or --repeats."
        )
    for repeat in range(repeats):
        for idx, (prompt, tokens) in enumerate(zip(asked, answers, strict=True)):
            fields: dict[str, dict[str, Any]] = {
                "none": {},
                "changed": _predicted(changed(tokens, SHARE, tokenizer, random)),
                "wrong": _predicted(tokenizer.decode(answers[idx - 1], skip_special=True)),
                "plain": {"speculative": False},
            }
            order = random.sample(WAYS, len(WAYS))
            replies = {way: answer(prompt, f"{way} {repeat} {idx}", **fields[way]) for way in order}
            found = {way: replies[way].answer for way in WAYS}
            yield Predicted(
                {way: replies[way].seconds for way in WAYS},
                {way: found[way]["usage"]["forerun"]["target_passes"] for way in WAYS},
                all(one["choices"][0]["token_ids"] == tokens for one in found.values()),
            )


def _predicted(content: str) -> dict[str, Any]:
    return {"prediction": {"type": "content", "content": content}}


def predictions_record(rounds: Sequence[Predicted], seed: int) -> dict[str, Any]:
    """Return the record; ratios are seconds without a prediction, or plain, ÷ seconds with one."""
    record: dict[str, Any] = {"same_text": all(one.same_text for one in rounds)}
    compared = {
        "changed": ("none", "changed"),
        "wrong": ("none", "wrong"),
        "changed_plain": ("plain", "changed"),
    }
    for name, (without, way) in compared.items():
        ratios = [one.seconds[without] / one.seconds[way] for one in rounds]
        passes = [one.passes[without] / one.passes[way] for one in rounds]
        for figure, values in (("ratio", ratios), ("passes_ratio", passes)):
            found = median_interval(values, seed)
            record[f"{name}_{figure}"] = None if found is None else asdict(found)
    return {**record, "rounds": [asdict(one) for one in rounds]}
