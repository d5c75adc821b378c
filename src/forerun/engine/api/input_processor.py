"""From a caller's prompt and options to requests, or to an error before anything is allocated."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from forerun.cache import KVCache
from forerun.drafters import GRAMMAR, PREDICTION
from forerun.engine.api.prompt import Prompt, as_prompt
from forerun.engine.request.options import RequestOptions
from forerun.engine.request.output_text import OutputText
from forerun.engine.request.request import Request
from forerun.engine.step import Core
from forerun.errors import InvalidOption, PromptTooLong, UnusableDrafter, unknown_name
from forerun.grammars import Grammars
from forerun.models.text.tokenizer import Tokenizer
from forerun.sampling import fresh_seed
from forerun.types import SamplingParams

_CHARS_PER_TOKEN: Final = 16  # far more than the average of any text


class InputProcessor:
    """Checks prompts and options, and builds requests from them.

    It touches no state that a step changes, so any thread may use it while the engine runs.
    `limit` names the option that makes the context shorter than the model's, if one does.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        core: Core,
        grammars: Grammars,
        limit: str = "max_model_len",
    ) -> None:
        self._tokenizer = tokenizer
        self._grammars = grammars
        self._cache: KVCache = core.cache
        self._max_len, self._longest = core.max_len, core.model.config.max_len
        self._limit = limit
        self._vocab_size = core.model.config.vocab_size
        speculation = core.speculation
        self._drafters: Collection[str] = speculation.drafters.drafters if speculation else ()
        self._ids = itertools.count()
        self._encoded: tuple[str, tuple[int, ...]] = ("", ())  # the latest prediction

    def requests(
        self, prompt: Prompt, params: SamplingParams, options: RequestOptions
    ) -> list[Request]:
        """Return one request for each of the `n` answers to `prompt`."""
        given = as_prompt(prompt)
        tokens = tuple(self._tokenizer.encode(given)) if isinstance(given, str) else given
        self._check_prompt(tokens)
        self._check_params(params)
        self._check_drafter(params, options)
        prediction = self._predicted(options.prediction)
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
                params=_params_of(choice, params),
                seed=seed,
                choice=choice,
                end_ids=self._tokenizer.eos_ids,
                max_len=self._max_len,
                table=self._cache.new_table(),
                text=text,
                options=_options_of(choice, params, options),
                prediction=prediction,
                grammar=self._grammars.of(
                    params.structured_outputs, shows_special=not params.skip_special_tokens
                ),
            )
            for choice in range(params.n)
        ]

    def _check_prompt(self, tokens: tuple[int, ...]) -> None:
        if not tokens:
            raise InvalidOption("the prompt is empty; give at least one token.")
        if len(tokens) >= self._max_len:
            more = f", or raise {self._limit}" if self._max_len < self._longest else ""
            raise PromptTooLong(
                f"this model's maximum context length is {self._max_len} tokens, and the prompt "
                f"has {len(tokens)}; shorten it{more}."
            )
        if not all(0 <= token < self._vocab_size for token in tokens):
            raise InvalidOption(f"the prompt holds ids outside 0 … {self._vocab_size - 1}.")

    def _check_params(self, params: SamplingParams) -> None:
        for name in ("logit_bias", "allowed_token_ids", "stop_token_ids"):
            tokens = getattr(params, name) or ()
            if (token := max(tokens, default=0)) >= self._vocab_size:
                last = self._vocab_size - 1
                raise InvalidOption(f"{name} names token {token}; ids end at {last}.")
        ends = {*params.stop_token_ids, *(() if params.ignore_eos else self._tokenizer.eos_ids)}
        allowed, least = params.allowed_token_ids, params.min_tokens
        if least and allowed is not None and ends.issuperset(allowed):
            raise InvalidOption(
                f"allowed_token_ids holds only tokens that end an answer, and min_tokens={least} "
                f"lets none end at once; allow another token, or lower min_tokens."
            )

    def _predicted(self, text: str | None) -> tuple[int, ...]:
        """Return a prediction's tokens, without those that the context has no room for.

        The prompts of one call often share their prediction, so the latest one is remembered.
        """
        if not text:
            return ()
        text = text[: _CHARS_PER_TOKEN * self._max_len]
        known, ids = self._encoded
        if known != text:
            found = self._tokenizer.encode(text, add_special=False, parse_special=False)
            ids = tuple(found[: self._max_len])
            self._encoded = text, ids
        return ids

    def _check_drafter(self, params: SamplingParams, options: RequestOptions) -> None:
        name = options.speculation.drafter
        if name == PREDICTION and not options.prediction:
            raise UnusableDrafter("the drafter 'prediction' needs a prediction; give one.")
        if name == GRAMMAR and params.structured_outputs is None:
            raise UnusableDrafter("the drafter 'grammar' needs structured_outputs; give some.")
        if name is None or name in self._drafters:
            return
        if not self._drafters:
            raise UnusableDrafter(f"drafter {name!r} is not here: this engine does not speculate.")
        raise UnusableDrafter(str(unknown_name("drafter", name, self._drafters)))


def _params_of(choice: int, params: SamplingParams) -> SamplingParams:
    """Return the parameters of one answer: only the first has the prompt's log-probabilities."""
    if params.n == 1:
        return params
    return replace(params, n=1, prompt_logprobs=None if choice else params.prompt_logprobs)


def _options_of(choice: int, params: SamplingParams, options: RequestOptions) -> RequestOptions:
    """Return the options of one answer. If it needs all of the prompt's logits, it gets a salt of
    its own, since rows that are shared are not computed again."""
    if choice or not params.is_unshared:
        return options
    return replace(options, cache_salt=f"{options.cache_salt or ''}\0{uuid.uuid4()}")
