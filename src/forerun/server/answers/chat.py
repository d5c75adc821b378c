"""`/v1/chat/completions`: chat.completion objects and their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from forerun.replies import WORDS_ALONE, Piece, ReplyForm, ReplyReader, Thoughts
from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.trace import trace
from forerun.tools import Arguments, CallBegun, ToolCall, Words


@dataclass
class ChatForm(ChunkForm):
    reply: ReplyForm = WORDS_ALONE
    shows_reasoning: bool = True
    _readers: dict[int, ReplyReader] = field(default_factory=dict)  # by choice, for streams

    chunk_kind = "chat.completion.chunk"

    @property
    def is_framed(self) -> bool:
        return self.reply.is_plain and super().is_framed

    def whole(self, deltas: list[Delta]) -> dict[str, Any]:
        choices = []
        for delta in deltas:
            message: dict[str, Any] = {"role": "assistant", "content": delta.text, "refusal": None}
            rest = self._rest(delta)
            if not self.reply.is_plain:
                reply = self.reply.read(delta.text)
                message["content"] = reply.words
                if reply.reasoning and self.shows_reasoning:
                    message |= _reasoned(reply.reasoning)
                if reply.calls:
                    message["content"] = reply.words or None
                    message["tool_calls"] = [call.as_dict() for call in reply.calls]
                    rest["finish_reason"] = _reason(delta, is_whole=reply.is_whole)
            choices.append({"index": delta.index, "message": message, **rest})
        answer = {**self._head("chat.completion"), "choices": choices, "usage": self.group.usage}
        if self.shows_token_ids:
            answer["prompt_token_ids"] = self._prompt
        return answer

    def _first(self, delta: Delta) -> bytes:
        if self.shows_token_ids and delta.num_before == 0:
            return self._opened(prompt_token_ids=self._prompt)
        return self._before

    @property
    def _prompt(self) -> list[int]:
        return list(self.group.requests[0].prompt)

    def choices(self, delta: Delta) -> Iterator[dict[str, Any]]:
        if delta.num_before == 0:
            opening = {"role": "assistant", "content": "", "refusal": None}
            yield {"index": delta.index, "delta": opening, **_EMPTY}
        if not self.reply.is_plain:
            yield from self._told(delta)
        elif self.is_news(delta):
            words = {} if delta.output and not delta.text else {"content": delta.text}
            yield {"index": delta.index, "delta": words, **self._rest(delta)}

    def _told(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """Yield a delta's reasoning, words and calls; log-probabilities, token ids and the trace
        come with the last of them."""
        reader = self._readers.get(delta.index)
        if reader is None:
            reader = self._readers[delta.index] = self.reply.reader()
        pieces = reader.read(delta.text, is_last=delta.output is not None)
        number = reader.num_calls - sum(isinstance(piece, CallBegun) for piece in pieces) - 1
        told = list[dict[str, Any]]()
        for piece in pieces:
            number += isinstance(piece, CallBegun)
            if self.shows_reasoning or not isinstance(piece, Thoughts):
                told.append(self._as_delta(piece, number))
        if not told and (delta.output is not None or self.shows_more):
            told.append({})
        for words in told[:-1]:
            yield {"index": delta.index, "delta": words, **_EMPTY}
        if told:
            rest = self._rest(delta)
            if reader.num_calls:
                rest["finish_reason"] = _reason(delta, is_whole=reader.is_whole)
            yield {"index": delta.index, "delta": told[-1], **rest}

    def _as_delta(self, piece: Piece, number: int) -> dict[str, Any]:
        if isinstance(piece, Thoughts):
            return _reasoned(piece.text)
        if isinstance(piece, Words):
            return {"content": piece.text}
        if isinstance(piece, Arguments):
            return {"tool_calls": [{"index": number, "function": {"arguments": piece.text}}]}
        begun = ToolCall(piece.name, "", self.reply.fresh_id()).as_dict()
        return {"tool_calls": [{"index": number, **begun}]}

    def _rest(self, delta: Delta) -> dict[str, Any]:
        rest: dict[str, Any] = {
            "logprobs": {"content": self.chat_entries(delta), "refusal": None}
            if self.shows_logprobs
            else None,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self.shows_token_ids:
            rest["token_ids"] = list(delta.tokens)
        if self.shows_trace:
            rest["forerun"] = {"trace": [trace(done, self.tokenizer) for done in delta.rounds]}
        return rest


_EMPTY = {"logprobs": None, "finish_reason": None}


def _reason(delta: Delta, *, is_whole: bool) -> str | None:
    """Return the finish reason of an answer with calls; a call that a stop string cut off must not
    be run, so its reason is not `tool_calls`."""
    return "tool_calls" if delta.finish_reason == "stop" and is_whole else delta.finish_reason


def _reasoned(text: str) -> dict[str, str]:
    """Return reasoning under vLLM's name, and under that of DeepSeek and llama.cpp."""
    return {"reasoning": text, "reasoning_content": text}
