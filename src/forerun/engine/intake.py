"""From a caller's prompt to requests that can run, or a refusal before anything is allocated."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from forerun.cache import KVCache
from forerun.engine.output_text import OutputText
from forerun.engine.prompt import Prompt, as_prompt
from forerun.engine.request import Request
from forerun.engine.request_options import RequestOptions
from forerun.engine.step import Core
from forerun.errors import InvalidOption, PromptTooLong, unknown_name
from forerun.models.text.tokenizer import Tokenizer
from forerun.sampling import fresh_seed
from forerun.types import SamplingParams


class Intake:
    """Touches no state that a step changes, so any thread may use it while the engine runs."""

    def __init__(self, tokenizer: Tokenizer, core: Core) -> None:
        self._tokenizer = tokenizer
        self._cache: KVCache = core.cache
        self._max_len = core.max_len
        self._vocab_size = core.model.config.vocab_size
        speculation = core.speculation
        self._drafters: Collection[str] = speculation.drafters.drafters if speculation else ()
        self._ids = itertools.count()

    def requests(
        self, prompt: Prompt, params: SamplingParams, options: RequestOptions
    ) -> list[Request]:
        """One request for each of the `n` answers."""
        given = as_prompt(prompt)
        tokens = tuple(self._tokenizer.encode(given)) if isinstance(given, str) else given
        self._check_prompt(tokens)
        self._check_params(params)
        self._check_drafter(options.speculation.drafter)
        seed = fresh_seed() if params.seed is None else params.seed
        text = OutputText.start(
            self._tokenizer,
            params.stop,
            include_stop=params.include_stop_str_in_output,
            skip_special=params.skip_special_tokens,
        )
        return [
            Request(
                id=next(self._ids),
                prompt=tokens,
                params=replace(params, n=1),
                seed=seed,
                choice=choice,
                end_ids=self._tokenizer.eos_ids,
                max_len=self._max_len,
                table=self._cache.new_table(),
                text=text,
                options=options,
            )
            for choice in range(params.n)
        ]

    def _check_prompt(self, tokens: tuple[int, ...]) -> None:
        if not tokens:
            raise InvalidOption("the prompt is empty; give at least one token.")
        if len(tokens) >= self._max_len:
            raise PromptTooLong(
                f"the prompt has {len(tokens)} tokens and the context {self._max_len}; "
                f"shorten it, or raise max_model_len."
            )
        if not all(0 <= token < self._vocab_size for token in tokens):
            raise InvalidOption(f"the prompt holds ids outside 0 … {self._vocab_size - 1}.")

    def _check_params(self, params: SamplingParams) -> None:
        for name in ("logit_bias", "allowed_token_ids"):
            for token in getattr(params, name) or ():
                if token >= self._vocab_size:
                    last = self._vocab_size - 1
                    raise InvalidOption(f"{name} names token {token}; ids end at {last}.")

    def _check_drafter(self, name: str | None) -> None:
        if name is None or name in self._drafters:
            return
        if not self._drafters:
            raise InvalidOption(f"drafter {name!r} is not here: this engine does not speculate.")
        raise unknown_name("drafter", name, self._drafters)


def params_for(
    num: int, given: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    """For `num` prompts; what is given once is meant for all."""
    if given is None or isinstance(given, SamplingParams):
        return [given or SamplingParams()] * num
    if isinstance(given, Mapping) or not all(isinstance(p, SamplingParams) for p in given):
        raise InvalidOption("sampling_params must be SamplingParams; build it from your options.")
    if len(given) != num:
        raise InvalidOption(f"{len(given)} sampling_params for {num} prompts; match them.")
    return list(given)
