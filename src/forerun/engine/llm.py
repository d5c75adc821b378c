"""`LLM`: load a model, generate, chat, stream. Shaped like vLLM's class of that name."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from forerun.cache.cache_size import CacheSize
from forerun.engine.building import Target, build_speculation
from forerun.engine.kernel_choice import Progress, choose_kernels
from forerun.engine.output_text import OutputText
from forerun.engine.outputs import CompletionOutput, RequestOutput, StreamEvent, pieces_between
from forerun.engine.request import Request
from forerun.engine.scheduler import Scheduler
from forerun.engine.scheduler_limits import SchedulerLimits
from forerun.engine.speculative_config import AUTO, SpeculativeConfig
from forerun.engine.step import Core, Round, step
from forerun.engine.target_pool import TargetPool
from forerun.errors import InvalidOption, PromptTooLong
from forerun.kernels import Kernels
from forerun.models.chat_template import Messages
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.sampling import fresh_seed
from forerun.types import SamplingParams

Prompt = str | Sequence[int]

_PASS_TOKENS: Final = 256  # in one pass: prompts are read in chunks beside running answers


class LLM:
    """A model that answers, with speculation unless `speculative_config=None`.

    `model` is a GGUF file, a Hugging Face directory, or the name of a pulled model. `kernels` is
    "auto", "cpu", "reference" or a kernel set; `quantization` ("int8", "int4") packs float weights
    on load; `progress` hears what is being compiled or packed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        speculative_config: SpeculativeConfig | Mapping[str, Any] | None = AUTO,
        max_model_len: int | None = None,
        max_num_seqs: int = 8,
        chat_template: str | None = None,
        kernels: str | Kernels = "auto",
        num_threads: int | None = None,
        quantization: str | None = None,
        cache_dir: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        checkpoint = open_checkpoint(model, cache_dir)
        tokenizer = load_tokenizer(checkpoint)
        self.tokenizer = (
            tokenizer if chat_template is None else tokenizer.with_chat_template(chat_template)
        )
        if isinstance(kernels, str):
            kernels = choose_kernels(kernels, num_threads, quantization, cache_dir, progress)
        self.model = LlamaModel.load(checkpoint, kernels)
        self.max_model_len = _max_len(max_model_len, self.model.config.max_len)
        self._max_num_seqs = _checked_count(max_num_seqs, "max_num_seqs")
        self._cache_dir = cache_dir
        self._ids = itertools.count()
        self._unread: dict[int, deque[Round]] = {}
        self._core = self._build_core(_as_config(speculative_config))

    def _build_core(self, config: SpeculativeConfig | None) -> Core:
        speculation = None
        if config is not None:
            target = Target(
                self.model, self.tokenizer, self.max_model_len, self._max_num_seqs, self._cache_dir
            )
            speculation = build_speculation(config, target)
        max_nodes = speculation.max_nodes if speculation else 0
        try:
            num_rows = self.max_model_len + max_nodes
            size = CacheSize.for_requests(self._max_num_seqs, num_rows)
            cache = self.model.new_cache(size.num_pages, size.page_size)
        except MemoryError:
            raise InvalidOption(
                f"there is no memory for {self._max_num_seqs} × {self.max_model_len} tokens; "
                f"lower max_model_len or max_num_seqs."
            ) from None
        requests: dict[int, Request] = {}
        limits = SchedulerLimits(
            self.max_model_len, self._max_num_seqs, max(_PASS_TOKENS, self._max_num_seqs)
        )
        drafts = [] if speculation is None else speculation.pools
        scheduler = Scheduler(limits, TargetPool(cache, requests), drafts)
        return Core(self.model, cache, speculation, scheduler, requests)

    def with_speculation(self, config: SpeculativeConfig | Mapping[str, Any] | None) -> LLM:
        """The same loaded model with other speculation, or with none."""
        twin = object.__new__(LLM)
        twin.__dict__.update(self.__dict__)
        twin._core = twin._build_core(_as_config(config))
        return twin

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or several; text or token ids."""
        batch = _as_batch(prompts)
        params = _params_for(batch, sampling_params)
        groups = [self._requests(prompt, p) for prompt, p in zip(batch, params, strict=True)]
        for _ in self._run([request for group in groups for request in group]):
            pass
        return [
            RequestOutput(
                prompt if isinstance(prompt, str) else None,
                group[0].prompt,
                [CompletionOutput.of(request) for request in group],
            )
            for prompt, group in zip(batch, groups, strict=True)
        ]

    def chat(
        self,
        messages: Messages | Sequence[Messages] | str,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **template_variables: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, through the model's chat template."""
        if isinstance(messages, str):
            raise InvalidOption('messages are a list like [{"role": "user", "content": "…"}].')
        one = not messages or isinstance(messages[0], Mapping)
        many = cast(Sequence[Messages], [messages] if one else messages)
        prompts = [self.tokenizer.encode_chat(chat, **template_variables) for chat in many]
        return self.generate(prompts, sampling_params)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[StreamEvent]:
        """One answer as it grows, an event per round."""
        params = sampling_params or SamplingParams()
        if params.n != 1:
            raise InvalidOption(f"n={params.n} is not allowed in a stream; ask for one answer.")
        (request,) = self._requests(prompt, params)
        num_shown = 0
        for done in self._run([request]):
            end = len(request.text.text) if request.is_finished else request.text.num_certain
            pieces, num_shown = pieces_between(request, num_shown, end), max(num_shown, end)
            is_last = request.is_finished and not self._unread[request.id]
            output = CompletionOutput.of(request) if is_last else None
            yield StreamEvent(pieces, done.verdict.tokens, done.verdict.origins, done, output)

    def _requests(self, prompt: Prompt, params: SamplingParams) -> list[Request]:
        """One request for each of the `n` answers."""
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        tokens = tuple(map(int, ids))
        self._check_prompt(tokens)
        seed = fresh_seed() if params.seed is None else params.seed
        text = OutputText.start(
            self.tokenizer,
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
                end_ids=self.tokenizer.eos_ids,
                max_len=self.max_model_len,
                table=self._core.cache.new_table(),
                text=text,
            )
            for choice in range(params.n)
        ]

    def _check_prompt(self, tokens: tuple[int, ...]) -> None:
        if not tokens:
            raise InvalidOption("the prompt is empty; give at least one token.")
        if len(tokens) >= self.max_model_len:
            raise PromptTooLong(
                f"the prompt has {len(tokens)} tokens and the context {self.max_model_len}; "
                f"shorten it, or raise max_model_len."
            )
        vocab_size = self.model.config.vocab_size
        if not all(0 <= token < vocab_size for token in tokens):
            raise InvalidOption(f"the prompt holds ids outside 0 … {vocab_size - 1}.")

    def _run(self, requests: Sequence[Request]) -> Iterator[Round]:
        """Run requests to their end; a round of each as it comes.

        Several of these may be under way (interleaved streams): whoever is asked runs a step for
        all, and the rounds of others wait until they are asked for.
        """
        core = self._core
        mine = {request.id for request in requests}
        try:
            for request in requests:
                core.scheduler.add(request)
                core.requests[request.id] = request
                self._unread[request.id] = deque()
            while True:
                for request_id in mine:
                    while self._unread[request_id]:
                        yield self._unread[request_id].popleft()
                if not mine & core.requests.keys():
                    return
                self._step()
        finally:
            for request in requests:
                self._unread.pop(request.id, None)
                if request.id in core.requests:
                    self._end(request)

    def _step(self) -> None:
        core = self._core
        began = time.perf_counter()
        rounds = step(core)
        took = time.perf_counter() - began
        for request_id in core.scheduler.running:
            core.requests[request_id].stats.seconds += took
        for done in rounds:
            self._unread[done.request.id].append(done)
            if done.request.is_finished:
                self._end(done.request)

    def _end(self, request: Request) -> None:
        self._core.scheduler.remove(request.id)
        if self._core.speculation is not None:
            self._core.speculation.end(request)
        del self._core.requests[request.id]


def _as_config(
    given: SpeculativeConfig | Mapping[str, Any] | None,
) -> SpeculativeConfig | None:
    if given is None or isinstance(given, SpeculativeConfig):
        return given
    return SpeculativeConfig.from_dict(given)


def _checked_count(value: int, name: str) -> int:
    if not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name}={value!r} is not allowed; give a whole number ≥ 1.")
    return value


def _max_len(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return trained
    if not isinstance(wanted, int) or not 1 < wanted <= trained:
        raise InvalidOption(
            f"max_model_len={wanted} is not allowed; the model's context is {trained} tokens."
        )
    return wanted


def _as_batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several; a prompt is text, or token ids in a list or an array."""
    if isinstance(prompts, str) or (len(prompts) and isinstance(prompts[0], int | np.integer)):
        return [cast(Prompt, prompts)]
    return list(cast(Sequence[Prompt], prompts))


def _params_for(
    batch: Sequence[Prompt], given: SamplingParams | Sequence[SamplingParams] | None
) -> list[SamplingParams]:
    if given is None or isinstance(given, SamplingParams):
        return [given or SamplingParams()] * len(batch)
    if isinstance(given, Mapping) or not all(isinstance(p, SamplingParams) for p in given):
        raise InvalidOption("sampling_params must be SamplingParams; build it from your options.")
    if len(given) != len(batch):
        raise InvalidOption(f"{len(given)} sampling_params for {len(batch)} prompts; match them.")
    return list(given)
