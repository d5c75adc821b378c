"""`LLM`: load a model, generate, chat and stream. Its interface follows vLLM's class `LLM`."""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, TypeVar, Unpack
from weakref import ref

from forerun.drafters import Target
from forerun.drafters.heads import model_fingerprint, shipped_heads
from forerun.drafters.phrases import shipped_book
from forerun.engine.api.events import EventBuilder, StreamEvent
from forerun.engine.api.input_processor import InputProcessor
from forerun.engine.api.outputs import RequestOutput
from forerun.engine.api.prompt import Prompt, TextOrIds, as_batch, as_conversations, params_for
from forerun.engine.api.stream import Stream
from forerun.engine.engine import Engine
from forerun.engine.lock import EngineLock
from forerun.engine.request.options import RequestKeywords, RequestOptions, SpeculationLike
from forerun.engine.request.request import Request
from forerun.engine.setup.building import build_core
from forerun.engine.setup.kernel_choice import choose_kernels
from forerun.engine.setup.memory import CacheMemory, parse_bytes
from forerun.engine.step import Round
from forerun.engine_config import EngineConfig, configured_by
from forerun.errors import InvalidOption, RequestFailed
from forerun.grammars import Grammars
from forerun.interrupts import Uninterrupted, safe_point
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.chat_template import Messages
from forerun.models.text.conversation import checked_variables, require_read
from forerun.replies import Conversations, ReasoningMarks
from forerun.speculation.config import SpeculativeConfig
from forerun.tools import Toolbox
from forerun.types import SamplingParams

Item = TypeVar("Item")
_CHAT_OPTIONS: Final = (
    *("sampling_params", *RequestKeywords.__annotations__),
    *("add_generation_prompt", "continue_final_message", "chat_template_kwargs"),
    *("tools", "tool_choice", "parallel_tool_calls"),
)


class LLM:
    """A loaded model and its engine: `LLM(model, …)` takes the keywords of `EngineConfig`."""

    @configured_by(EngineConfig)
    def __init__(self, config: EngineConfig) -> None:
        with Uninterrupted():  # ^C is raised only between two tensors, functions or measurements
            speculation = config.speculation
            num_bytes = parse_bytes(config.kv_cache_memory, "kv_cache_memory")
            memory = CacheMemory(config.max_num_seqs, config.kv_cache_backend, num_bytes)
            checkpoint = open_checkpoint(config.model, config.cache_folder)
            safe_point()
            self.tokenizer = load_tokenizer(checkpoint)
            safe_point()
            if config.chat_template is not None:
                self.tokenizer = self.tokenizer.with_chat_template(config.chat_template)
            self.model = LlamaModel.load(checkpoint, choose_kernels(config))
            max_len = _checked_len(config.max_model_len, self.model.config.max_len)
            fingerprint = model_fingerprint(checkpoint)
            self.target = Target(
                self.model,
                self.tokenizer,
                config.cache_folder,
                tuple(shipped_heads(fingerprint)),
                shipped_book(fingerprint),
            )
            self._memory, self._wanted_len = memory, max_len
            self.grammars = Grammars(self.tokenizer)
            self.toolbox = Toolbox(self.tokenizer, self.grammars, config.tool_call_parser)
            marks = ReasoningMarks.of(self.tokenizer, config.reasoning_parser)
            self.conversations = Conversations(self.tokenizer, self.toolbox, marks)
            self._lock = EngineLock()  # shared by all engines on this kernel set
            self._start(speculation)

    def _start(self, config: SpeculativeConfig | None) -> None:
        with self._lock:  # building runs passes, to measure what they cost
            core = build_core(self.target, self._memory, self._wanted_len, config)
        self.max_model_len = core.max_len
        self.engine = Engine(core, self._lock)
        limit = "kv_cache_memory" if self._wanted_len is None else "max_model_len"
        self.input_processor = InputProcessor(self.tokenizer, core, self.grammars, limit)

    def with_speculation(self, config: SpeculativeConfig | Mapping[str, Any] | None) -> LLM:
        """Return an `LLM` on the same loaded model with other speculation, or with none."""
        twin = copy.copy(self)
        twin._start(SpeculativeConfig.of(config))
        return twin

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] = 0,
        cache_salt: str | Sequence[str | None] | None = None,
        speculation: SpeculationLike | Sequence[SpeculationLike] = None,
        prediction: str | Sequence[str | None] | None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or several. An option is one value for all prompts, or a list.

        A prompt is text, token ids, {"prompt": text} or {"prompt_token_ids": ids}.
        `prediction` is roughly the text that is expected; guesses follow it while it is right.

        A request that fails does not end the others: when all are over, `RequestFailed` is
        raised, with the answers of the others in its `outputs`.
        """
        batch = as_batch(prompts)
        params = params_for(len(batch), sampling_params)
        options = RequestOptions.each(len(batch), priority, cache_salt, speculation, prediction)
        groups = [
            self.input_processor.requests(*row) for row in zip(batch, params, options, strict=True)
        ]
        self._finish([request for group in groups for request in group])
        return self._answers(batch, groups)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] = 0,
        cache_salt: str | Sequence[str | None] | None = None,
        speculation: SpeculationLike | Sequence[SpeculationLike] = None,
        prediction: str | Sequence[str | None] | None = None,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool | None = None,
        **template_variables: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, through the model's chat template.

        By default a new answer begins (`add_generation_prompt`); `continue_final_message` continues
        the last message instead. The template gets all `chat_template_kwargs`, whether it reads
        them or not; any other keyword must be a variable that the template reads.

        `tools` are functions that the model may call, in OpenAI's form (docs/tools.md). Each
        output's `text` is all that the model wrote; its calls are parsed into `tool_calls`, and its
        reasoning into `reasoning`.
        """
        require_read(template_variables, self.tokenizer, _CHAT_OPTIONS)
        variables = {**checked_variables(chat_template_kwargs), **template_variables}
        conversations = as_conversations(messages)
        params = params_for(len(conversations), sampling_params)
        callings = [
            self.toolbox.calling(tools, tool_choice, parallel_tool_calls, one.structured_outputs)
            for one in params
        ]
        asked = [
            self.conversations.ask(
                conversation,
                calling,
                variables,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
            )
            for conversation, calling in zip(conversations, callings, strict=True)
        ]
        outputs = self.generate(
            [self.tokenizer.encode(one.text, add_special=False) for one in asked],
            [each.form.params(one) for one, each in zip(params, asked, strict=True)],
            priority=priority,
            cache_salt=cache_salt,
            speculation=speculation,
            prediction=prediction,
        )
        return [output.read_as(one.form) for output, one in zip(outputs, asked, strict=True)]

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        **options: Unpack[RequestKeywords],
    ) -> Stream:
        """Stream one answer, with one event per round; `close()` ends it early."""
        (params,) = params_for(1, sampling_params)
        if params.n != 1:
            raise InvalidOption(f"n={params.n} is not allowed in a stream; ask for one answer.")
        requests = self.input_processor.requests(prompt, params, RequestOptions.of(options))
        self.engine.check(requests)
        return Stream(_read_by(self._tell(requests), requests), requests, self.engine)

    @property
    def max_num_seqs(self) -> int:
        """How many requests run at once."""
        return self._memory.max_num_seqs

    def metrics(self) -> dict[str, Any]:
        """Return what the engine has counted so far; see docs/scheduling.md."""
        return self.engine.snapshot()

    def in_use(self) -> dict[str, int]:
        """Count what requests hold; all counts are 0 if there are none. Waits for the step under
        way; see docs/scheduling.md."""
        return self.engine.in_use()

    def reset_prefix_cache(self) -> None:
        """Forget the rows of finished requests, so that the next prompt is computed whole."""
        self.engine.reset_prefix_cache()

    def _finish(self, requests: Sequence[Request]) -> None:
        try:
            for _ in _read_by(self._run(requests), requests):
                pass
        finally:  # if ^C comes before this block, the requests are forsaken and end that way
            with Uninterrupted():
                for request in requests:
                    self.engine.abort(request)

    def _answers(
        self, prompts: Sequence[TextOrIds], groups: Sequence[Sequence[Request]]
    ) -> list[RequestOutput]:
        """Return the outputs of ended requests; if any failed, raise an error with the others."""
        errors = [next((r.error for r in group if r.error), None) for group in groups]
        outputs = [
            None if error else RequestOutput.of(prompt, group)
            for prompt, group, error in zip(prompts, groups, errors, strict=True)
        ]
        found = [output for output in outputs if output is not None]
        if len(found) == len(outputs):
            return found
        first = next(error for error in errors if error is not None)
        failed = RequestFailed(
            f"{len(outputs) - len(found)} of {len(outputs)} prompts failed; the answers to the "
            f"others are in this error's `outputs`. The first: {first}"
        )
        failed.outputs = outputs
        raise failed from (first.__cause__ or first)

    def _tell(self, requests: Sequence[Request]) -> Generator[StreamEvent, None, None]:
        event_builder = EventBuilder()
        for done in self._run(requests):
            yield event_builder.event(done)
        for request in requests:
            if request.error is not None:
                raise request.error

    def _run(self, requests: Sequence[Request]) -> Generator[Round, None, None]:
        """Run requests until all have finished or failed; yield their rounds as they come.

        Several such generators may be active (interleaved streams, threads). The one that is asked
        runs a step for all; the rounds of other requests wait in their `unread`.

        There is no cleanup here: a generator that is dropped would run it in a finalizer, where ^C
        is printed and lost. Its requests are forsaken instead, and end before the next step.
        """
        self.engine.add(requests)
        while True:
            for request in requests:
                while request.unread:
                    yield request.unread.popleft()
            if not self._step_for(requests):
                return

    def _step_for(self, requests: Sequence[Request]) -> bool:
        """Run a step, unless one of another thread brought rounds while this one waited for the
        lock. Return False once no more will come: all have ended or were aborted."""
        with self._lock:
            if any(r.unread for r in requests):
                return True
            if all(r.is_over or not self.engine.has(r) for r in requests):
                return False
            for done in self.engine.step().rounds:
                if done.request.asker is not None:
                    done.request.unread.append(done)
            return True


def _read_by(
    reader: Generator[Item, None, None], requests: Sequence[Request]
) -> Generator[Item, None, None]:
    """Return `reader`; when it is dropped or ends, `requests` are forsaken."""
    for request in requests:
        request.asker = ref(reader)
    return reader


def _checked_len(wanted: int | None, trained: int) -> int | None:
    if wanted is None:
        return None
    if wanted > trained:
        raise InvalidOption(
            f"max_model_len={wanted} is not allowed; give 2 … {trained}, the model's context."
        )
    return int(wanted)
